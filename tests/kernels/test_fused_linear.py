import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clue_hf.functional import ROW_STATISTICS, clue_loss, error_and_entropy, row_statistics
from clue_hf.kernels import fused_linear_objective, linear_statistics
from clue_hf.objectives import DFT, EAFT, Brier, LabelSmoothing, MaxSup


def all_statistics(e, u, sum_squared_probability, max_log_probability, mean_log_probability):
    """No term is linear in one statistic alone, so that none of their derivatives is a constant."""
    return e * u * sum_squared_probability + max_log_probability * mean_log_probability * e + mean_log_probability**2


all_statistics.row_statistics = ROW_STATISTICS


def item_loss(objective):
    """What the kernel is handed, with the statistics that it is to compute."""

    def loss(*items, **statistics):
        return objective.item_loss(*items, **statistics)

    loss.row_statistics = objective.row_statistics
    return loss


OBJECTIVES = {
    "ce": lambda e, u: e,
    "clue both": lambda e, u: clue_loss(e, u, 0.7),
    "clue uncertainty": lambda e, u: clue_loss(e, u, 0.7, "uncertainty"),
    "clue error": lambda e, u: clue_loss(e, u, 0.7, "error"),
    "ce + entropy": lambda e, u: e + u,
    "focal": lambda e, u: (1 - (-e).exp()) ** 2 * e,
    "brier": item_loss(Brier()),
    "eaft": item_loss(EAFT()),
    "dft": item_loss(DFT()),
    "maxsup": item_loss(MaxSup(0.3)),
    "label smoothing": item_loss(LabelSmoothing(0.2)),
    "all statistics": all_statistics,
}


def fused(hidden, weight, labels, objective, **options):
    names = getattr(objective, "row_statistics", ())
    return fused_linear_objective(hidden, weight, labels, objective, row_statistics=names, **options)


def make_problem(rows=11, features=5, vocabulary=7, dtype=torch.float64, bias=True, ignored=(2, 7)):
    hidden = torch.randn(rows, features, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocabulary, features, dtype=dtype, requires_grad=True)
    shift = torch.randn(vocabulary, dtype=dtype, requires_grad=True) if bias else None
    labels = torch.randint(0, vocabulary, (rows,))
    labels[list(ignored)] = -100
    return hidden, weight, shift, labels


def plain(hidden, weight, bias, labels, objective, num_items=None):
    """The same loss by autograd on the logits."""
    kept = labels != -100
    logits = torch.nn.functional.linear(hidden, weight, bias)[kept]
    more = row_statistics(logits, getattr(objective, "row_statistics", ()))
    losses = objective(*error_and_entropy(logits, labels[kept]), **more)
    return losses.sum() / (num_items or max(int(kept.sum()), 1))


def relative(found, expected):
    return ((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12)).item()


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("chunk_size", [1, 3, 64])
@pytest.mark.parametrize("bias", [True, False])
def test_value_and_gradients_equal_float64_autograd(name, chunk_size, bias):
    *inputs, labels = make_problem(bias=bias)
    leaves = [leaf for leaf in inputs if leaf is not None]
    expected = plain(*inputs, labels, OBJECTIVES[name])
    found = fused(*inputs[:2], labels, OBJECTIVES[name], bias=inputs[2], chunk_size=chunk_size)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["ce", "clue both", "ce + entropy", "focal", "brier", "maxsup", "all statistics"])
def test_gradcheck(name):
    *inputs, labels = make_problem(rows=6, vocabulary=5, ignored=(1,))

    def loss(hidden, weight, bias):
        return fused(hidden, weight, labels, OBJECTIVES[name], bias=bias, chunk_size=2)

    assert torch.autograd.gradcheck(loss, inputs)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), st.integers(1, 40), st.integers(1, 12), st.floats(0, 1), st.integers(0, 2**20))
def test_any_shape_any_chunk_any_alpha(rows, vocabulary, chunk_size, alpha, seed):
    torch.manual_seed(seed)
    hidden, weight, bias, labels = make_problem(rows, 4, vocabulary, ignored=[])
    labels[torch.rand(rows) < 0.3] = -100

    def objective(error, uncertainty, **statistics):
        return clue_loss(error, uncertainty, alpha) + (1 - alpha) * all_statistics(error, uncertainty, **statistics)

    objective.row_statistics = ROW_STATISTICS
    expected = plain(hidden, weight, bias, labels, objective)
    found = fused(hidden, weight, labels, objective, bias=bias, chunk_size=chunk_size)
    torch.testing.assert_close(found, expected)
    leaves = (hidden, weight, bias)
    torch.testing.assert_close(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves))


def test_float32_gradients_agree_to_1e_5():
    hidden, weight, bias, labels = make_problem(300, 32, 1000, torch.float32)
    for objective in OBJECTIVES.values():
        doubles = [leaf.detach().double().requires_grad_() for leaf in (hidden, weight, bias)]
        expected = torch.autograd.grad(plain(*doubles, labels, objective), doubles)
        loss = fused(hidden, weight, labels, objective, bias=bias, chunk_size=64)
        found = torch.autograd.grad(loss, (hidden, weight, bias))
        assert max(relative(ours.double(), theirs) for ours, theirs in zip(found, expected, strict=True)) < 1e-5


@pytest.mark.parametrize("name", ["clue both", "brier", "eaft", "dft", "maxsup", "label smoothing"])
@pytest.mark.parametrize("autocast", [True, False])
def test_bfloat16_gradients_agree_to_2e_2(autocast, name):
    dtype = torch.float32 if autocast else torch.bfloat16
    hidden, weight, _, labels = make_problem(300, 32, 1000, bias=False)
    hidden, weight = (leaf.detach().mul(0.3).to(dtype).requires_grad_() for leaf in (hidden, weight))
    doubles = [leaf.detach().double().requires_grad_() for leaf in (hidden, weight)]
    largest, second = (doubles[0] @ doubles[1].t()).topk(2).values.unbind(-1)
    labels[largest - second < 0.03] = -100  # bfloat16 may take another one for the largest
    assert (labels != -100).sum() > 200
    expected = torch.autograd.grad(plain(*doubles, None, labels, OBJECTIVES[name]), doubles)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = fused(hidden, weight, labels, OBJECTIVES[name], chunk_size=64)
    found = torch.autograd.grad(loss, (hidden, weight))
    assert loss.dtype == torch.float32
    assert [gradient.dtype for gradient in found] == [dtype, dtype]
    norms = [
        ((ours.double() - theirs).norm() / theirs.norm()).item() for ours, theirs in zip(found, expected, strict=True)
    ]
    assert max(norms) < 2e-2


def test_unequal_upstream_gradients_and_another_denominator():
    """The loss is one term of a sum with its own factor, as under gradient accumulation."""
    *inputs, labels = make_problem()
    factor = torch.tensor(0.37, dtype=torch.float64)
    expected = torch.autograd.grad(factor * plain(*inputs, labels, OBJECTIVES["clue both"], num_items=50), inputs)
    loss = fused_linear_objective(*inputs[:2], labels, OBJECTIVES["clue both"], bias=inputs[2], num_items=50)
    torch.testing.assert_close(torch.autograd.grad(factor * loss, inputs), expected)


def test_frozen_weight_gets_no_gradient():
    hidden, weight, bias, labels = make_problem()
    weight.requires_grad_(False)
    bias.requires_grad_(False)
    loss = fused_linear_objective(hidden, weight, labels, OBJECTIVES["clue both"], bias=bias)
    expected = plain(hidden, weight, bias, labels, OBJECTIVES["clue both"])
    torch.testing.assert_close(torch.autograd.grad(loss, hidden), torch.autograd.grad(expected, hidden))
    assert weight.grad is None


def test_tied_weight_adds_up_both_uses():
    weight = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    tokens, labels = torch.randint(0, 7, (6,)), torch.randint(0, 7, (6,))
    found = fused_linear_objective(weight[tokens].tanh(), weight, labels, OBJECTIVES["clue both"], chunk_size=4)
    expected = plain(weight[tokens].tanh(), weight, None, labels, OBJECTIVES["clue both"])
    torch.testing.assert_close(torch.autograd.grad(found, weight), torch.autograd.grad(expected, weight))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_all_ignored_gives_zero_and_zero_gradients(name):
    hidden, weight, bias, _ = make_problem()
    loss = fused(hidden, weight, torch.full((11,), -100), OBJECTIVES[name], bias=bias)
    loss.backward()
    assert loss.item() == 0
    assert all((leaf.grad == 0).all() for leaf in (hidden, weight, bias))


def test_segments_are_never_split():
    hidden, weight, bias, labels = make_problem(20, ignored=(3, 4, 19))
    segments = torch.tensor([0] * 5 + [1] * 1 + [3] * 9 + [4] * 5)
    seen = []

    def objective(error, uncertainty, segment):
        seen.append(segment.tolist())
        gaps = [(error[segment == s].mean() - uncertainty[segment == s].mean()) ** 2 for s in segment.unique()]
        return torch.stack(gaps)

    found = fused_linear_objective(
        hidden, weight, labels, objective, bias=bias, segments=segments, num_items=4, chunk_size=6
    )
    assert [sorted(set(chunk)) for chunk in seen] == [[0, 1], [3], [4]]
    kept = labels != -100
    error, entropy = error_and_entropy(torch.nn.functional.linear(hidden, weight, bias)[kept], labels[kept])
    expected = objective(error, entropy, segments[kept]).sum() / 4
    leaves = (hidden, weight, bias)
    torch.testing.assert_close(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves))


def test_stats_and_items():
    *inputs, labels = make_problem()
    loss, stats, error, uncertainty = fused_linear_objective(
        *inputs[:2], labels, OBJECTIVES["ce"], bias=inputs[2], return_stats=True, return_items=True
    )
    kept = labels != -100
    expected = [v[kept] for v in error_and_entropy(torch.nn.functional.linear(*inputs), labels)]
    torch.testing.assert_close([error, uncertainty], [v.detach() for v in expected])
    sums = torch.stack([error.sum(), uncertainty.sum(), ((error - uncertainty) ** 2).sum()])
    torch.testing.assert_close(stats, sums)
    assert not any(values.requires_grad for values in (stats, error, uncertainty))
    assert loss.item() == pytest.approx(error.mean().item())


def test_statistics_of_the_rows():
    *inputs, labels = make_problem()
    loss, error, uncertainty, *found = fused(
        *inputs[:2], labels, all_statistics, bias=inputs[2], chunk_size=3, return_items=True
    )
    probability = torch.nn.functional.linear(*inputs).softmax(-1)[labels != -100].detach()
    expected = [(probability**2).sum(-1), probability.amax(-1).log(), probability.log().mean(-1)]
    torch.testing.assert_close(found, expected)
    assert loss.item() == pytest.approx(all_statistics(error, uncertainty, *found).mean().item())
    with pytest.raises(ValueError, match="`row_statistics` must be one of sum_squared_probability"):
        fused_linear_objective(*inputs[:2], labels, all_statistics, row_statistics=["variance"])


def test_statistics_of_segments():
    hidden, weight, bias, labels = make_problem(20, ignored=(3, 4, 19))
    segments = torch.tensor([0] * 5 + [1] * 15)

    def objective(error, uncertainty, segment, max_log_probability):
        return torch.stack([(error + max_log_probability)[segment == s].mean() ** 2 for s in segment.unique()])

    found = fused_linear_objective(
        hidden, weight, labels, objective, bias=bias, segments=segments, num_items=2, chunk_size=6,
        row_statistics=["max_log_probability"],
    )  # fmt: skip
    kept = labels != -100
    logits = torch.nn.functional.linear(hidden, weight, bias)[kept]
    more = row_statistics(logits, ["max_log_probability"])
    expected = objective(*error_and_entropy(logits, labels[kept]), segments[kept], **more).sum() / 2
    leaves = (hidden, weight, bias)
    torch.testing.assert_close(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves))


@pytest.mark.parametrize("name", ["clue both", "all statistics"])
def test_no_gradient_is_computed_where_none_is_wanted(name):
    *inputs, labels = make_problem()
    with torch.no_grad():
        loss = fused(*inputs[:2], labels, OBJECTIVES[name], bias=inputs[2])
    assert not loss.requires_grad
    torch.testing.assert_close(loss, plain(*inputs, labels, OBJECTIVES[name]).detach())


def test_a_second_backward_gives_the_same_gradients():
    *inputs, labels = make_problem()
    loss = fused_linear_objective(*inputs[:2], labels, OBJECTIVES["clue both"], bias=inputs[2])
    first = torch.autograd.grad(3 * loss, inputs, retain_graph=True)
    second = torch.autograd.grad(loss, inputs)
    torch.testing.assert_close(first, tuple(3 * gradient for gradient in second))


@pytest.mark.parametrize("name", ["clue both", "brier", "eaft", "dft"])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_extreme_logits_stay_finite(scale, name):
    hidden = (scale * torch.randn(6, 4)).requires_grad_()
    weight = torch.randn(9, 4, requires_grad=True)
    bias = torch.tensor([0.0] * 8 + [-math.inf])
    loss, error, entropy, *_ = fused(hidden, weight, torch.arange(6), OBJECTIVES[name], bias=bias, return_items=True)
    loss.backward()
    assert hidden.grad.isfinite().all()
    assert weight.grad.isfinite().all()
    assert entropy.min() >= 0
    assert entropy.max() <= math.log(8) + 1e-5
    assert error.isfinite().all()


@pytest.mark.parametrize("name", ["maxsup", "label smoothing"])
def test_a_mean_over_a_token_that_is_excluded_is_infinite_here_and_there(name):
    hidden, weight, _, labels = make_problem()
    bias = torch.tensor([0.0] * 6 + [-math.inf], dtype=torch.float64)
    labels[labels == 6] = 0
    found = fused(hidden, weight, labels, OBJECTIVES[name], bias=bias)
    expected = plain(hidden, weight, bias, labels, OBJECTIVES[name])
    assert found.item() == expected.item() == math.inf
    leaves = (hidden, weight)
    torch.testing.assert_close(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves))


@pytest.mark.parametrize("label", [-1, 7])
def test_a_label_outside_the_vocabulary_is_named(label):
    hidden, weight, bias, labels = make_problem()
    labels[0] = label
    with pytest.raises(ValueError, match=f"Label {label} is outside the vocabulary of 7"):
        fused_linear_objective(hidden, weight, labels, OBJECTIVES["ce"], bias=bias)


def test_linear_statistics_against_softmax():
    hidden, weight, bias, labels = make_problem(ignored=[])
    found = linear_statistics(hidden, weight, labels, bias=bias, chunk_size=4)
    probability = torch.nn.functional.linear(hidden, weight, bias).softmax(-1).detach()
    error, entropy = error_and_entropy(probability.log(), labels)
    torch.testing.assert_close(found.error, error)
    torch.testing.assert_close(found.entropy, entropy)
    torch.testing.assert_close(found.confidence, probability.amax(-1))
    assert (found.correct == (probability.argmax(-1) == labels)).all()
    assert len(linear_statistics(hidden[:0], weight, labels[:0]).error) == 0
