"""Objectives of numbers against integrals, closed forms and their derivatives."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from clue_hf import CLUEConfig
from clue_hf.errors import UserError
from clue_hf.functional import gaussian_crps, gaussian_nll_loss
from clue_hf.objectives import CRPS, OBJECTIVES, BetaNLL, GaussianNLL, check_suits


MEANS, STDS, TARGETS = (-1.0, 0.3, 2.0, 0.0, 5.0), (0.5, 2.0, 0.1, 1.0, 0.3), (-0.2, 0.3, 1.7, -3.0, 0.0)


def moments(dtype=torch.float64):
    return (torch.tensor(values, dtype=dtype, requires_grad=True) for values in (MEANS, STDS, TARGETS))


def test_crps_against_the_integral_of_the_squared_distance_of_distribution_functions():
    mean, std, target = moments()
    found = CRPS().item_loss((target - mean) ** 2, std**2)
    for value, m, s, y in zip(found.tolist(), MEANS, STDS, TARGETS, strict=True):
        below, _ = quad(lambda x, m=m, s=s: norm.cdf(x, m, s) ** 2, min(m, y) - 12 * s, y, epsabs=1e-12, limit=200)
        above, _ = quad(lambda x, m=m, s=s: norm.sf(x, m, s) ** 2, y, max(m, y) + 12 * s, epsabs=1e-12, limit=200)
        assert value == pytest.approx(below + above, rel=1e-8)


def test_the_gradient_of_crps_in_closed_form():
    mean, std, target = moments()
    loss = gaussian_crps((target - mean) ** 2, std**2).sum()
    by_mean, by_std = torch.autograd.grad(loss, (mean, std))
    ratio = (np.array(TARGETS) - MEANS) / STDS
    np.testing.assert_allclose(by_mean, 1 - 2 * norm.cdf(ratio), atol=1e-12)
    np.testing.assert_allclose(by_std, 2 * norm.pdf(ratio) - 1 / math.sqrt(math.pi), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variance", [1e-6, 1.0, 1e6])
def test_crps_is_smooth_where_the_error_is_zero(dtype, variance):
    error = torch.tensor([0.0, 1e-30], dtype=dtype, requires_grad=True)
    variance = torch.tensor(variance, dtype=dtype)
    loss = gaussian_crps(error, variance)
    torch.testing.assert_close(loss, (variance.sqrt() * (math.sqrt(2) - 1) / math.sqrt(math.pi)).expand(2))
    [gradient] = torch.autograd.grad(loss.sum(), error)
    assert gradient.isfinite().all()
    assert gradient[1].item() == pytest.approx(1 / math.sqrt(2 * math.pi) / variance.sqrt().item(), rel=1e-5)


def test_crps_without_variance_is_the_absolute_error():
    error = torch.tensor([0.25, 4.0])
    torch.testing.assert_close(gaussian_crps(error, torch.tensor(1e-12)), error.sqrt(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_beta_nll_in_closed_form(beta):
    mean, std, target = moments()
    error = (target - mean) ** 2
    loss = BetaNLL(beta).item_loss(error, std**2)
    expected = np.array(STDS) ** (2 * beta) * -norm.logpdf(TARGETS, MEANS, STDS)
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-12)
    by_mean, by_std = torch.autograd.grad(loss.sum(), (mean, std))
    residual, s = np.array(MEANS) - TARGETS, np.array(STDS)
    np.testing.assert_allclose(by_mean, s ** (2 * beta) * residual / s**2, rtol=1e-12)
    np.testing.assert_allclose(by_std, s ** (2 * beta) * (1 / s - residual**2 / s**3), rtol=1e-9, atol=1e-12)


def test_beta_zero_is_nll_and_beta_one_pulls_the_mean_like_half_the_squared_error():
    mean, std, target = moments()
    error, variance = (target - mean) ** 2, std**2
    assert torch.equal(BetaNLL(0.0).item_loss(error, variance), GaussianNLL().item_loss(error, variance))
    assert torch.equal(GaussianNLL().item_loss(error, variance), gaussian_nll_loss(error, variance))
    [by_mean] = torch.autograd.grad(BetaNLL(1.0).item_loss(error, variance).sum(), mean, retain_graph=True)
    torch.testing.assert_close(by_mean, torch.autograd.grad(error.sum() / 2, mean)[0])


@pytest.mark.parametrize("objective", [CRPS(), BetaNLL(0.5), GaussianNLL()])
def test_the_true_mean_and_variance_are_the_optimum(objective):
    """Expectations over a standard normal by quadrature: no noise."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    targets, weights = torch.from_numpy(nodes), torch.from_numpy(weights / math.sqrt(2 * math.pi))
    mean = torch.zeros((), dtype=torch.float64, requires_grad=True)
    log_variance = torch.zeros((), dtype=torch.float64, requires_grad=True)

    def gradients(shift=0.0, log=0.0):
        error = (targets - mean - shift) ** 2
        variance = (log_variance + log).exp().expand(len(error))
        loss = (weights * objective.item_loss(error, variance)).sum()
        return torch.stack(torch.autograd.grad(loss, (mean, log_variance)))

    assert gradients().abs().max() < 1e-3
    assert gradients(shift=0.2)[0] > 0.02
    assert gradients(shift=-0.2)[0] < -0.02
    assert gradients(log=0.2)[1] > 0.01
    assert gradients(log=-0.2)[1] < -0.01


def test_settings(tmp_path):
    def built(name, **settings):
        return OBJECTIVES[name].from_config(CLUEConfig(str(tmp_path), use_cpu=True, objective=name, **settings))

    assert built("beta_nll") == BetaNLL(0.5)
    assert built("beta_nll", nll_beta=1.0) == BetaNLL(1.0)
    assert isinstance(built("crps"), CRPS)
    with pytest.raises(ValueError, match="`nll_beta` must be a number from 0 to 1"):
        built("beta_nll", nll_beta=1.5)
    for name in ("crps", "beta_nll"):
        assert OBJECTIVES[name].needs_variance
        check_suits(name, "regression")
        with pytest.raises(UserError, match=f"{name!r} is not for causal"):
            check_suits(name, "causal")
