import math

import pytest
import torch

from clue_hf import CLUEConfig
from clue_hf.objectives import CLUE, OBJECTIVES, Focal, Objective, Plain


@pytest.fixture
def items():
    return torch.tensor([0.5, 2.0, 0.0]), torch.tensor([1.0, 0.5, 0.0])


def from_config(name, tmp_path, **settings):
    return OBJECTIVES[name].from_config(CLUEConfig(str(tmp_path), objective=name, use_cpu=True, **settings))


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("ce", {}, [0.5, 2.0, 0.0]),
        ("clue", {"alpha": 0.8}, [0.8 * 0.5 + 0.2 * 0.25, 0.8 * 2 + 0.2 * 2.25, 0.0]),
        ("ce_pe", {"pe_weight": 0.1}, [0.6, 2.05, 0.0]),
        ("focal", {"focal_gamma": 1.0}, [(1 - math.exp(-0.5)) * 0.5, (1 - math.exp(-2)) * 2, 0.0]),
    ],
)
def test_item_losses_by_hand(name, settings, expected, items, tmp_path):
    objective = from_config(name, tmp_path, **settings)
    assert objective.item_loss(*items).tolist() == pytest.approx(expected)
    assert not objective.has_sequence_loss


def test_sequence_level_splits_the_loss(items, tmp_path):
    objective = from_config("clue", tmp_path, alpha=0.8, level="sequence")
    assert objective.has_sequence_loss
    assert objective.item_loss(*items).tolist() == pytest.approx([0.4, 1.6, 0.0])
    assert objective.sequence_loss(*items).tolist() == pytest.approx([0.2 * 0.25, 0.2 * 2.25, 0.0])
    assert not from_config("clue", tmp_path, alpha=1.0, level="sequence").has_sequence_loss


def test_the_ramp_is_a_pure_function_of_the_step():
    objective = CLUE(alpha=0.6, warmup_steps=4)
    assert [objective.at(step).alpha for step in (0, 1, 2, 4, 100)] == pytest.approx([1, 0.9, 0.8, 0.6, 0.6])
    assert objective.alpha == 0.6
    assert Plain().at(7).alpha == 1


def test_focal_has_a_finite_gradient_at_zero_error():
    error = torch.zeros(2, requires_grad=True)
    Focal(0.5).item_loss(error, error).sum().backward()
    assert error.grad.isfinite().all()


def test_a_registered_objective_is_found_by_its_name(tmp_path):
    class Doubled(Objective):
        def item_loss(self, error, uncertainty, logits=None, labels=None):
            return 2 * error

    OBJECTIVES["doubled"] = Doubled
    try:
        assert from_config("doubled", tmp_path).item_loss(torch.ones(1), None).item() == 2
    finally:
        del OBJECTIVES["doubled"]
    with pytest.raises(ValueError, match="`objective` must be one of clue"):
        CLUEConfig(str(tmp_path), objective="doubled", use_cpu=True)


def test_every_objective_says_what_it_is():
    assert all(len(objective.__doc__.split()) > 10 for objective in OBJECTIVES.values())
