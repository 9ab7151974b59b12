"""Objectives of tokens and classes that need more than error and entropy, or stop a gradient: closed forms."""

import math

import pytest
import torch
import torch.nn.functional as F

from clue_hf import CLUEConfig
from clue_hf.errors import UserError
from clue_hf.functional import error_and_entropy, row_statistics
from clue_hf.objectives import DFT, EAFT, OBJECTIVES, Brier, LabelSmoothing, MaxSup, Plain, check_suits
from clue_hf.tasks.base import Prediction


@pytest.fixture
def problem():
    """Logits of 6 items over 5 classes in float64, and their labels: the first two are the most likely classes."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(6, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 5, (6,), generator=generator)
    labels[:2] = logits[:2].argmax(-1)
    return logits.requires_grad_(), labels


def item_losses(objective, logits, labels):
    more = row_statistics(logits, objective.row_statistics)
    return objective.item_loss(*error_and_entropy(logits, labels), **more)


def test_brier_is_the_squared_distance_to_the_target(problem):
    logits, labels = problem
    expected = ((logits.softmax(-1) - F.one_hot(labels, 5)) ** 2).sum(-1)
    torch.testing.assert_close(item_losses(Brier(), logits, labels), expected)


def test_label_smoothing_is_torchs(problem):
    logits, labels = problem
    expected = F.cross_entropy(logits, labels, label_smoothing=0.2, reduction="none")
    torch.testing.assert_close(item_losses(LabelSmoothing(0.2), logits, labels), expected)


def test_maxsup_is_label_smoothing_with_the_largest_logit_in_place_of_the_targets(problem):
    logits, labels = problem
    expected = F.cross_entropy(logits, labels, reduction="none") + 0.3 * (logits.amax(-1) - logits.mean(-1))
    found = item_losses(MaxSup(0.3), logits, labels)
    torch.testing.assert_close(found, expected)
    smoothed = item_losses(LabelSmoothing(0.3), logits, labels)
    right = logits.argmax(-1) == labels
    assert 0 < right.sum() < len(labels)
    torch.testing.assert_close(found[right], smoothed[right])
    assert (found > smoothed)[~right].all()


def test_the_gradient_of_dft_is_that_of_the_probability(problem):
    logits, labels = problem
    probability = logits.softmax(-1).gather(1, labels.unsqueeze(1)).squeeze(1)
    losses = item_losses(DFT(), logits, labels)
    torch.testing.assert_close(losses, -probability * probability.log())
    [found] = torch.autograd.grad(losses.sum(), logits)
    [expected] = torch.autograd.grad(-probability.sum(), logits)
    torch.testing.assert_close(found, expected)


def test_eaft_weighs_the_gradient_by_the_normalised_entropy(problem):
    logits, labels = problem
    probability = logits.softmax(-1).detach()
    weight = -(probability * probability.log()).sum(-1) / math.log(20)
    losses = item_losses(EAFT(), logits, labels)
    torch.testing.assert_close(losses, weight * F.cross_entropy(logits, labels, reduction="none"))
    [found] = torch.autograd.grad(losses.sum(), logits)
    torch.testing.assert_close(found, weight.unsqueeze(1) * (probability - F.one_hot(labels, 5)))


def test_eaft_is_its_authors_where_20_tokens_hold_the_probability():
    """Theirs: the entropy of the 20 largest logits, renormalised, divided by 3."""
    logits = torch.full((3, 100), -60.0, dtype=torch.float64)
    logits[:, :20] = torch.randn(3, 20, dtype=torch.float64)
    logits[2, :20] = 0  # all 20 alike: the largest weight
    labels = torch.arange(3)
    top = logits.topk(20).values.log_softmax(-1)
    theirs = -(top.exp() * top).sum(-1) / 3 * F.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(item_losses(EAFT(), logits, labels), theirs, rtol=2e-3, atol=0)
    flat = torch.zeros(1, 1000, dtype=torch.float64)  # the weight is cut at 1
    assert item_losses(EAFT(), flat, torch.tensor([5])).item() == pytest.approx(math.log(1000))


@pytest.mark.parametrize(("objective", "is_proper"), [(Brier(), True), (EAFT(), True), (DFT(), False)])
def test_whether_the_true_distribution_is_a_stationary_point(objective, is_proper):
    truth = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    logits = truth.log().expand(4, 4).clone().requires_grad_()
    losses = item_losses(objective, logits, torch.arange(4))
    [gradient] = torch.autograd.grad((truth * losses).sum(), logits)
    assert (gradient.sum(0).abs().max() < 1e-12) == is_proper


def test_statistics_in_half_precision_are_computed_in_float32(problem):
    logits, labels = problem
    half = logits.detach().to(torch.bfloat16)
    for objective in (Brier(), MaxSup(), LabelSmoothing()):
        found = item_losses(objective, half, labels)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, item_losses(objective, half.double(), labels).float())


@pytest.mark.parametrize("objective", [Brier(), EAFT(), DFT(), MaxSup(0.3), LabelSmoothing(0.2)])
def test_a_prediction_hands_the_statistics_over(problem, objective):
    logits, labels = problem
    error, entropy = error_and_entropy(logits, labels)
    prediction = Prediction(error, entropy, torch.arange(6), 6, labels, logits)
    loss, rows = prediction.reduce(objective, torch.tensor([6, 6]))
    expected = item_losses(objective, logits, labels)
    torch.testing.assert_close(loss, expected.mean())
    torch.testing.assert_close(rows[:, 0], expected.detach())


def test_settings_and_what_they_mean_at_zero(problem, tmp_path):
    def built(name, **settings):
        return OBJECTIVES[name].from_config(CLUEConfig(str(tmp_path), use_cpu=True, objective=name, **settings))

    assert built("maxsup") == MaxSup(0.1)
    assert built("maxsup", maxsup_weight=0.4) == MaxSup(0.4)
    torch.testing.assert_close(item_losses(MaxSup(0.0), *problem), item_losses(Plain(), *problem))
    torch.testing.assert_close(item_losses(LabelSmoothing(0.0), *problem), item_losses(Plain(), *problem))
    with pytest.raises(UserError, match="maxsup_weight"):
        built("maxsup", maxsup_weight=-0.1)


@pytest.mark.parametrize("objective", ["eaft", "dft", "brier", "maxsup", "label_smoothing"])
@pytest.mark.parametrize("task", ["seq2seq", "causal", "classification", "regression"])
def test_what_is_for_which_task(objective, task):
    is_suitable = task in ("seq2seq", "causal") or (task == "classification" and objective not in ("eaft", "dft"))
    if is_suitable:
        check_suits(objective, task)
    else:
        with pytest.raises(UserError, match=f"{objective!r} is not for {task}"):
            check_suits(objective, task)
