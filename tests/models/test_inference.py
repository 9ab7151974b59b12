"""A model that is run, not trained: what changes while it is, and that it is as before afterwards."""

import pytest
import torch
from torch import nn

from clue_hf.models.inference import inference


@pytest.fixture
def model() -> nn.Module:
    """A model in training, but for a part that its user has frozen."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)).train()
    model[2].eval()
    return model


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def test_without_gradients_and_dropout(model: nn.Module) -> None:
    before = modes(model)
    with inference(model):
        assert not any(modes(model))
        assert not torch.is_grad_enabled()
        first, second = (model(torch.ones(3, 4)) for _ in range(2))
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert modes(model) == before
    assert torch.is_grad_enabled()


def test_as_before_after_an_error(model: nn.Module) -> None:
    before = modes(model)
    with pytest.raises(ZeroDivisionError), inference(model):
        raise ZeroDivisionError
    assert modes(model) == before
    assert torch.is_grad_enabled()


def test_compiled(model: nn.Module) -> None:
    """A compiled model gives the same inside and outside, and each is compiled once."""
    rows = torch.randn(3, 4)
    expected = model.eval()(rows).detach()
    compiled = torch.compile(model)
    for _ in range(2):
        with inference(compiled):
            torch.testing.assert_close(compiled(rows), expected)
