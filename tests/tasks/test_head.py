"""The fused head where the output layer is not a plain one: adapters, compiled and sharded models."""

from types import SimpleNamespace

import pytest
import torch
from helpers import CAUSAL, SENTENCES, make_batch, make_model, make_tokenizer
from peft import LoraConfig, get_peft_model
from tasks.test_text import assert_same, loss_and_gradients
from torch import nn
from torch._dynamo.testing import CompileCounter

from clue_hf import generate_with_uncertainty
from clue_hf.objectives import CLUE
from clue_hf.tasks import TextTask, head
from clue_hf.tasks.head import gathered_head, why_not_fusable


ADAPTERS = {
    "target": {"target_modules": ["lm_head"]},
    "target with others": {"target_modules": ["lm_head", "q_proj", "c_attn", "q"], "r": 3, "use_rslora": True},
    "saved": {"target_modules": ["q_proj", "c_attn", "q"], "modules_to_save": ["lm_head"]},
}


def adapted(kind, **settings):
    torch.manual_seed(0)
    model = make_model(kind, tie_word_embeddings=False)
    return get_peft_model(model, LoraConfig(init_lora_weights=False, **settings))


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
@pytest.mark.parametrize("kind", ["t5", "gpt2", "llama"])
def test_an_adapter_on_the_head_is_fused(kind, adapter):
    fused = loss_and_gradients(adapted(kind, **adapter), kind, CLUE(0.7), "on")
    plain = loss_and_gradients(adapted(kind, **adapter), kind, CLUE(0.7), "off")
    assert any("lm_head" in name for name in fused[2])
    assert_same(fused, plain)


def test_two_adapters_on_the_head_and_none():
    model = adapted("llama", **ADAPTERS["target"])
    model.add_adapter("second", LoraConfig(init_lora_weights=False, r=5, **ADAPTERS["target"]))
    model.base_model.set_adapter(["default", "second"])
    assert_same(*(loss_and_gradients(model, "llama", CLUE(0.7), way) for way in ("on", "off")))
    with model.disable_adapter():
        losses = [TextTask(model, fused_head=way).describe(model, make_batch("llama")) for way in ("on", "off")]
    torch.testing.assert_close(*losses, equal_nan=True)


def test_dropout_of_an_adapter_is_active_in_training():
    model = adapted("gpt2", lora_dropout=0.5, **ADAPTERS["target"])
    losses = {float(loss_and_gradients(model.train(), "gpt2", CLUE(0.7), "on")[0]) for _ in range(3)}
    assert len(losses) == 3


def test_other_adapters_on_the_head_are_not_fused():
    model = adapted("gpt2", use_dora=True, **ADAPTERS["target"])
    assert "wrapped" in why_not_fusable(model, make_batch("gpt2"))


@pytest.mark.parametrize("adapter", [ADAPTERS["target"], ADAPTERS["saved"]], ids=["target", "saved"])
@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_texts_of_an_adapted_head_are_those_of_generate(kind, adapter):
    model, tokenizer = adapted(kind, **adapter).eval(), make_tokenizer(end_every_text=kind not in CAUSAL)
    outputs = generate_with_uncertainty(model, tokenizer, SENTENCES, ["mc_sequence_entropy"], max_new_tokens=6)
    for source, output in zip(SENTENCES, outputs, strict=True):
        ids = tokenizer(source, return_tensors="pt")["input_ids"]
        expected = model.generate(input_ids=ids, max_new_tokens=6, do_sample=False)[0]
        expected = expected[ids.shape[1] :] if kind in CAUSAL else expected[1:]
        assert output.tokens == tokenizer.convert_ids_to_tokens(expected.tolist())[: len(output.tokens)]


def test_a_compiled_model_is_fused_and_compiled_once():
    model, batch, objective = make_model("llama"), make_batch("llama"), CLUE(0.7)
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter)
    task = TextTask(compiled, fused_head="on")
    losses, frames = [], []
    for _ in range(3):
        loss, _ = task.predict(compiled, batch, objective).reduce(objective, task.count([batch]))
        loss.backward()
        losses.append(float(loss.detach()))
        frames.append(counter.frame_count)
    assert frames[0] == frames[-1] > 0
    assert losses == pytest.approx([float(loss_and_gradients(model, "llama", objective, "off")[0])] * 3, rel=1e-5)


class Gathered:
    """What DeepSpeed's context does on one process: the whole parameters inside, nothing of them outside."""

    entered = 0

    def __init__(self, parameters):
        self.parameters = parameters

    def __enter__(self):
        Gathered.entered += 1
        for parameter in self.parameters:
            parameter.data = parameter.ds_tensor.view(parameter.ds_shape)

    def __exit__(self, *_):
        for parameter in self.parameters:
            parameter.data = torch.empty(0)


@pytest.fixture
def partitioned(monkeypatch):
    """A model whose output weight is as ZeRO 3 leaves it between forwards; DeepSpeed itself needs a GPU."""
    deepspeed = SimpleNamespace(zero=SimpleNamespace(GatheredParameters=Gathered))
    monkeypatch.setattr(head, "import_module", {"deepspeed": deepspeed}.__getitem__)
    model = adapted("llama", **ADAPTERS["target"])
    for weight in model.get_output_embeddings().parameters():
        weight.ds_id, weight.ds_shape, weight.ds_tensor = 0, weight.shape, weight.data.clone().flatten()
        weight.data = torch.empty(0)
    return model


def test_a_head_that_zero_3_partitions_is_gathered_for_the_loss(partitioned):
    Gathered.entered = 0
    with torch.no_grad(), gathered_head(partitioned) as whole:
        assert whole.weight.shape == whole.weight.ds_shape
    assert whole.weight.numel() == 0
    batch, objective = make_batch("llama"), CLUE(0.7)
    task = TextTask(partitioned, fused_head="on")
    loss, _ = task.predict(partitioned, batch, objective).reduce(objective, task.count([batch]))
    before = Gathered.entered
    loss.backward()
    assert Gathered.entered == before == 3  # here, to find out, and for the loss
    expected = loss_and_gradients(adapted("llama", **ADAPTERS["target"]), "llama", objective, "off")
    torch.testing.assert_close(loss.detach(), expected[0])
    gradients = {name: weight.grad for name, weight in partitioned.named_parameters() if weight.grad is not None}
    torch.testing.assert_close(gradients, expected[2], rtol=1e-4, atol=1e-6)


def test_hooks_of_a_user_on_the_head_are_respected():
    model = make_model("llama")
    model.lm_head.register_forward_hook(lambda module, arguments, output: output)
    assert "hooks" in why_not_fusable(model, make_batch("llama"))
    assert isinstance(model.lm_head, nn.Linear)
