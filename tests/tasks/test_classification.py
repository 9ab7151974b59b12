"""Error and uncertainty of a classifier against a plain loop over its passes."""

import math

import pytest
import torch
import torch.nn.functional as F
from classifiers import NEVER, image_batch, make_frozen_resnet, make_text_classifier, make_vit, text_rows

from clue_hf import CLUEConfig
from clue_hf.errors import UserError
from clue_hf.models.mc_dropout import active_dropout
from clue_hf.models.shared_masks import SharedMasks
from clue_hf.objectives import CLUE, Plain
from clue_hf.tasks import ClassificationTask, make_task, summarize


RATE, SEED = 0.4, 11


def mean_distribution(model, pixel_values, passes, seed):
    """p_MC in float64 by one matrix product per pass, with the masks that a seed yields before the classifier."""
    hidden = model.vit(pixel_values).last_hidden_state[:, 0]
    passes = max(passes, 1)
    ones, rate = torch.ones(passes * len(hidden), hidden.shape[1]), model.classifier.dropout
    if model.training:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            masks = F.dropout(ones, rate)
    else:
        with SharedMasks(seed) as shared, shared.layout(passes, len(hidden)):
            masks = F.dropout(ones, rate)
    found = []
    for number in range(passes):
        rows = hidden * masks[number * len(hidden) : (number + 1) * len(hidden)]
        logits = rows.double() @ model.classifier.weight.double().T + model.classifier.bias.double()
        found.append(logits.exp() / logits.exp().sum(-1, keepdim=True))
    return sum(found) / len(found)


def by_hand(probabilities, labels):
    """Error and entropy, row by row."""
    kept = [row for row, label in enumerate(labels.tolist()) if label != -100]
    errors = torch.stack([-probabilities[row, labels[row]].log() for row in kept])
    entropies = torch.stack([-(probabilities[row] * probabilities[row].log()).sum() for row in kept])
    return errors, entropies


@pytest.mark.parametrize("passes", [0, 1, 5])
@pytest.mark.parametrize("training", [True, False])
def test_error_and_entropy_of_the_mean_distribution(passes, training):
    model, batch = make_vit(RATE).train(training), image_batch(ignored=[2])
    if passes == 0 and not training:
        expected = mean_distribution(make_vit(0.0), batch["pixel_values"], 0, 0)
    else:
        expected = mean_distribution(model, batch["pixel_values"], passes, SEED)
    task = ClassificationTask(model, passes, seed=SEED)
    torch.manual_seed(SEED if training else 5)
    found = task.predict(model, batch, CLUE(0.7), return_outputs=True)
    error, entropy = by_hand(expected, batch["labels"])
    torch.testing.assert_close(found.error, error, rtol=1e-5, atol=1e-6, check_dtype=False)
    torch.testing.assert_close(found.uncertainty, entropy, rtol=1e-5, atol=1e-6, check_dtype=False)
    torch.testing.assert_close(found.outputs["logits"].softmax(-1), expected, rtol=1e-5, atol=1e-6, check_dtype=False)
    assert found.example.tolist() == [0, 1, 3, 4, 5]
    assert (found.num_examples, task.num_classes) == (6, 3)


def test_gradients_flow_through_all_passes():
    model, batch = make_vit(RATE).train(), image_batch()
    task, objective = ClassificationTask(model, 5), CLUE(0.7)
    torch.manual_seed(SEED)
    loss, _ = task.predict(model, batch, objective).reduce(objective, task.count([batch]))
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    error, entropy = by_hand(mean_distribution(model, batch["pixel_values"], 5, SEED), batch["labels"])
    by_loop = (0.7 * error + 0.3 * (error - entropy) ** 2).mean()
    expected = torch.autograd.grad(by_loop, list(model.parameters()), allow_unused=True)
    assert loss.item() == pytest.approx(by_loop.item(), rel=1e-5)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_without_passes_it_is_torchs_cross_entropy():
    batch = image_batch(ignored=[0, 4])
    for model in (make_vit(RATE), make_frozen_resnet(RATE)):
        model.train()
        task = ClassificationTask(model, 0)
        torch.manual_seed(SEED)
        logits = model(pixel_values=batch["pixel_values"]).logits
        torch.manual_seed(SEED)
        loss, _ = task.predict(model, batch, Plain()).reduce(Plain(), task.count([batch]))
        assert loss.item() == pytest.approx(F.cross_entropy(logits, batch["labels"]).item(), rel=1e-6)


def test_equal_passes_are_one_pass():
    """A rate that never drops anything: p_MC is the plain softmax."""
    batch = image_batch()
    for model in (make_vit(NEVER), make_frozen_resnet(NEVER)):
        for mode in (True, False):
            model.train(mode)
            one, many = (ClassificationTask(model, passes).predict(model, batch, Plain()) for passes in (0, 5))
            torch.testing.assert_close(many.error, one.error, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(many.uncertainty, one.uncertainty, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [make_vit, make_frozen_resnet])
@pytest.mark.parametrize("passes", [1, 5])
def test_evaluation_is_reproducible_and_leaves_no_trace(make, passes):
    model, batch = make(RATE).eval(), image_batch()
    next(iter(model.children())).train()  # not all layers are in one mode
    modes, before = [module.training for module in model.modules()], torch.get_rng_state()
    assert len(set(modes)) == 2
    task = ClassificationTask(model, passes, seed=SEED)
    first = task.log_probabilities(model, batch)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in model.modules()] == modes
    torch.rand(3)
    assert torch.equal(first, task.log_probabilities(model, batch))
    other = ClassificationTask(model, passes, seed=SEED + 1).log_probabilities(model, batch)
    assert not torch.equal(first, other)


def test_training_draws_other_masks_every_time():
    model, batch = make_vit(RATE).train(), image_batch()
    task = ClassificationTask(model, 5, seed=SEED)
    assert not torch.equal(task.log_probabilities(model, batch), task.log_probabilities(model, batch))


@pytest.mark.parametrize("passes", [0, 5])
def test_descriptions_are_error_entropy_confidence_and_correctness(passes):
    model, batch = make_vit(RATE).eval(), image_batch(12, ignored=[1, 7])
    task = ClassificationTask(model, passes, seed=SEED)
    found = task.describe(model, batch)
    assert found.shape == (12, 1, 4)
    assert found[[1, 7]].isnan().all()
    expected = mean_distribution(make_vit(0.0) if passes == 0 else model, batch["pixel_values"], passes, SEED)
    error, entropy = by_hand(expected, batch["labels"])
    kept = batch["labels"] != -100
    top = expected.max(-1)
    right = (top.indices == batch["labels"])[kept]
    assert 0 < right.sum() < len(right)
    columns = torch.stack([error, entropy, top.values[kept], right.double()], -1)
    torch.testing.assert_close(found[kept, 0], columns, rtol=1e-5, atol=1e-6, check_dtype=False)


def test_a_description_of_as_many_passes_as_asked_for():
    model, batch = make_vit(RATE).eval(), image_batch()
    expected = mean_distribution(model, batch["pixel_values"], 7, SEED)
    with active_dropout(model, SEED):
        found = ClassificationTask(model, 0).describe(model, batch, passes=7)
    error, _ = by_hand(expected, batch["labels"])
    torch.testing.assert_close(found[:, 0, 0], error, rtol=1e-5, atol=1e-6, check_dtype=False)


def test_a_batch_without_any_label():
    model, batch = make_vit(RATE), image_batch(3, ignored=[0, 1, 2])
    task, objective = ClassificationTask(model, 5), CLUE(0.7)
    assert task.count([batch]).tolist() == [0, 0]
    loss, sums = task.predict(model, batch, objective).reduce(objective, task.count([batch]).clamp(min=1))
    assert loss.item() == 0
    assert sums.sum() == 0
    assert task.describe(model.eval(), batch).isnan().all()


def test_items_are_counted_over_all_batches():
    task = ClassificationTask(make_vit())
    assert task.count([image_batch(6, ignored=[0]), image_batch(3, ignored=[1, 2])]).tolist() == [6, 6]


def test_the_two_levels_are_the_same_for_one_item_per_example():
    model, batch = make_vit().eval(), image_batch(ignored=[3])
    task = ClassificationTask(model)
    token, sequence = (
        task.predict(model, batch, objective).reduce(objective, task.count([batch]))
        for objective in (CLUE(0.6), CLUE(0.6, level="sequence"))
    )
    assert token[0].item() == pytest.approx(sequence[0].item(), rel=1e-6)
    logged = [summarize(sums.sum(0), 3) for _, sums in (token, sequence)]
    assert logged[0]["loss"] == pytest.approx(logged[1]["loss"], rel=1e-6)
    assert logged[0]["loss"] == pytest.approx(0.6 * logged[0]["error"] + 0.4 * logged[0]["calibration"], rel=1e-6)
    assert logged[0]["normalized_uncertainty"] == pytest.approx(logged[0]["uncertainty"] / math.log(3))


def test_how_many_passes_there_are(tmp_path):
    def task(model, **settings):
        return make_task(model, CLUEConfig(str(tmp_path), use_cpu=True, seed=3, **settings))

    assert task(make_vit(RATE)).mc_samples == 5
    assert task(make_vit()).mc_samples == 0
    assert task(make_vit(RATE), mc_samples=2).mc_samples == 2
    assert task(make_vit(RATE)).seed == 3
    for passes in (1, 5):
        with pytest.raises(UserError, match=f"mc_samples={passes} needs dropout"):
            task(make_vit(), mc_samples=passes)


def test_padding_and_batch_size_change_nothing(tmp_path):
    model, tokenizer = make_text_classifier()
    config = CLUEConfig(str(tmp_path), use_cpu=True, mc_samples=0)
    task = make_task(model.eval(), config, tokenizer)
    data = task.prepare(text_rows(1), config, "train")
    collate = task.collator(config)
    together = task.describe(model, collate(data.to_list()))
    alone = torch.cat([task.describe(model, collate([row])) for row in data.to_list()])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_what_it_cannot_do():
    model, batch = make_vit(), image_batch()
    task = ClassificationTask(model)
    with pytest.raises(ValueError, match="no `labels`"):
        task.predict(model, {"pixel_values": batch["pixel_values"]}, Plain())
    with pytest.raises(ValueError, match="generates no text"):
        task.generation_inputs(batch)
