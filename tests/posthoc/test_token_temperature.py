"""Temperatures of tokens against float64 autograd, scipy and known truths."""

import math

import pytest
import torch
from scipy.optimize import minimize_scalar

from clue_hf.kernels import linear_statistics
from clue_hf.posthoc.token_temperature import (
    ALPHA,
    HeldOutTokens,
    TemperatureHead,
    TokenTemperature,
    _clue,
    tempered,
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


def test_error_entropy_and_their_derivatives_are_those_of_autograd():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(7, 11, generator=generator, dtype=torch.float64) * 5
    labels = torch.randint(0, 11, (7,), generator=generator)
    inverse = (torch.rand(7, generator=generator, dtype=torch.float64) + 0.5).requires_grad_()
    log_probability = (logits * inverse.unsqueeze(1)).log_softmax(-1)
    error = -log_probability.gather(1, labels.unsqueeze(1)).squeeze(1)
    entropy = -(log_probability.exp() * log_probability).sum(-1)
    by_error, by_entropy = (torch.autograd.grad(x.sum(), inverse, retain_graph=True)[0] for x in (error, entropy))
    part = tempered(logits, labels, inverse.detach())
    for ours, theirs in zip(part, (error, entropy, by_error, -by_entropy / inverse), strict=True):
        torch.testing.assert_close(ours, theirs.detach())


def test_the_loss_of_a_head_and_its_derivative():
    tokens, _ = make_tokens(300)
    log_temperature = torch.linspace(-1, 1, 300, dtype=torch.float64, requires_grad=True)
    logits = (tokens.hidden @ tokens.weight.T + tokens.bias).double() / log_temperature.exp().unsqueeze(1)
    log_probability = logits.log_softmax(-1)
    error = -log_probability.gather(1, tokens.labels.unsqueeze(1)).squeeze(1)
    entropy = -(log_probability.exp() * log_probability).sum(-1)
    loss = ALPHA * error + (1 - ALPHA) * (error.detach() - entropy) ** 2
    [expected] = torch.autograd.grad(loss.sum(), log_temperature)
    value, gradient = _clue(tokens, log_temperature.detach().float())
    assert value == pytest.approx(loss.mean().item(), rel=1e-5)
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_one_temperature_is_that_of_scipy_and_near_the_truth(temperature):
    tokens, _ = make_tokens(log_temperature=lambda hidden: torch.full((len(hidden),), math.log(temperature)))
    fitted = TokenTemperature.fit(tokens)

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
    single = TokenTemperature.fit(tokens)
    head = TemperatureHead.fit(tokens, single)
    logits = tokens.hidden @ tokens.weight.T + tokens.bias
    errors = [
        (calibrator(tokens.hidden, logits) / truth).log().square().mean().sqrt() for calibrator in (single, head)
    ]
    assert errors[1] < 0.4 * errors[0]
    restored = TemperatureHead.from_checked_dict(head.to_dict())
    torch.testing.assert_close(restored(tokens.hidden, logits), head(tokens.hidden, logits))


def test_a_head_that_does_not_help_stays_at_the_single_temperature():
    tokens, _ = make_tokens(600, log_temperature=lambda hidden: torch.zeros(len(hidden)))
    single = TokenTemperature.fit(tokens)
    scalars = TemperatureHead.fit(tokens, single, scalars=True)
    logits = tokens.hidden @ tokens.weight.T + tokens.bias
    assert scalars.hidden_size == 0
    assert (scalars(None, logits) / single.temperature).log().abs().mean() < 0.1


def test_a_temperature_never_changes_the_most_likely_token():
    tokens, _ = make_tokens(2000)
    logits = tokens.hidden @ tokens.weight.T + tokens.bias
    head = TemperatureHead.fit(tokens, TokenTemperature.fit(tokens))
    divided = logits / head(tokens.hidden, logits).unsqueeze(1)
    assert torch.equal(divided.argmax(-1), logits.argmax(-1))


@pytest.mark.parametrize("change", [{"weight": [0.0]}, {"bias": math.nan}, {"hidden_size": 3}, {"std": None}])
def test_damaged_heads_are_refused(change):
    head = TemperatureHead([0.0] * 3, [0.0] * 3, [1.0] * 3, 0.0, 0)
    with pytest.raises((ValueError, TypeError)):
        TemperatureHead.from_checked_dict({**head.to_dict(), **change})
    with pytest.raises(ValueError, match="temperature"):
        TokenTemperature.from_checked_dict({**TokenTemperature(1.0).to_dict(), "temperature": -1.0})
