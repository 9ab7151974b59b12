import math

import pytest
import torch
from helpers import SENTENCES, make_batch, make_model, make_tokenizer
from torch import nn

from clue_hf import generate_with_uncertainty
from clue_hf.models.mc_dropout import PackedDropout, active_dropout, has_dropout
from clue_hf.tasks import TextTask


def with_dropout(kind):
    """A model of the helpers, with a fifth of everything dropped in training."""
    model = make_model(kind)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.2
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.2
    return model


def test_what_has_dropout():
    assert has_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))
    assert not has_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)))
    attention = nn.Linear(2, 2)
    attention.attention_dropout = 0.1
    assert has_dropout(attention)
    with pytest.raises(ValueError, match="no dropout"), active_dropout(nn.Linear(2, 2)):
        pass


def test_only_dropout_is_active_and_everything_comes_back():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
    model.eval()[3].train()
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    statistics = model[1].running_mean.clone()
    with active_dropout(model, seed=1):
        assert model[2].training
        assert not model[1].training
        first = model(torch.ones(3, 4))
    with pytest.raises(RuntimeError), active_dropout(model, seed=1):
        model(torch.ones(3, 5))  # the wrong width
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model[1].running_mean, statistics)
    with active_dropout(model, seed=1):
        assert torch.equal(model(torch.ones(3, 4)), first)
    with active_dropout(model, seed=2):
        assert not torch.equal(model(torch.ones(3, 4)), first)


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
@pytest.mark.parametrize("fused", ["on", "off"])
def test_the_mean_distribution_by_hand(kind, fused):
    model, batch = with_dropout(kind).eval(), make_batch(kind)
    task = TextTask(model, fused_head=fused)
    task.describe(model, batch)  # whether the head can be fused is found out once, by another pass
    with active_dropout(model, seed=3):
        found = task.describe(model, batch, passes=4)
    probabilities = 0
    inputs, labels = task.split_labels(model, batch)
    with active_dropout(model, seed=3), torch.no_grad():
        for _ in range(4):
            probabilities = probabilities + task.logits(model, inputs, labels).double().softmax(-1) / 4
    kept = labels != -100
    expected = -probabilities.log().gather(1, labels[kept].unsqueeze(1)).squeeze(1)
    entropy = -(probabilities * probabilities.log()).sum(-1)
    torch.testing.assert_close(found[kept][:, 0].double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[kept][:, 1].double(), entropy, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[kept][:, 2].double(), probabilities.max(-1).values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_scores_under_dropout(kind):
    model, tokenizer = with_dropout(kind), make_tokenizer(end_every_text=kind == "t5")
    names = ["msp", "mean_token_entropy", "pmi", "mc_sequence_entropy"]

    def run(**settings):
        return generate_with_uncertainty(
            model, tokenizer, SENTENCES, names, max_new_tokens=5, num_samples=2, **settings
        )

    plain, dropped, again, other = run(), run(mc_samples=8), run(mc_samples=8), run(mc_samples=8, seed=1)
    assert [output.text for output in plain] == [output.text for output in dropped]
    assert [output.scores for output in dropped] == [output.scores for output in again]
    for name in names[:3]:
        values = [[output.scores[name] for output in found] for found in (plain, dropped, other)]
        assert values[0] != values[1] != values[2]
        assert all(map(math.isfinite, values[1]))
    # samples are drawn from, and judged by, the model without dropout
    assert [o.scores["mc_sequence_entropy"] for o in plain] == [o.scores["mc_sequence_entropy"] for o in dropped]


def test_a_model_without_dropout_is_an_error():
    with pytest.raises(ValueError, match="leave mc_samples at 0"):
        generate_with_uncertainty(make_model("t5"), make_tokenizer(), SENTENCES, max_new_tokens=3, mc_samples=2)


# ---- masks from packed bits ----


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_packed_masks_have_the_rate_and_keep_the_mean(rate):
    torch.manual_seed(0)
    found = PackedDropout(rate).train()(torch.ones(1000, 1000))
    kept = (found > 0).double().mean().item()
    assert kept == pytest.approx(1 - rate, abs=4 * math.sqrt(rate * (1 - rate) / 1e6) + 2**-16)
    assert found.double().mean().item() == pytest.approx(1, abs=0.01)
    assert len(found.unique()) == 2


def test_packed_masks_are_independent_between_neighbours():
    """Four elements share a random number: its parts must not know of each other."""
    torch.manual_seed(0)
    found = (PackedDropout(0.3).train()(torch.ones(250_000, 4)) > 0).double()
    correlations = torch.corrcoef(torch.cat([found[:-1], found[1:]], 1).T) - torch.eye(8, dtype=torch.double)
    assert correlations.abs().max() < 5 / math.sqrt(250_000)


def test_packed_dropout_in_evaluation_at_other_sizes_and_in_gradients():
    layer, hidden = PackedDropout(0.4), torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    assert layer.eval()(hidden) is hidden
    layer.train()
    for shape in ((0,), (1,), (5,), (2, 3, 3)):
        assert layer(torch.ones(shape)).shape == shape
    torch.manual_seed(3)
    found = layer(hidden)
    found.sum().backward()
    kept = found != 0
    torch.testing.assert_close(hidden.grad, torch.where(kept, 1 / (1 - round(0.4 * 2**16) / 2**16), 0.0).double())
    torch.manual_seed(3)
    assert torch.equal(layer(hidden), found)
    assert layer(torch.ones(4, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
