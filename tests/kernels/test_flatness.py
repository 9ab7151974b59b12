"""How flat distributions are, against the divergences themselves in float64."""

import math

import pytest
import torch

from clue_hf.kernels import linear_statistics, logit_statistics, statistics_by_temperature
from clue_hf.kernels.flatness import flatness
from clue_hf.posthoc.token_temperature import TokenTemperature


def divergences(logits):
    """KL(uniform || p), and the Rényi divergence of order 1/2 of p at temperature 2 from the uniform distribution."""
    logits = logits.double()
    uniform = 1 / (logits > -math.inf).double().sum(-1, keepdim=True)
    kept = logits > -math.inf
    log_ratio = (uniform.log() - logits.log_softmax(-1)).where(kept, 0)
    flattened = (logits / 2).softmax(-1)
    renyi = 1 / (0.5 - 1) * (flattened**0.5 * uniform**0.5).where(kept, 0).sum(-1).log()
    return (uniform * log_ratio).sum(-1), renyi


def draw(impossible=False, scale=5.0):
    logits = scale * torch.randn(9, 700, generator=torch.Generator().manual_seed(4))
    if impossible:
        logits[:, 100:400] = -math.inf
        logits[3, :50] = -math.inf
    return logits


def check(statistics, logits):
    kl, renyi = divergences(logits)
    torch.testing.assert_close(-statistics.uniform_log_ratio.double(), kl, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(-2 * statistics.log_affinity.double(), renyi, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [0.1, 5.0, 30.0])
@pytest.mark.parametrize("impossible", [False, True])
def test_statistics_are_the_divergences(impossible, scale):
    logits, labels = draw(impossible, scale), torch.full((9,), 500)
    check(logit_statistics(logits.clone(), labels, with_flatness=True), logits)
    assert len(logit_statistics(logits.clone(), labels)) == 4


def test_the_uniform_distribution_is_0():
    torch.testing.assert_close(flatness(torch.zeros(3, 1000)), torch.zeros(3, 2), rtol=0, atol=1e-6)
    assert flatness(torch.zeros(0, 10)).shape == (0, 2)


@pytest.mark.parametrize("passes", [1, 3])
def test_heads_and_temperatures(passes):
    generator = torch.Generator().manual_seed(1)
    hidden, weight = torch.randn(passes, 11, 8, generator=generator), torch.randn(90, 8, generator=generator)
    labels = torch.arange(11)
    temperatures = [None, TokenTemperature(0.3)]
    each = statistics_by_temperature(hidden, weight, labels, temperatures, chunk_size=4, with_flatness=True)
    for temperature, statistics in zip((1.0, 0.3), each, strict=True):
        mixture = (hidden @ weight.T / temperature).softmax(-1).mean(0).log()
        check(statistics, mixture)
    plain = linear_statistics(hidden, weight, labels)
    torch.testing.assert_close(plain.error, each[0].error)
