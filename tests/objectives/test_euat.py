"""Error-driven uncertainty-aware training against a loop written out by hand."""

import pytest
import torch
from classifiers import class_trainer, image_data, make_text_classifier, make_vit, text_rows
from helpers import log_lines
from transformers import TrainerCallback, utils

from clue_hf.errors import UserError
from clue_hf.objectives import EUAT
from clue_hf.objectives.euat import HalvesSampler


WRONG = torch.tensor([True, False, False, True, False, True, False, False, False, False])


@pytest.fixture
def warnings_seen(caplog):
    utils.logging.enable_propagation()
    yield caplog
    utils.logging.disable_propagation()


def order(wrong=WRONG, seed=3, epoch=0):
    return list(HalvesSampler(len(WRONG), seed, lambda: epoch, lambda: wrong))


@pytest.mark.parametrize("batch_size", [2, 4, 10])
def test_half_of_each_batch_comes_from_either_set(batch_size):
    rows = order()
    assert len(rows) == 10
    for start in range(0, 10, batch_size):
        batch = rows[start : start + batch_size]
        assert sum(WRONG[row].item() for row in batch) * 2 == len(batch)


def test_a_set_is_used_up_before_a_row_comes_again():
    rows = order()
    wrong, right = (rows[start::2] for start in (0, 1))
    assert sorted(wrong[:3]) == [0, 3, 5]
    assert set(wrong[3:]) < {0, 3, 5}
    assert len(set(right)) == 5
    assert not WRONG[right].any()


def test_the_order_is_that_of_the_seed_and_the_epoch():
    assert order() == order()
    assert order(seed=4) != order()
    assert order(epoch=1) != order()


def test_without_sets_every_row_comes_once():
    rows = order(wrong=None)
    assert sorted(rows) == list(range(10))
    assert rows != list(range(10))
    assert order(wrong=None, epoch=1) != rows


def test_signs_are_those_of_the_sets_and_two_means_are_added():
    objective = EUAT()
    objective.wrong = WRONG
    error, uncertainty = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([0.1, 0.2, 0.3, 0.4])
    logits = torch.tensor([[1.0, 0.0]] * 4)
    found = objective.item_loss(error, uncertainty, logits, torch.zeros(4), torch.tensor([3, 1, 5, 2]))
    # rows 3 and 5 were wrong at the last refresh, whatever they are now: all four are right
    assert found.mean().item() == pytest.approx(((1 - 0.1) + (4 - 0.3)) / 2 + ((2 + 0.2) + (8 + 0.4)) / 2)
    now = objective.item_loss(error, uncertainty, logits, torch.tensor([0, 1, 0, 0]))
    assert now.tolist() == pytest.approx([1.1, 1.8, 4.3, 8.4])  # in evaluation
    objective.wrong = torch.zeros(10, dtype=torch.bool)
    alone = objective.item_loss(error, uncertainty, logits, torch.zeros(4), torch.tensor([3, 1, 5, 2]))
    assert alone.tolist() == pytest.approx([1.1, 2.2, 4.3, 8.4])


class Refreshes(TrainerCallback):
    """The sets as they are at each step."""

    def __init__(self):
        self.sets = []

    def on_step_begin(self, args, state, control, **kwargs):
        wrong = self.trainer.training_objective.wrong
        self.sets.append(None if wrong is None else wrong.tolist())


def euat_trainer(folder, model=None, train=None, callbacks=None, **settings):
    defaults = {"objective": "euat", "per_device_train_batch_size": 4, "optim": "sgd", "learning_rate": 0.5,
                "lr_scheduler_type": "constant", "max_steps": 9}  # fmt: skip
    callback = Refreshes()
    trainer = class_trainer(
        model or make_vit(), folder, train or image_data(12), callbacks=[callback], **{**defaults, **settings}
    )
    callback.trainer = trainer
    return trainer, callback.sets


def statistics(model, trainer, rows):
    """Error, entropy and wrongness of some rows."""
    batch = trainer.data_collator([trainer.train_dataset[row] for row in rows])
    probabilities = model(pixel_values=batch["pixel_values"]).logits.softmax(-1)
    error = -probabilities[torch.arange(len(rows)), batch["labels"]].log()
    entropy = -(probabilities * probabilities.log()).sum(-1)
    return error, entropy, probabilities.argmax(-1) != batch["labels"]


@pytest.mark.parametrize("plain_epochs", [0, 1])
def test_training_is_what_a_loop_by_hand_does(plain_epochs, tmp_path):
    trainer, sets = euat_trainer(tmp_path, plain_epochs=plain_epochs)
    model = make_vit()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses, hand_sets, changed = [], [], 0
    for epoch in range(3):
        wrong = statistics(model, trainer, range(12))[2] if epoch >= plain_epochs else None
        for step in range(3):
            rows = list(HalvesSampler(12, trainer.args.seed, lambda e=epoch: e, lambda w=wrong: w))
            rows = rows[4 * step : 4 * step + 4]
            error, entropy, wrong_now = statistics(model, trainer, rows)
            if wrong is None:
                loss = error.mean()
            else:
                assert 0 < wrong.sum() < 12
                bad = wrong[rows]
                loss = (error - entropy)[bad].mean() + (error + entropy)[~bad].mean()
                changed += int((bad != wrong_now).sum())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            hand_sets.append(None if wrong is None else wrong.tolist())
    assert changed > 0  # the sign by the sets is not the sign of the moment
    trainer.train()
    assert [line["loss"] for line in log_lines(trainer)] == pytest.approx(losses, rel=1e-4)
    assert sets == hand_sets
    assert sets[3] != sets[6]  # they were refreshed
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], weight, rtol=1e-3, atol=1e-5)


def test_an_empty_set_means_usual_batches_and_a_warning(tmp_path, warnings_seen):
    trainer, _ = euat_trainer(tmp_path / "first", max_steps=3)
    _, _, wrong = statistics(trainer.model.eval(), trainer, range(12))
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(12)])
    answers = trainer.model(pixel_values=batch["pixel_values"]).logits.argmax(-1).tolist()
    flattering = image_data(12).remove_columns("label").add_column("label", answers)
    trainer, sets = euat_trainer(tmp_path / "second", train=flattering, max_steps=3, learning_rate=0.0)
    trainer.train()
    assert sets == [[False] * 12] * 3
    assert any("gets nothing wrong" in record.message for record in warnings_seen.records)
    error, entropy, _ = statistics(trainer.model.eval(), trainer, range(12))
    rows = list(HalvesSampler(12, trainer.args.seed, lambda: 0, lambda: None))
    for step, line in enumerate(log_lines(trainer)):
        expected = (error + entropy)[rows[4 * step : 4 * step + 4]].mean()
        assert line["loss"] == pytest.approx(expected.item(), rel=1e-5)
    warnings_seen.clear()
    contrary = image_data(12).remove_columns("label").add_column("label", [(answer + 1) % 3 for answer in answers])
    trainer, _ = euat_trainer(tmp_path / "third", train=contrary, max_steps=3, learning_rate=0.0)
    trainer.train()
    assert any("gets nothing right" in record.message for record in warnings_seen.records)
    expected = (error := statistics(trainer.model.eval(), trainer, range(12)))[0] - error[1]
    assert log_lines(trainer)[0]["loss"] == pytest.approx(expected[rows[:4]].mean().item(), rel=1e-5)


def test_a_plain_phase_that_ends_within_an_epoch(tmp_path):
    trainer, sets = euat_trainer(tmp_path, plain_steps=4, max_steps=8)
    trainer.train()
    assert sets[:6] == [None] * 6  # the epoch of step 4 and 5 began with usual batches
    assert None not in sets[6:]
    assert [line.get("alpha") for line in log_lines(trainer)] == [1.0] * 4 + [None] * 4


@pytest.mark.parametrize(("batch", "accumulation"), [(4, 4), (1, 16)])
def test_the_layout_of_the_batch_does_not_matter(batch, accumulation, tmp_path):
    found = []
    for layout in ((16, 1), (batch, accumulation)):
        trainer, _ = euat_trainer(
            tmp_path, train=image_data(32), max_steps=3, per_device_train_batch_size=layout[0],
            gradient_accumulation_steps=layout[1],
        )  # fmt: skip
        trainer.train()
        found.append([(line["loss"], line["grad_norm"]) for line in log_lines(trainer)])
    torch.testing.assert_close(torch.tensor(found[1]), torch.tensor(found[0]), rtol=1e-4, atol=1e-5)


def test_a_kept_loader_of_the_evaluation_data_does_not_stand_in_for_the_training_data(tmp_path):
    trainer, _ = euat_trainer(
        tmp_path, evaluation=image_data(5, seed=9), dataloader_num_workers=1, dataloader_persistent_workers=True
    )
    assert trainer.get_eval_dataloader() is trainer.get_eval_dataloader()
    trainer.training_objective.on_epoch_end(trainer)
    assert trainer.training_objective.wrong.tolist() == statistics(trainer.model, trainer, range(12))[2].tolist()
    assert trainer.args.dataloader_persistent_workers


def test_texts_are_numbered_too(tmp_path):
    model, tokenizer = make_text_classifier(dropout=0.0)
    trainer, sets = euat_trainer(
        tmp_path, model, text_rows(1), processing_class=tokenizer, mc_samples=0, max_steps=2, learning_rate=0.0
    )
    trainer.train()
    rows = trainer.train_dataset
    batch = trainer.data_collator(rows.remove_columns("row").to_list())
    wrong = model.eval()(**batch).logits.argmax(-1) != batch["labels"]
    assert sets == [wrong.tolist()] * 2
    [first, *_] = trainer.get_train_dataloader()
    assert first["labels"].tolist() == rows.select(first["row"].tolist())["labels"][:]


def test_data_that_cannot_be_numbered_is_refused(tmp_path):
    rows = [{"pixel_values": torch.randn(3, 8, 8), "labels": 0}] * 4
    with pytest.raises(UserError, match="cannot number those of a list"):
        class_trainer(make_vit(), tmp_path, rows, objective="euat")
