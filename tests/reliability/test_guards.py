"""Steps that are not finite."""

import pytest
import torch
from helpers import log_lines, make_data, make_model, make_trainer
from transformers import TrainerCallback

from clue_hf.errors import UserError


def poisoned(tmp_path, steps, value=float("nan"), **settings):
    """A trainer whose gradients are not finite in the given steps, counted from 0."""
    trainer = make_trainer(make_model("t5"), tmp_path, make_data("t5"), **{"max_steps": 8, **settings})
    plain = trainer.compute_loss

    def compute_loss(*arguments, **options):
        loss = plain(*arguments, **options)
        return loss * value if trainer.state.global_step in steps else loss

    trainer.compute_loss = compute_loss
    return trainer


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
def test_a_step_that_is_not_finite_is_skipped_and_counted(tmp_path, value, max_grad_norm, caplog):
    trainer = poisoned(tmp_path, {2, 5}, value, max_grad_norm=max_grad_norm)
    before = {}

    class Watch(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            before[state.global_step] = {k: v.clone() for k, v in trainer.model.state_dict().items()}

    trainer.add_callback(Watch())
    trainer.train()
    for step in (2, 5):
        assert all(torch.equal(weight, before[step + 1][name]) for name, weight in before[step].items()), step
    assert not all(torch.equal(weight, before[4][name]) for name, weight in before[3].items())
    assert all(weight.isfinite().all() for weight in trainer.model.state_dict().values())
    counted = [line.get("nonfinite_steps", 0) for line in log_lines(trainer)]
    assert counted == [0, 0, 1, 0, 0, 1, 0, 0]
    assert "step 3 are not finite" in caplog.text


def test_too_many_in_a_row_end_the_training_with_advice(tmp_path):
    trainer = poisoned(tmp_path, range(1, 8), max_nonfinite_steps=3)
    with pytest.raises(UserError, match=r"3 consecutive steps, up to step 4, are not finite\. Lower learning_rate"):
        trainer.train()
    poisoned(tmp_path, {1, 2, 4, 5, 7}, max_nonfinite_steps=3).train()  # never three in a row


def test_overflow_in_float16_gets_the_advice_it_needs(tmp_path):
    trainer = poisoned(tmp_path, range(8), float("inf"), max_nonfinite_steps=2)
    trainer.model.half()
    trainer.compute_loss = lambda model, *_, **__: sum(
        (weight * 6e4).sum() * 6e4 for weight in model.parameters()
    )  # what a T5 does in half precision
    with pytest.raises(UserError, match="float16 overflows .* use bf16, or float32"):
        trainer.train()


def test_a_log_line_is_not_spoiled_by_a_skipped_step(tmp_path):
    trainer = make_trainer(make_model("t5"), tmp_path, make_data("t5"), max_steps=4, logging_steps=4)
    plain, model = trainer.compute_loss, trainer.model

    def compute_loss(*arguments, **options):
        if trainer.state.global_step == 1:
            kept = model.shared.weight.data.clone()
            model.shared.weight.data.fill_(float("nan"))
            loss = plain(*arguments, **options)
            model.shared.weight.data.copy_(kept)
            return loss
        return plain(*arguments, **options)

    trainer.compute_loss = compute_loss
    trainer.train()
    [line] = log_lines(trainer)
    assert line["nonfinite_steps"] == 1
    assert all(value == value for value in (line["loss"], line["error"], line["uncertainty"]))
