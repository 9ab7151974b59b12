"""Masks that all rows share: right as random draws, and the same prediction of a row in every batch."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import make_batch, make_model
from models.networks import make_resnet
from models.test_tabular import inputs_for as table_inputs
from models.test_tabular import make_model as make_table_model
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    SwinConfig,
    SwinForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from clue_hf.models.mc_dropout import PackedDropout, active_dropout, add_classifier_dropout, mc_logits, mc_predict
from clue_hf.models.shared_masks import SharedMasks, random_bits
from clue_hf.models.vision import CLUEResNetForImageClassification
from clue_hf.tasks import TextTask


ROWS, PASSES, RATE = 8, 4, 0.3
SHUFFLED = [5, 2, 7, 0, 3, 6, 1, 4]
RATES = {"hidden_dropout_prob": RATE, "attention_probs_dropout_prob": RATE}
SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "num_labels": 5}


def make_bert(attention):
    config = BertConfig(**SMALL, **RATES, vocab_size=20, max_position_embeddings=32, attn_implementation=attention)
    return BertForSequenceClassification(config)


def make_vit(attention="sdpa"):
    return ViTForImageClassification(
        ViTConfig(**SMALL, **RATES, image_size=8, patch_size=4, attn_implementation=attention)
    )


def make_swin():
    """Its windows are rows of their own inside attention."""
    config = SwinConfig(image_size=16, patch_size=2, embed_dim=4, depths=[2], num_heads=[2], window_size=4,
                        num_labels=5, drop_path_rate=0.0, **RATES)  # fmt: skip
    return SwinForImageClassification(config)


def sharpened(model):
    """With a classifier that tells inputs apart from the start; that of a residual network does."""
    if not isinstance(model, CLUEResNetForImageClassification):
        nn.init.normal_(model.classifier.weight)
    return model


MODELS = {
    "bert, eager": lambda: make_bert("eager"),
    "bert, sdpa": lambda: make_bert("sdpa"),
    "vit": make_vit,
    "swin": make_swin,
    "resnet, head": lambda: make_resnet(dropout=RATE),
    "resnet, last stage": lambda: make_resnet("bottleneck", dropout=RATE, dropout_from="last_stage"),
    "resnet, all": lambda: make_resnet("preactivation", dropout=RATE, dropout_from="all"),
    "bert, head": lambda: add_classifier_dropout(
        BertForSequenceClassification(BertConfig(**SMALL, vocab_size=20, max_position_embeddings=32)), 0.5
    ),
}


def inputs_for(model, width=9):
    generator = torch.Generator().manual_seed(7)
    if model.main_input_name == "pixel_values":
        return {
            "pixel_values": torch.randn(ROWS, 3, *[getattr(model.config, "image_size", 8)] * 2, generator=generator)
        }
    lengths = torch.randint(3, width + 1, (ROWS,), generator=generator)
    mask = (torch.arange(width) < lengths[:, None]).long()
    return {"input_ids": torch.randint(1, 20, (ROWS, width), generator=generator) * mask, "attention_mask": mask}


def in_batches(predict, inputs, size, order=range(ROWS)):
    """The predictions for rows in some order, by batches of some size, in the order of the inputs."""
    order = torch.tensor(order)
    parts = [predict({name: value[rows] for name, value in inputs.items()}) for rows in order.split(size)]
    return torch.cat(parts, 1)[:, order.argsort()]


@pytest.mark.parametrize("kind", MODELS)
def test_a_row_has_the_same_prediction_in_every_batch(kind):
    torch.manual_seed(0)
    model = sharpened(MODELS[kind]()).eval()
    inputs = inputs_for(model)

    def predict(batch):
        return mc_predict(model, batch, PASSES, seed=3)

    expected = predict(inputs)
    assert (expected[0] - expected[1]).abs().max() > 1e-3
    assert (expected[:, 0] - expected[:, 1]).abs().max() > 1e-3
    for size in (1, 3, ROWS):
        for order in (range(ROWS), SHUFFLED):
            torch.testing.assert_close(in_batches(predict, inputs, size, order), expected, rtol=0, atol=1e-6)
    if "attention_mask" in inputs:
        padded = {name: F.pad(value, (0, 6)) for name, value in inputs.items()}
        torch.testing.assert_close(predict(padded), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(mc_predict(model, inputs, 2, seed=3), expected[:2], rtol=0, atol=1e-6)
    assert (mc_predict(model, inputs, PASSES, seed=4) - expected).abs().max() > 1e-3
    assert not torch.equal(mc_predict(model, inputs, PASSES), mc_predict(model, inputs, PASSES))


def test_a_row_of_a_table_has_the_same_prediction_in_every_batch():
    model = make_table_model(residual_dropout=0.2).eval()
    inputs = table_inputs(model)
    inputs = {name: value.repeat(2, 1)[:ROWS] for name, value in inputs.items()}

    def predict(batch):
        with active_dropout(model, 3), torch.no_grad():
            return mc_logits(model, batch, PASSES)

    expected = predict(inputs)
    assert (expected[0] - expected[1]).abs().max() > 1e-3
    for size in (1, 3):
        torch.testing.assert_close(
            in_batches(predict, inputs, size, [5, 2, 7, 0, 3, 6, 1, 4]), expected, rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("kind", ["t5", "bart", "gpt2", "llama"])
@pytest.mark.parametrize("fused", ["on", "off"])
def test_a_text_is_described_alike_in_every_batch(kind, fused):
    model = make_model(kind, dropout=True).eval()
    for module in model.modules():  # llama has dropout in its attention only
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = RATE
    batch = make_batch(kind)
    task = TextTask(model, fused_head=fused)

    def describe(inputs):
        with active_dropout(model, 5):
            return task.describe(model, inputs, passes=PASSES)

    expected = describe(batch)
    kept = ~expected.isnan()
    assert (expected - task.describe(model, batch))[kept].abs().max() > 1e-3
    rows, width = expected.shape[:2]
    for row in reversed(range(rows)):
        alone = describe({name: value[row : row + 1] for name, value in batch.items()})
        torch.testing.assert_close(alone, expected[row : row + 1], rtol=1e-6, atol=1e-6, equal_nan=True)
    padded = {name: F.pad(value, (0, 5), value=-100 if name == "labels" else 0) for name, value in batch.items()}
    torch.testing.assert_close(describe(padded)[:, :width], expected, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_the_masks_of_a_classifier_whose_tail_is_found_out():
    """A causal classifier takes one position after its head: the first batch finds it out by another forward."""
    from models.test_mc_logits import make_gpt2

    torch.manual_seed(0)
    model = add_classifier_dropout(make_gpt2(), 0.5).eval()
    inputs = {name: value % 20 for name, value in inputs_for(model).items()}
    first = mc_predict(model, inputs, PASSES, seed=1)
    assert not model.score.starts_tail
    assert torch.equal(mc_predict(model, inputs, PASSES, seed=1), first)


# ---- the masks as random draws ----


class Network(nn.Module):
    """Dropout of inputs, hidden features and attention, none of it linear."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(6, 6, generator=generator))
        self.dropout = nn.Dropout(RATE)

    def forward(self, hidden):
        hidden = torch.relu(self.dropout(hidden) @ self.weight)
        probability = RATE if self.training else 0.0
        hidden = F.scaled_dot_product_attention(hidden, hidden, hidden, dropout_p=probability)
        return self.dropout(hidden).sum((-2, -1))


def test_mean_and_variance_over_seeds_are_those_of_independent_draws():
    model, seeds, passes = Network().double().eval(), 100, 40
    hidden, draws = torch.randn(1, 3, 6, generator=torch.Generator().manual_seed(1)).double(), seeds * passes
    shared = []
    with torch.no_grad():
        for seed in range(seeds):
            with active_dropout(model, seed):
                shared.append(mc_logits(model, {"hidden": hidden}, passes).flatten())
        torch.manual_seed(0)
        independent = model.train()(hidden.expand(draws, -1, -1))
    by_pass = torch.stack(shared)
    assert torch.corrcoef(by_pass.T).sub(torch.eye(passes)).abs().max() < 5 / math.sqrt(seeds)
    shared = by_pass.flatten()
    error = math.sqrt((shared.var() + independent.var()) / draws)
    assert abs(shared.mean() - independent.mean()) < 4 * error
    squares = [(values - values.mean()) ** 2 for values in (shared, independent)]
    error = math.sqrt(sum(values.var() for values in squares) / draws)
    assert abs(squares[0].mean() - squares[1].mean()) < 4 * error < 0.2 * squares[1].mean()


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_the_rate_is_exact(rate):
    with SharedMasks(1):
        dropped = F.dropout(torch.ones(2, 1000, 1000), rate)
    assert torch.equal(dropped[0], dropped[1])
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - rate)], rel=2e-5 / (1 - rate))
    share = (dropped[0] == 0).double().mean().item()
    assert share == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / 1e6) + 2**-16)


def test_the_bits_are_uniform_and_independent_of_their_neighbours():
    bits = random_bits("any", (64, 128, 130), torch.device("cpu")).double()
    assert abs(bits.mean() + 0.5) < 4 * 2**16 / math.sqrt(12 * bits.numel())
    counts = torch.histc(bits, 256, -(2**15), 2**15)
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum().item()
    assert abs(chi_square - 255) < 4.5 * math.sqrt(2 * 255)
    for dim in range(3):
        for distance in (1, 2, 3, 4, 5, 8, 32):
            size = bits.shape[dim] - distance
            one, other = bits.narrow(dim, 0, size).flatten(), bits.narrow(dim, distance, size).flatten()
            correlation = torch.corrcoef(torch.stack([one, other]))[0, 1]
            assert abs(correlation) < 4.5 / math.sqrt(len(one)), (dim, distance)
    other = random_bits("other", (64, 128, 130), torch.device("cpu")).double()
    correlation = torch.corrcoef(torch.stack([bits.flatten(), other.flatten()]))[0, 1]
    assert abs(correlation) < 4.5 / math.sqrt(bits.numel())


def test_the_bits_of_a_place_do_not_depend_on_the_size():
    small, large = (random_bits("any", shape, torch.device("cpu")) for shape in ((2, 5, 7), (3, 8, 10)))
    assert torch.equal(small, large[:2, :5, :7])


def test_calls_passes_and_parts_of_a_row_have_masks_of_their_own():
    hidden = torch.ones(2 * 3 * 4, 50)
    with SharedMasks(1) as masks, masks.layout(passes=2, rows=3):
        one, other = F.dropout(hidden, 0.5).view(2, 3, 4, 50), F.dropout(hidden, 0.5).view(2, 3, 4, 50)
        whole = F.dropout(torch.ones(5, 50), 0.5)  # not made of rows
    assert torch.equal(one[:, 0], one[:, 1])
    assert len(torch.cat([one[:, 0].flatten(0, 1), other[:, 0].flatten(0, 1), whole]).unique(dim=0)) == 2 * 8 + 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_values_gradients_and_shapes(dtype):
    hidden = torch.randn(4, 3, 5, 5, dtype=dtype, requires_grad=True)
    for layer in (nn.Dropout(0.4), nn.Dropout2d(0.4), PackedDropout(0.4)):
        with SharedMasks(2):
            dropped = layer(hidden)
        hidden.grad = None
        dropped.sum().backward()
        torch.testing.assert_close(dropped, hidden * hidden.grad)
        kept = 1 / (1 - round(0.4 * 2**16) / 2**16)
        assert set(hidden.grad.unique().tolist()) == {0.0, torch.tensor(kept, dtype=dtype).item()}
        assert torch.equal(hidden.grad, hidden.grad[:1].expand_as(hidden))
        if isinstance(layer, nn.Dropout2d):
            assert torch.equal(hidden.grad, hidden.grad[:, :, :1, :1].expand_as(hidden))
        assert dropped.dtype == dtype
    with SharedMasks(2):
        changed = hidden.detach().clone()
        assert torch.equal(F.dropout(changed, 0.4, inplace=True), changed)
        assert not torch.equal(changed, hidden)
        channels_last = hidden.detach().contiguous(memory_format=torch.channels_last)
        assert F.dropout(channels_last, 0.4).is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(F.dropout(hidden, 0.0), hidden)
        assert torch.equal(F.dropout(hidden, 0.4, training=False), hidden)
        assert not F.dropout(hidden, 1.0).any()
        for shape in ((0,), (0, 4), (1,), (5,), (3, 0)):
            assert F.dropout(torch.ones(shape), 0.4).shape == shape
        with pytest.raises(ValueError, match="between 0 and 1"):
            F.dropout(hidden, 1.5)


CASES = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.7},
    "bool mask": {"attn_mask": torch.tensor([True, True, False, True, True, False, True]).expand(6, 7)},
    "nothing to attend to": {"attn_mask": (torch.arange(6) != 2)[:, None].expand(6, 7)},
    "float mask": {"attn_mask": torch.randn(3, 1, 6, 7, generator=torch.Generator().manual_seed(0))},
    "fewer heads of keys": {"enable_gqa": True},
}


@pytest.mark.parametrize("case", CASES)
def test_attention_is_that_of_torch_with_a_mask_on_its_weights(case):
    generator = torch.Generator().manual_seed(1)
    heads = 2 if case == "fewer heads of keys" else 4
    query = torch.randn(3, 4, 6, 5, generator=generator)
    key, value = (torch.randn(3, heads, 7, 5, generator=generator) for _ in range(2))
    plain = F.scaled_dot_product_attention(query, key, value, **CASES[case])
    with SharedMasks(1):
        assert torch.equal(F.scaled_dot_product_attention(query, key, value, **CASES[case]), plain)
        nearly = F.scaled_dot_product_attention(query, key, value, dropout_p=1e-9, **CASES[case])
        # with the unit vectors as values attention returns its own weights
        units = torch.eye(7).expand(3, heads, 7, 7)
        draws = [F.scaled_dot_product_attention(query, key, units, dropout_p=0.5, **CASES[case]) for _ in range(400)]
    torch.testing.assert_close(nearly, plain, rtol=1e-5, atol=1e-6)
    weights = F.scaled_dot_product_attention(query, key, units, **CASES[case])
    dropped = draws[0]
    kept, possible = dropped != 0, weights > 0
    torch.testing.assert_close(dropped[kept], 2 * weights[kept], rtol=1e-5, atol=1e-6)
    assert (possible & ~kept).sum() > 100
    assert torch.equal(kept, kept[:1] & possible)  # the same weights in all rows
    assert ((sum(draws) / 400 - weights).abs() <= 5 * weights / math.sqrt(400) + 1e-6).all()
    assert dropped.isfinite().all()
