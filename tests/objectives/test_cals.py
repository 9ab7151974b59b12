"""Class-adaptive label smoothing against numbers worked out by hand."""

import math

import pytest
import torch
from classifiers import class_trainer, image_data, make_vit
from helpers import log_lines
from safetensors.torch import load_file

from clue_hf import CLUEConfig
from clue_hf.objectives import CALS, OBJECTIVES
from clue_hf.training.collect import class_log_probabilities


LOGITS = torch.tensor([[3.0, 1.0, 0.0], [0.0, 4.0, 2.0]])


def make_cals(margin=2.0, lam=(0.1, 0.2, 0.5), rho=(1.0, 2.0, 4.0)):
    objective = CALS(margin)
    objective.lam, objective.rho = torch.tensor(lam, dtype=torch.float64), torch.tensor(rho, dtype=torch.float64)
    return objective


def test_excess_by_hand():
    # row 0: gaps below the largest 0, 2, 3; row 1: 4, 0, 2; minus the margin 2, over it
    assert CALS(2.0).excess(LOGITS).tolist() == [[-1.0, 0.0, 0.5], [1.0, -1.0, 0.0]]


def test_penalties_in_both_branches():
    # class 0, h = -1: lam + rho h = -0.9 < 0: -0.1^2 / 2 = -0.005;   h = 1: 0.1 + 0.5 = 0.6
    # class 1, h = 0: 0;   h = -1: 0.2 - 2 < 0: -0.04 / 4 = -0.01
    # class 2, h = 0.5: 0.25 + 4 * 0.25 / 2 = 0.75;   h = 0: 0
    error = torch.tensor([0.3, 0.7])
    found = make_cals().item_loss(error, None, LOGITS, None)
    expected = [0.3 + (-0.005 + 0 + 0.75) / 3, 0.7 + (0.6 - 0.01 + 0) / 3]
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


def test_the_penalty_has_no_jump_where_the_branches_meet():
    objective = make_cals(lam=(0.1, 0.1, 0.1), rho=(1.0, 1.0, 1.0))
    around = torch.tensor([-0.1 - 1e-6, -0.1 + 1e-6], dtype=torch.float64, requires_grad=True)  # lam + rho h = 0
    penalty = objective._penalty(around.unsqueeze(-1).expand(2, 3))[:, 0]
    assert penalty.tolist() == pytest.approx([-0.005, -0.005], abs=1e-9)
    slopes = torch.autograd.grad(penalty.sum(), around)[0]
    assert slopes.tolist() == pytest.approx([0, 0], abs=1e-5)


def test_it_starts_at_almost_nothing():
    objective = CALS()
    error = torch.tensor([0.3, 0.7])
    found = objective.item_loss(error, None, LOGITS, None)
    assert objective.lam.tolist() == [1e-6] * 3
    assert objective.rho.tolist() == [1.0] * 3
    assert (found - error).abs().max() < 1e-6  # all gaps are within the margin of 10
    far = objective.item_loss(error[:1], None, torch.tensor([[30.0, 0.0, 30.0]]), None)
    assert far.item() == pytest.approx(0.3 + (1e-6 * 2 + 2**2 / 2) / 3, rel=1e-5)  # one h = 2


def test_multipliers_after_one_epoch_by_hand():
    objective = make_cals()
    objective.update(LOGITS)
    # class 0: max(0, 0.1 - 1) = 0 and 0.1 + 1 = 1.1;   class 1: 0.2 and max(0, 0.2 - 2) = 0;   class 2: 2.5 and 0.5
    assert objective.lam.tolist() == pytest.approx([0.55, 0.1, 1.5])
    assert objective.rho.tolist() == [1, 2, 4]
    assert objective.epochs == 1


def test_multipliers_stay_within_their_bounds():
    objective = make_cals(lam=(1e-6, 1e-6, 1e6))
    objective.update(torch.tensor([[0.0, 0.0, -1e9], [0.0, 0.0, -1e9]]))
    assert objective.lam.tolist() == [1e-6, 1e-6, 1e6]


def test_weights_grow_every_ten_epochs_where_the_excess_does_not_shrink():
    objective = CALS(margin=2.0)

    # mean h: class 0 is -1 at all times; the others as chosen: gap = 2 (h + 1)
    def epoch(h1, h2):
        objective.update(torch.tensor([[0.0, -2 * (h1 + 1), -2 * (h2 + 1)]], dtype=torch.float64))

    for _ in range(10):
        epoch(1.0, 1.0)
    assert objective.rho.tolist() == [1, 1, 1]  # nothing to compare with yet
    for _ in range(9):
        epoch(0.0, 0.0)
    assert objective.rho.tolist() == [1, 1, 1]
    epoch(0.91, 0.89)  # against 0.9 * 1; class 0: -1 is not above 0.9 * max(0, -1)
    assert objective.rho.tolist() == pytest.approx([1, 1.2, 1])
    for _ in range(10):
        epoch(-0.5, 0.5)  # -0.5 is not above 0, 0.5 not above 0.9 * 0.89
    assert objective.rho.tolist() == pytest.approx([1, 1.2, 1])
    for _ in range(10):
        epoch(0.1, 0.5)  # 0.1 is above 0.9 * max(0, -0.5) = 0, 0.5 above 0.9 * 0.5
    assert objective.rho.tolist() == pytest.approx([1, 1.44, 1.2])
    for _ in range(200):
        epoch(5.0, 5.0)
    assert objective.rho.tolist() == pytest.approx([1, 10, 10])


def test_margin_from_the_settings(tmp_path):
    assert OBJECTIVES["cals"].from_config(CLUEConfig(str(tmp_path), use_cpu=True, cals_margin=6.0)).margin == 6.0
    with pytest.raises(ValueError, match="cals_margin"):
        CLUEConfig(str(tmp_path), use_cpu=True, cals_margin=0)


def test_state_goes_round():
    objective = CALS(2.0)
    for _ in range(10):
        objective.update(LOGITS)
    again = CALS(2.0)
    again.load_state_dict(objective.state_dict())
    for _ in range(10):
        objective.update(LOGITS + 1)
        again.update(LOGITS + 1)
    assert objective.state_dict().keys() == {"lam", "rho", "previous", "epochs", "step"}
    for name, value in objective.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert again.rho.max() > 1


def hand_updates(logits, lam, epochs, margin):
    """The multipliers after some epochs on the same logits, number by number."""
    rows = [[(max(row) - value - margin) / margin for value in row] for row in logits.tolist()]
    for _ in range(epochs):
        lam = [min(max(sum(max(0, lam[k] + row[k]) for row in rows) / len(rows), 1e-6), 1e6) for k in range(len(lam))]
    return lam


@pytest.mark.parametrize("with_validation", ["one set", "two sets", "none"])
def test_epochs_follow_the_validation_data(with_validation, tmp_path):
    validation = {"one set": image_data(6, seed=5), "none": None,
                  "two sets": {"near": image_data(4, seed=5), "far": image_data(3, seed=6)}}  # fmt: skip
    trainer = class_trainer(
        make_vit(), tmp_path, image_data(8), validation[with_validation], objective="cals", cals_margin=0.5,
        learning_rate=0.0, max_steps=5, per_device_train_batch_size=4, save_strategy="steps", save_steps=4,
    )  # fmt: skip
    trainer.train()  # two epochs of two steps, and a step of the third, which is no epoch
    data = trainer.eval_dataset if trainer.eval_dataset is not None else trainer.train_dataset
    parts = data.values() if isinstance(data, dict) else [data]
    logits = torch.cat([torch.from_numpy(class_log_probabilities(trainer, part).log_probabilities) for part in parts])
    expected = hand_updates(logits, [1e-6] * 3, 2, 0.5)
    assert max(expected) > 1
    assert trainer.training_objective.lam.tolist() == pytest.approx(expected, rel=1e-5)
    assert trainer.training_objective.epochs == 2
    # the checkpoint of step 4 was written at the step, before the end of its epoch
    saved = load_file(tmp_path / "checkpoint-4" / "objective.safetensors")
    assert saved["lam"].tolist() == pytest.approx(hand_updates(logits, [1e-6] * 3, 1, 0.5), rel=1e-5)
    assert (int(saved["epochs"]), int(saved["step"])) == (1, 2)


def test_multipliers_rest_while_training_is_plain(tmp_path):
    trainer = class_trainer(
        make_vit(), tmp_path, image_data(8), objective="cals", cals_margin=0.5, plain_epochs=2, max_steps=6,
        per_device_train_batch_size=4, learning_rate=0.0,
    )  # fmt: skip
    trainer.train()
    assert trainer.training_objective.epochs == 1
    losses = [line["loss"] for line in log_lines(trainer)]
    assert losses[0] == losses[2] == log_lines(trainer)[0]["error"]
    # the first epoch with the penalty starts at multipliers of 1e-6
    data = trainer.train_dataset
    logits = torch.from_numpy(class_log_probabilities(trainer, data).log_probabilities)[:4]
    excess = (logits.max(-1, keepdim=True).values - logits - 0.5) / 0.5
    penalty = torch.where(1e-6 + excess >= 0, 1e-6 * excess + excess**2 / 2, torch.tensor(-1e-12 / 2)).mean()
    assert losses[4] == pytest.approx(losses[0] + penalty.item(), rel=1e-5)
    assert math.isclose(penalty.item(), 0) is False
