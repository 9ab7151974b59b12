import datasets
import pytest
import torch
from helpers import CAUSAL, VOCABULARY, make_batch, make_model
from torch import nn

from clue_hf.errors import UserError
from clue_hf.functional import GRADIENTS, clue_loss, error_and_entropy
from clue_hf.objectives import CLUE, DFT, EAFT, Brier, LabelSmoothing, MaxSup, Plain
from clue_hf.tasks import TextTask, summarize
from clue_hf.tasks.head import why_not_fusable
from clue_hf.tasks.text import FusedPrediction


ARCHITECTURES = ["t5", "mt5", "bart", "marian", "gpt2", "llama"]


def loss_and_gradients(model, kind, objective, fused, batch=None):
    batch = batch or make_batch(kind)
    task = TextTask(model, fused_head=fused)
    prediction = task.predict(model, batch, objective)
    assert isinstance(prediction, FusedPrediction) == (fused == "on")
    loss, rows = prediction.reduce(objective, task.count([batch]))
    model.zero_grad()
    loss.backward()
    return loss.detach(), rows, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(fused, plain):
    """Loss, statistics and every gradient agree to 1e-5 of the largest value (1e-4 where sums cancel)."""
    torch.testing.assert_close(fused[:2], plain[:2], rtol=1e-5, atol=1e-5)
    assert fused[2].keys() == plain[2].keys()
    largest = max(gradient.abs().max() for gradient in plain[2].values())
    for name, gradient in plain[2].items():
        torch.testing.assert_close(fused[2][name], gradient, rtol=1e-4, atol=1e-5 * float(largest), msg=name)


def own_token_losses(model, kind, batch):
    """Error and entropy straight from the model's logits, by the book."""
    outputs = model(**batch)
    logits, labels = outputs.logits, batch["labels"]
    if kind in CAUSAL:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return outputs.loss, error_and_entropy(logits, labels), labels != -100


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("clue_gradient", GRADIENTS)
def test_fused_equals_logits(kind, level, clue_gradient):
    objective = CLUE(0.7, level, clue_gradient)
    fused = loss_and_gradients(make_model(kind), kind, objective, "on")
    plain = loss_and_gradients(make_model(kind), kind, objective, "off")
    assert_same(fused, plain)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize(
    "objective", [Brier(), EAFT(), DFT(), MaxSup(0.3), LabelSmoothing(0.2)], ids=lambda made: type(made).__name__
)
def test_other_objectives_fused_equal_logits(kind, objective):
    fused = loss_and_gradients(make_model(kind), kind, objective, "on")
    plain = loss_and_gradients(make_model(kind), kind, objective, "off")
    assert_same(fused, plain)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("clue_gradient", GRADIENTS)
def test_fused_equals_logits_in_float64(kind, level, clue_gradient):
    model, objective = make_model(kind).double(), CLUE(0.7, level, clue_gradient)
    fused, plain = (loss_and_gradients(model, kind, objective, way) for way in ("on", "off"))
    # the fused head hands the rows of a sequence on in float32
    tolerance = 1e-12 if level == "token" else 1e-7
    torch.testing.assert_close(fused[0], plain[0], rtol=tolerance, atol=tolerance)
    largest = max(gradient.abs().max() for gradient in plain[2].values())
    for name, gradient in plain[2].items():
        torch.testing.assert_close(fused[2][name], gradient, rtol=0, atol=tolerance * float(largest), msg=name)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("fused", ["on", "off"])
def test_ce_is_the_models_own_loss(kind, fused):
    model, batch = make_model(kind), make_batch(kind)
    own, _, _ = own_token_losses(model, kind, batch)
    loss, *_ = loss_and_gradients(model, kind, Plain(), fused, batch)
    torch.testing.assert_close(loss, own.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_clue_is_the_formula_on_the_models_own_logits(kind):
    model, batch = make_model(kind), make_batch(kind)
    _, (error, entropy), kept = own_token_losses(model, kind, batch)
    expected = clue_loss(error, entropy, 0.7)[kept].mean()
    loss, rows, _ = loss_and_gradients(model, kind, CLUE(0.7), "on", batch)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)
    summary = summarize(rows.sum(0), VOCABULARY)
    assert summary["loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert summary["error"] == pytest.approx(error[kept].mean().item(), rel=1e-5)
    assert summary["uncertainty"] == pytest.approx(entropy[kept].mean().item(), rel=1e-5)
    assert summary["calibration"] == pytest.approx(((error - entropy)[kept] ** 2).mean().item(), rel=1e-5)


@pytest.mark.parametrize("fused", ["on", "off"])
def test_the_accuracy_is_the_share_of_labels_with_the_largest_logit(kind, fused):
    model, batch = make_model(kind), make_batch(kind)
    if kind == "t5":  # the same inputs for other labels
        batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
    outputs, labels = model(**batch).logits.argmax(-1), batch["labels"]
    outputs, labels = (outputs[:, :-1], labels[:, 1:]) if kind in CAUSAL else (outputs, labels)
    kept, chosen = labels != -100, torch.rand(labels.shape) < 0.5
    labels[kept & chosen] = outputs[kept & chosen]
    right = (outputs == labels)[kept].double().mean().item()
    assert 0.2 < right < 0.8
    _, rows, _ = loss_and_gradients(model, kind, CLUE(0.7), fused, batch)
    assert summarize(rows.sum(0), accuracy="accuracy")["accuracy"] == pytest.approx(right, abs=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_t5_heads_tied_and_untied_scaled_and_not(tied):
    model = make_model("t5", tie_word_embeddings=tied)
    if not tied:
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight))
    assert model.config.scale_decoder_outputs == tied
    fused = loss_and_gradients(model, "t5", CLUE(0.7), "on")
    plain = loss_and_gradients(model, "t5", CLUE(0.7), "off")
    assert_same(fused, plain)


def test_alpha_one_equals_ce_bit_for_bit(kind):
    for fused in ("on", "off"):
        plain = loss_and_gradients(make_model(kind), kind, Plain(), fused)
        for clue_gradient in GRADIENTS:
            ours = loss_and_gradients(make_model(kind), kind, CLUE(1.0, clue_gradient=clue_gradient), fused)
            assert torch.equal(ours[0], plain[0])
            assert all(torch.equal(ours[2][name], gradient) for name, gradient in plain[2].items())


def test_the_sequence_level_has_two_denominators(kind):
    model, batch = make_model(kind), make_batch(kind)
    batch["labels"][1] = -100  # an empty target counts as no sequence
    _, (error, entropy), kept = own_token_losses(model, kind, batch)
    squares = [(e[k].mean() - u[k].mean()) ** 2 for e, u, k in zip(error, entropy, kept, strict=True) if k.any()]
    expected = 0.7 * error[kept].mean() + 0.3 * torch.stack(squares).mean()
    loss, rows, _ = loss_and_gradients(model, kind, CLUE(0.7, "sequence"), "on", batch)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)
    assert summarize(rows.sum(0))["loss"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("fused", ["on", "off"])
def test_a_batch_without_labels_to_learn_gives_zero(kind, level, fused):
    batch = make_batch(kind)
    batch["labels"][:] = -100
    model, objective = make_model(kind), CLUE(0.7, level)
    task = TextTask(model, fused_head=fused)
    loss, rows = task.predict(model, batch, objective).reduce(objective, task.count([batch]).clamp(min=1))
    loss.backward()
    assert loss.item() == 0
    assert rows.sum() == 0
    assert all((p.grad == 0).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("fused", ["on", "off"])
def test_label_smoothing_is_transformers_own(kind, fused):
    from transformers.trainer_pt_utils import LabelSmoother

    model, batch = make_model(kind), make_batch(kind)
    expected = LabelSmoother(0.2)(model(**batch), batch["labels"], shift_labels=kind == "gpt2")
    loss, *_ = loss_and_gradients(model, kind, LabelSmoothing(0.2), fused, batch)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)


def test_padding_does_not_change_the_loss(kind):
    batch = make_batch(kind)
    loss, *_ = loss_and_gradients(make_model(kind), kind, CLUE(0.7), "on", batch)
    fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    padded = {name: nn.functional.pad(value, (0, 5), value=fill[name]) for name, value in batch.items()}
    again, *_ = loss_and_gradients(make_model(kind), kind, CLUE(0.7), "on", padded)
    torch.testing.assert_close(loss, again, rtol=1e-5, atol=1e-6)


def test_a_model_that_caps_its_logits_is_not_fused():
    model = make_model("gemma2", final_logit_softcapping=30.0)
    batch = make_batch("gemma2")
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    assert "changes the logits" in why_not_fusable(model, inputs)
    assert why_not_fusable(make_model("gemma2", final_logit_softcapping=None), inputs) is None
    with pytest.raises(ValueError, match="changes the logits after its output layer"):
        TextTask(model, fused_head="on").predict(model, batch, CLUE())
    _, (error, entropy), kept = own_token_losses(model, "gemma2", batch)
    task = TextTask(model)
    loss, _ = task.predict(model, batch, CLUE(0.7)).reduce(CLUE(0.7), task.count([batch]))
    torch.testing.assert_close(loss, clue_loss(error, entropy, 0.7)[kept].mean())


def test_float16_is_not_fused():
    model = make_model("t5").half()
    assert "float16" in why_not_fusable(model, {})


def test_looking_at_the_model_leaves_it_as_it_was(kind):
    model = make_model(kind, dropout=True).train()
    frozen = next(module for module in model.modules() if isinstance(module, nn.Dropout))
    frozen.eval()
    modes = [module.training for module in model.modules()]
    head, state = model.get_output_embeddings(), torch.get_rng_state()
    inputs = make_batch(kind)
    if kind == "t5":
        inputs["decoder_input_ids"] = inputs["input_ids"]
    inputs.pop("labels")
    assert why_not_fusable(model, inputs) is None
    assert [module.training for module in model.modules()] == modes
    assert model.get_output_embeddings() is head
    assert torch.equal(torch.get_rng_state(), state)


def test_lora_fused_equals_logits():
    from peft import LoraConfig, get_peft_model

    def adapted():
        model = get_peft_model(make_model("t5"), LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, target_modules=["q", "v"]))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter)
        return model

    fused = loss_and_gradients(adapted(), "t5", CLUE(0.7), "on")
    plain = loss_and_gradients(adapted(), "t5", CLUE(0.7), "off")
    assert all("lora" in name for name in fused[2])
    assert_same(fused, plain)


def test_virtual_tokens_are_refused():
    from peft import PromptTuningConfig, get_peft_model

    model = get_peft_model(make_model("gpt2"), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with pytest.raises(ValueError, match="virtual tokens"):
        TextTask(model)


def test_missing_labels_are_named(kind):
    model, batch = make_model(kind), make_batch(kind)
    batch.pop("labels")
    with pytest.raises(ValueError, match="no `labels`"):
        TextTask(model).predict(model, batch, CLUE())


def test_prompts_are_cut_before_the_labels_and_padded_on_the_left():
    task = TextTask(make_model("gpt2"))
    inputs = {
        "input_ids": torch.tensor([[5, 6, 7, 8, 9], [3, 4, 2, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
        "labels": torch.tensor([[-100, -100, -100, 8, 9], [-100, 4, 2, -100, -100]]),
    }
    prompts = task.generation_inputs(inputs)
    assert prompts["input_ids"].tolist() == [[5, 6, 7], [0, 0, 3]]
    assert prompts["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]


def test_description_of_each_token(kind):
    model, batch = make_model(kind), make_batch(kind)
    _, (error, entropy), kept = own_token_losses(model, kind, batch)
    for fused in ("on", "off"):
        described = TextTask(model, fused_head=fused).describe(model, batch)
        torch.testing.assert_close(described[..., 0][kept], error[kept].detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(described[..., 1][kept], entropy[kept].detach(), rtol=1e-4, atol=1e-5)
        assert described[~kept].isnan().all()
        assert ((described[..., 2][kept] > 0) & (described[..., 2][kept] <= 1)).all()


@pytest.mark.parametrize("fused", ["on", "off"])
def test_a_decoder_may_have_a_vocabulary_of_its_own(fused):
    own = {"decoder_vocab_size": 80, "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    model, batch = make_model("marian", **own), make_batch("marian")
    batch["labels"] = batch["labels"].where(batch["labels"] == -100, batch["labels"] + 19)
    assert batch["labels"].max() >= VOCABULARY
    loss, *_ = loss_and_gradients(model, "marian", Plain(), fused, batch)
    torch.testing.assert_close(loss, model(**batch).loss.detach(), rtol=1e-5, atol=1e-6)
    task = TextTask(model)
    for column, token, size in (("labels", 80, 80), ("input_ids", 61, 61)):
        rows = [{"input_ids": [5], "labels": [70]}, {"input_ids": [5], "labels": [70], column: [7, token]}]
        with pytest.raises(UserError, match=f"Row 1 .* has the token {token} in '{column}', .* of {size} entries"):
            task.prepare(datasets.Dataset.from_list(rows), None, "train")
