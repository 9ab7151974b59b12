"""Several passes at once against a plain loop of passes with the same masks."""

import pytest
import torch
import torch.distributed as dist
from models.networks import make_resnet
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    ConvNextConfig,
    ConvNextForImageClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    ResNetConfig,
    ResNetForImageClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
)

from clue_hf.errors import UserError
from clue_hf.models.mc_dropout import (
    DropoutLinear,
    active_dropout,
    add_classifier_dropout,
    has_dropout,
    mc_logits,
    mc_predict,
)


ROWS, PASSES, LABELS = 4, 3, 5
IMAGES = {"image_size": 8, "num_labels": LABELS}
SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
         "num_labels": LABELS}  # fmt: skip
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WORDS = {"vocab_size": 20, "max_position_embeddings": 16, "pad_token_id": 0}


def make_vit(rate=0.0):
    rates = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
    return ViTForImageClassification(
        ViTConfig(**{**IMAGES, **SMALL, **rates}, patch_size=4, attn_implementation="eager")
    )


def make_bert(rate=0.0):
    rates = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
    return BertForSequenceClassification(BertConfig(**SMALL, **WORDS, **rates, attn_implementation="eager"))


def make_roberta():
    return RobertaForSequenceClassification(RobertaConfig(**SMALL, **WORDS, **QUIET))


def make_gpt2():
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2ForSequenceClassification(
        GPT2Config(
            n_embd=8, n_layer=1, n_head=2, vocab_size=20, n_positions=16, num_labels=LABELS, pad_token_id=0, **quiet
        )  # fmt: skip
    )


def make_convnext(drop_path=0.0):
    return ConvNextForImageClassification(
        ConvNextConfig(
            hidden_sizes=[4, 8], depths=[1, 1], num_stages=2, patch_size=2, num_labels=LABELS, drop_path_rate=drop_path
        )  # fmt: skip
    )


def make_their_resnet():
    return ResNetForImageClassification(
        ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", num_labels=LABELS)
    )


FOREIGN = {
    "vit": (make_vit, "classifier"),
    "convnext": (make_convnext, "classifier"),
    "resnet": (make_their_resnet, "classifier.1"),
    "bert": (make_bert, "classifier"),
    "roberta": (make_roberta, "classifier.out_proj"),
    "gpt2": (make_gpt2, "score"),
}


def inputs_for(model, rows=ROWS):
    generator = torch.Generator().manual_seed(7)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(rows, 3, 8, 8, generator=generator, dtype=model.dtype)}
    ids = torch.randint(1, 20, (rows, 6), generator=generator)
    mask = (torch.arange(6) < torch.tensor([6, 4, 5, 3])[:rows, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


class SameMasks:
    """Instead of F.dropout: its i-th call in pass k drops what the i-th call on all passes drops in its k-th part."""

    def __init__(self):
        self.number, self.calls = 0, 0

    def start(self, number=0):
        self.number, self.calls = number, 0

    def __call__(self, hidden, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return hidden
        together = len(hidden) // ROWS
        self.calls += 1
        masks = [self.mask(number, hidden, p) for number in (range(together) if together > 1 else [self.number])]
        return hidden * torch.cat(masks) / (1 - p)

    def mask(self, number, hidden, p):
        generator = torch.Generator().manual_seed(1000 * self.calls + number)
        return (torch.rand(ROWS, *hidden.shape[1:], generator=generator) > p).to(hidden.dtype)


@pytest.fixture
def masks(monkeypatch):
    found = SameMasks()
    monkeypatch.setattr(torch.nn.functional, "dropout", found)
    return found


def compare_with_a_loop(model, masks, wrapped=None):
    """Logits and gradients of all passes at once are those of one pass after the other."""
    caller, inputs = wrapped or model, inputs_for(model)
    weights = torch.randn(PASSES, ROWS, LABELS, dtype=model.dtype)
    results = []
    for together in (True, False):
        model.zero_grad()
        logits = []
        with active_dropout(caller):
            for number in range(1 if together else PASSES):
                masks.start(number)
                logits.append(mc_logits(caller, {**inputs, "labels": torch.zeros(ROWS)}, PASSES if together else 1))
        logits = torch.cat(logits)
        (logits * weights).sum().backward()
        results.append([logits.detach()] + [p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert results[0][0].shape == (PASSES, ROWS, LABELS)
    assert not torch.allclose(results[0][0][0], results[0][0][1], atol=1e-4)  # the passes do differ
    assert len(results[0]) == len(results[1])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def rows_seen(model, names):
    """Notes how many rows each of some layers sees."""
    seen = {name: [] for name in names}
    for name in names:
        model.get_submodule(name).register_forward_pre_hook(
            lambda module, given, name=name: seen[name].append(len(given[0]))
        )
    return seen


@pytest.mark.parametrize("block", ["basic", "bottleneck", "preactivation"])
@pytest.mark.parametrize("dropout_from", ["classifier", "last_stage", "all"])
def test_residual_networks(block, dropout_from, masks):
    model = make_resnet(block, dropout=0.4, dropout_from=dropout_from).double()
    seen = rows_seen(model, ["stem.0", "stages.0.0.conv2", "stages.2.0.conv1", "stages.2.0.conv2", "stages.2.1.conv1"])
    mc_logits(model.train(), inputs_for(model), PASSES)
    first, every, inside, last, after = (rows == [PASSES * ROWS] for rows in seen.values())
    assert not first
    assert every == inside == (dropout_from == "all") or block == "bottleneck"
    assert last == (dropout_from != "classifier") or block == "bottleneck"  # whose last convolution is the third
    assert after == (dropout_from != "classifier")
    compare_with_a_loop(model, masks)


@pytest.mark.parametrize("make", [make_vit, make_bert])
def test_a_transformer_with_dropout_everywhere(make, masks):
    model = make(0.2).double()
    name = "vit" if make is make_vit else "bert"
    seen = rows_seen(model, [f"{name}.encoder.layer.0"] if name == "bert" else ["vit.layernorm"])
    compare_with_a_loop(model, masks)
    assert seen.popitem()[1] == [PASSES * ROWS] + [ROWS] * PASSES


@pytest.mark.parametrize("kind", FOREIGN)
def test_dropout_before_the_classifier_of_any_model(kind, masks):
    make, head = FOREIGN[kind]
    model = add_classifier_dropout(make().double(), 0.5)
    assert isinstance(model.get_submodule(head), DropoutLinear)
    seen = rows_seen(model, [head])[head]
    if kind == "gpt2":  # takes one of the positions after the head: the whole network runs on all the rows
        mc_logits(model.train(), inputs_for(model), PASSES)
        assert seen == [ROWS, PASSES * ROWS]  # which is found out once
        seen.clear()
    compare_with_a_loop(model, masks)
    assert seen[0] == (PASSES * ROWS if kind == "gpt2" else ROWS)  # as they come in: they are repeated inside


def test_what_else_is_random_is_not_before_the_tail():
    model = add_classifier_dropout(make_convnext(drop_path=0.5), 0.5).train()
    seen = rows_seen(model, ["convnext.layernorm"])
    mc_logits(model, inputs_for(model), PASSES)
    assert seen["convnext.layernorm"] == [PASSES * ROWS]
    with active_dropout(model):
        model.convnext.eval()
        mc_logits(model, inputs_for(model), PASSES)
    assert seen["convnext.layernorm"][1] == ROWS


def test_adapters(masks):
    saved = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["classifier"], init_lora_weights=False)
    model = get_peft_model(add_classifier_dropout(make_vit(), 0.5), saved).double()
    seen = rows_seen(model, ["base_model.model.vit.layernorm"])
    compare_with_a_loop(model.base_model.model, masks, wrapped=model)
    assert set(seen.popitem()[1]) == {ROWS}
    on_the_head = LoraConfig(r=2, target_modules=["classifier"], init_lora_weights=False)
    model = get_peft_model(add_classifier_dropout(make_vit(), 0.5), on_the_head).double()
    compare_with_a_loop(model.base_model.model, masks, wrapped=model)


@pytest.mark.parametrize("dropout_from", ["classifier", "last_stage"])
def test_wrapped_for_several_processes(dropout_from, masks, tmp_path, monkeypatch):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = make_resnet(dropout=0.4, dropout_from=dropout_from).double()
        seen = rows_seen(model, ["stem.0"])
        wrapped = nn.parallel.DistributedDataParallel(model)
        compare_with_a_loop(model, masks, wrapped=wrapped)
        assert set(seen["stem.0"]) == {ROWS}
        monkeypatch.undo()
        inputs = inputs_for(model)
        assert torch.equal(mc_predict(wrapped, inputs, PASSES, seed=1), mc_predict(model, inputs, PASSES, seed=1))
    finally:
        dist.destroy_process_group()


def test_wrapped_for_several_devices(masks):
    model = make_resnet(dropout=0.4).double()
    seen = rows_seen(model, ["stem.0"])
    compare_with_a_loop(model, masks, wrapped=nn.DataParallel(model))  # gathers by device: the inputs are repeated
    assert seen["stem.0"][0] == PASSES * ROWS


@pytest.mark.parametrize("dropout_from", ["classifier", "last_stage", "all"])
def test_compiled(dropout_from):
    torch._dynamo.reset()
    model = make_resnet(dropout=0.4, dropout_from=dropout_from).train()
    compiled = torch.compile(model, backend="eager")
    inputs = inputs_for(model)
    for passes in (1, PASSES, 1):
        assert mc_logits(compiled, inputs, passes).shape == (passes, ROWS, LABELS)
    assert model.classifier.starts_tail
    torch.manual_seed(3)
    found = mc_logits(compiled, inputs, PASSES)
    torch.manual_seed(3)
    torch.testing.assert_close(found, mc_logits(model, inputs, PASSES))
    assert torch.equal(mc_predict(compiled, inputs, PASSES, seed=1), mc_predict(model, inputs, PASSES, seed=1))


def test_bfloat16():
    model = make_resnet(dropout=0.4, dropout_from="last_stage").train()
    with torch.autocast("cpu", torch.bfloat16):
        logits = mc_logits(model, inputs_for(model), PASSES)
    logits.float().logsumexp(-1).mean().backward()
    assert logits.dtype == torch.bfloat16
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("dropout_from", "tail"), [("last_stage", "stages.2.1.norm1"), ("all", "stages.0.0.last_norm")]
)
def test_batch_norm_takes_the_rows_of_all_passes_in_one_update(dropout_from, tail):
    model = make_resnet(dropout=0.4, dropout_from=dropout_from).train()
    norms = {name: module for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)}
    for module in norms.values():
        module.reset_running_stats()
    given = {}
    norms[tail].register_forward_pre_hook(lambda module, inputs: given.update(tail=inputs[0].detach()))
    norms["stem.1"].register_forward_pre_hook(lambda module, inputs: given.update(stem=inputs[0].detach()))
    mc_logits(model, inputs_for(model), PASSES)
    assert {module.num_batches_tracked.item() for module in norms.values()} == {1}
    assert (len(given["stem"]), len(given["tail"])) == (ROWS, PASSES * ROWS)
    for name, hidden in ((tail, given["tail"]), ("stem.1", given["stem"])):
        mean, variance = hidden.mean((0, 2, 3)), hidden.transpose(0, 1).flatten(1).var(1)
        torch.testing.assert_close(norms[name].running_mean, 0.1 * mean)
        torch.testing.assert_close(norms[name].running_var, 0.9 + 0.1 * variance)
    with active_dropout(model):
        mc_logits(model, inputs_for(model), PASSES)
    assert {module.num_batches_tracked.item() for module in norms.values()} == {1}


def test_one_pass_is_the_plain_pass():
    model = make_resnet(dropout=0.4).train()
    torch.manual_seed(5)
    expected = model(**inputs_for(model)).logits
    torch.manual_seed(5)
    assert torch.equal(mc_logits(model, inputs_for(model), 1)[0], expected)
    assert mc_logits(make_resnet(), inputs_for(model), 1).shape == (1, ROWS, LABELS)


def test_one_row():
    model = add_classifier_dropout(make_bert(), 0.5).train()
    inputs = {**inputs_for(model, 1), "position_ids": torch.arange(6)[None]}
    assert mc_logits(model, inputs, PASSES).shape == (PASSES, 1, LABELS)


def test_inputs_of_other_shapes_are_left_alone():
    model = make_bert(0.1).train()
    inputs = {"position_ids": torch.arange(6)[None], **inputs_for(model), "output_attentions": False}
    assert mc_logits(model, inputs, PASSES).shape == (PASSES, ROWS, LABELS)


def test_passes_that_would_all_be_the_same():
    with pytest.raises(UserError, match="`dropout`"):
        mc_logits(make_resnet().train(), {"pixel_values": torch.randn(2, 3, 8, 8)}, 2)
    with pytest.raises(UserError, match="active_dropout"):
        mc_logits(make_resnet(dropout=0.5).eval(), {"pixel_values": torch.randn(2, 3, 8, 8)}, 2)
    with pytest.raises(UserError, match="`dropout`"):
        mc_predict(make_resnet(), {"pixel_values": torch.randn(2, 3, 8, 8)}, 2)
    with pytest.raises(ValueError, match="`passes`"):
        mc_logits(make_resnet(dropout=0.5), {"pixel_values": torch.randn(2, 3, 8, 8)}, 0)


@pytest.mark.parametrize("dropout_from", ["classifier", "last_stage", "all"])
def test_predictions_leave_no_trace(dropout_from):
    model = make_resnet(dropout=0.4, dropout_from=dropout_from).eval()
    model.stages[1].train()
    inputs, modes = inputs_for(model), [module.training for module in model.modules()]
    state, weights = torch.get_rng_state(), {name: value.clone() for name, value in model.state_dict().items()}
    found = mc_predict(model, inputs, PASSES, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert found.shape == (PASSES, ROWS, LABELS)
    assert not found.requires_grad
    torch.testing.assert_close(found.sum(-1), torch.ones(PASSES, ROWS))
    assert torch.equal(mc_predict(model, inputs, PASSES, seed=1), found)
    assert not torch.equal(mc_predict(model, inputs, PASSES, seed=2), found)
    with pytest.raises(RuntimeError):
        mc_predict(model, {"pixel_values": torch.randn(2, 7, 8, 8)}, PASSES)
    assert model(**inputs).logits.shape == (ROWS, LABELS)  # no replicas are left behind


@pytest.mark.parametrize("kind", FOREIGN)
def test_classifier_dropout_is_saved_and_put_back(kind, tmp_path):
    make, head = FOREIGN[kind]
    model = make().eval()
    keys, expected = list(model.state_dict()), model(**inputs_for(model)).logits
    assert add_classifier_dropout(model) is model  # nothing is recorded yet
    assert not has_dropout(model)
    add_classifier_dropout(model, 0.3)
    assert has_dropout(model)
    assert not model.get_submodule(head).training
    assert list(model.state_dict()) == keys
    assert torch.equal(model(**inputs_for(model)).logits, expected)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    assert type(loaded.get_submodule(head)) is nn.Linear
    torch.testing.assert_close(loaded(**inputs_for(model)).logits, expected)
    assert add_classifier_dropout(loaded).get_submodule(head).dropout == 0.3
    assert add_classifier_dropout(loaded, 0.1).get_submodule(head).dropout == 0.1
    assert loaded.config.classifier_dropout_rate == 0.1


def test_no_classifier_to_put_dropout_before():
    with pytest.raises(UserError, match="classifier of BertModel"):
        add_classifier_dropout(BertModel(BertConfig(**SMALL, **WORDS)), 0.3)
    with pytest.raises(UserError, match="`dropout`"):
        add_classifier_dropout(make_bert(), 1.0)
