"""Temperatures of tokens against float64 autograd, scipy and known truths."""

import math

import pytest
import torch
from scipy.optimize import minimize_scalar

from clue_hf.deploy.token_calibration import _choose, _fit, _measure
from clue_hf.kernels import linear_statistics
from clue_hf.posthoc.token_temperature import (
    HeldOutTokens,
    TemperatureHead,
    TokenCurves,
    TokenTemperature,
)


def make_tokens(count=4000, features=8, vocabulary=60, log_temperature=lambda hidden: 0.3 * hidden[:, 0] + 0.2):
    """Labels drawn from the logits divided by a known temperature."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(count, features, generator=generator)
    weight, bias = (torch.randn(*size, generator=generator) for size in ((vocabulary, features), (vocabulary,)))
    truth = log_temperature(hidden).exp()
    probabilities = ((hidden @ weight.T + bias) / truth.unsqueeze(1)).softmax(-1)
    labels = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
    return HeldOutTokens(hidden, labels, torch.arange(count) // 10, weight, bias), truth


def fit_both(tokens, **options):
    curves = TokenCurves.of(tokens)
    single = TokenTemperature.fit(curves)
    return single, TemperatureHead.fit(tokens, curves, single, **options)


def test_error_entropy_and_their_derivatives_are_those_of_autograd():
    tokens, _ = make_tokens(300)
    log_temperature = torch.linspace(-1.99, 1.99, 300, dtype=torch.float64, requires_grad=True)
    logits = (tokens.hidden @ tokens.weight.T + tokens.bias).double() / log_temperature.exp().unsqueeze(1)
    log_probability = logits.log_softmax(-1)
    error = -log_probability.gather(1, tokens.labels.unsqueeze(1)).squeeze(1)
    entropy = -(log_probability.exp() * log_probability).sum(-1)
    interpolated = log_temperature.detach().float().requires_grad_()
    for ours, theirs in zip(TokenCurves.of(tokens).at(interpolated), (error, entropy), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=2e-4)
        [slope] = torch.autograd.grad(ours.sum(), interpolated, retain_graph=True)
        [expected] = torch.autograd.grad(theirs.sum(), log_temperature, retain_graph=True)
        torch.testing.assert_close(slope.double(), expected, rtol=1e-2, atol=5e-3)


def test_curves_do_not_depend_on_how_the_tokens_are_chunked(monkeypatch):
    tokens, _ = make_tokens(700)
    whole = TokenCurves.of(tokens)
    monkeypatch.setattr("clue_hf.kernels.fused_linear.BLOCK_ELEMENTS", 600)
    for one, other in zip(vars(whole).values(), vars(TokenCurves.of(tokens)).values(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_one_temperature_is_that_of_scipy_and_near_the_truth(temperature):
    tokens, _ = make_tokens(log_temperature=lambda hidden: torch.full((len(hidden),), math.log(temperature)))
    fitted = TokenTemperature.fit(TokenCurves.of(tokens))

    def error(log_temperature):
        calibrator = TokenTemperature(math.exp(log_temperature))
        return linear_statistics(
            tokens.hidden, tokens.weight, tokens.labels, bias=tokens.bias, temperature=calibrator
        ).error.double().mean().item()  # fmt: skip

    best = minimize_scalar(error, bounds=(-2, 2), method="bounded", options={"xatol": 1e-5})
    assert math.log(fitted.temperature) == pytest.approx(best.x, abs=2e-3)
    assert fitted.temperature == pytest.approx(temperature, rel=0.1)


def test_a_head_finds_the_temperature_of_each_token():
    tokens, truth = make_tokens(12000)
    single, head = fit_both(tokens)
    logits = tokens.hidden @ tokens.weight.T + tokens.bias
    errors = [
        (calibrator(tokens.hidden, logits) / truth).log().square().mean().sqrt() for calibrator in (single, head)
    ]
    assert errors[1] < 0.4 * errors[0]
    restored = TemperatureHead.from_checked_dict(head.to_dict())
    torch.testing.assert_close(restored(tokens.hidden, logits), head(tokens.hidden, logits))


def test_a_head_that_does_not_help_stays_at_the_single_temperature():
    tokens, _ = make_tokens(600, log_temperature=lambda hidden: torch.zeros(len(hidden)))
    single, scalars = fit_both(tokens, scalars=True)
    logits = tokens.hidden @ tokens.weight.T + tokens.bias
    assert scalars.hidden_size == 0
    assert (scalars(None, logits) / single.temperature).log().abs().mean() < 0.1


def test_a_temperature_never_changes_the_most_likely_token():
    tokens, _ = make_tokens(2000)
    logits = tokens.hidden @ tokens.weight.T + tokens.bias
    _, head = fit_both(tokens)
    divided = logits / head(tokens.hidden, logits).unsqueeze(1)
    assert torch.equal(divided.argmax(-1), logits.argmax(-1))


@pytest.mark.parametrize("change", [{"weight": [0.0]}, {"bias": math.nan}, {"hidden_size": 3}, {"std": None}])
def test_damaged_heads_are_refused(change):
    head = TemperatureHead([0.0] * 3, [0.0] * 3, [1.0] * 3, 0.0, 0)
    with pytest.raises((ValueError, TypeError)):
        TemperatureHead.from_checked_dict({**head.to_dict(), **change})
    with pytest.raises(ValueError, match="temperature"):
        TokenTemperature.from_checked_dict({**TokenTemperature(1.0).to_dict(), "temperature": -1.0})


@pytest.mark.parametrize(("truth", "name"), [
    (lambda hidden: torch.zeros(len(hidden)), "none"),
    (lambda hidden: torch.full((len(hidden),), 0.5), "temperature"),
    (lambda hidden: 0.8 * hidden[:, 0], "temperature_head"),
])  # fmt: skip
def test_auto_takes_the_simplest_that_is_not_significantly_worse(truth, name):
    """Where one temperature is the truth, a head that is better by chance alone is not taken."""
    tokens, _ = make_tokens(12000, log_temperature=truth)
    half = len(tokens) // 2
    fit, choose = (
        HeldOutTokens(tokens.hidden[rows], tokens.labels[rows], tokens.text[rows], tokens.weight, tokens.bias)
        for rows in (slice(half), slice(half, None))
    )
    metrics = {key: _measure(choose, calibrator) for key, calibrator in _fit(fit, "auto").items()}
    chosen = _choose(metrics)
    assert chosen == name or (name == "none" and chosen == "temperature")  # which is 1, but for what was drawn
