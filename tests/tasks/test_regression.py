"""Error and uncertainty of a regressor against a plain loop over its passes, and what is refused."""

import pytest
import torch

from clue_hf import CLUEConfig
from clue_hf.errors import UserError
from clue_hf.models.ensemble import Ensemble
from clue_hf.models.mc_dropout import active_dropout
from clue_hf.models.tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression
from clue_hf.objectives import CLUE, ErrorPlusGaussianEntropy, GaussianNLL, Plain
from clue_hf.tasks import RegressionTask, make_task


PASSES, SEED, FLOOR = 6, 11, 1e-6


def make_model(seed=0, dropout=0.4, **settings):
    torch.manual_seed(seed)
    config = CLUETabularResNetConfig(num_numeric=3, hidden_size=8, num_blocks=2, dropout=dropout, **settings)
    return CLUETabularResNetForRegression(config).eval()


def make_batch(rows=5, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return {
        "numeric": torch.randn(rows, 3, generator=generator),
        "labels": torch.randn(rows, generator=generator),
    }


def outputs_of_passes(model, batch, passes=PASSES, seed=SEED):
    """What a seed yields, as (passes, rows, outputs), by the batch repeated before the model."""
    from clue_hf.models.mc_dropout import mc_logits

    with active_dropout(model, seed), torch.no_grad():
        return mc_logits(model, {"numeric": batch["numeric"]}, passes).double()


@pytest.mark.parametrize("variance_head", [False, True])
def test_error_and_variance_by_hand(variance_head):
    model, batch = make_model(variance_head=variance_head), make_batch()
    found = RegressionTask(model, PASSES, SEED).predict(model, batch, CLUE(0.5), return_outputs=True)
    outputs = outputs_of_passes(model, batch)
    for row in range(5):
        values = [outputs[k, row, 0].item() for k in range(PASSES)]
        mean = sum(values) / PASSES
        variance = sum((value - mean) ** 2 for value in values) / (PASSES - 1)
        if variance_head:
            variance += sum(outputs[k, row, 1].exp().item() for k in range(PASSES)) / PASSES
        assert found.error[row].item() == pytest.approx((batch["labels"][row].item() - mean) ** 2, rel=1e-4)
        assert found.uncertainty[row].item() == pytest.approx(variance, rel=1e-4)
        assert found.outputs["logits"][row].item() == pytest.approx(mean, rel=1e-4)
        assert found.uncertainty[row].item() == pytest.approx(variance, rel=1e-4)


def test_one_pass_has_the_variance_of_its_head_or_the_floor():
    batch = make_batch()
    model = make_model(variance_head=True)
    mean, log_variance = model(numeric=batch["numeric"]).logits.unbind(-1)
    found = RegressionTask(model).moments(model, batch)
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.variance, log_variance.exp())
    model = make_model()
    assert (RegressionTask(model, min_variance=0.25).moments(model, batch).variance == 0.25).all()


def test_members_are_mixed():
    members, batch = [make_model(seed, variance_head=True) for seed in range(3)], make_batch()
    ensemble = Ensemble(members)
    found = RegressionTask(ensemble).moments(ensemble, batch)
    single = [RegressionTask(member).moments(member, batch) for member in members]
    mean = sum(moments.mean for moments in single) / 3
    second = sum(moments.variance + moments.mean**2 for moments in single) / 3
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.variance, second - mean**2)


def test_plain_passes_in_training_only():
    model, batch = make_model(), make_batch()
    task = RegressionTask(model, PASSES, SEED, plain_mc_samples=1)
    model.train()
    assert (task.predict(model, batch, Plain()).uncertainty == FLOOR).all()
    assert (task.predict(model, batch, CLUE(1.0)).uncertainty == FLOOR).all()
    assert (task.predict(model, batch, CLUE(0.5)).uncertainty > FLOOR).all()
    model.eval()
    assert (task.predict(model, batch, Plain()).uncertainty > FLOOR).all()


def test_gaussian_objectives_against_torch():
    generator = torch.Generator().manual_seed(0)
    error, variance = (torch.rand(7, generator=generator, dtype=torch.float64) + 0.1 for _ in range(2))
    normal = torch.distributions.Normal(torch.zeros(7, dtype=torch.float64), variance.sqrt())
    torch.testing.assert_close(GaussianNLL().item_loss(error, variance), -normal.log_prob(error.sqrt()))
    expected = error + 0.3 * normal.entropy()
    torch.testing.assert_close(ErrorPlusGaussianEntropy(0.3).item_loss(error, variance), expected)


def test_the_true_variance_is_the_optimum_of_nll_and_stationary_for_detached_clue():
    generator = torch.Generator().manual_seed(0)
    error = 2.5 * torch.randn(200_000, generator=generator, dtype=torch.float64) ** 2
    for objective in (GaussianNLL(), CLUE(0.3, clue_gradient="uncertainty")):
        variance = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
        objective.item_loss(error, variance.expand(len(error))).mean().backward()
        assert abs(variance.grad.item()) < 0.02, objective


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "ce"}, "'ce' is not for regression"),
        ({"objective": "clue", "mc_samples": 1}, "needs a variance"),
        ({"objective": "nll", "mc_samples": 0}, "needs a variance"),
    ],
)
def test_what_has_no_meaning_is_refused(settings, message, tmp_path):
    with pytest.raises(UserError, match=message):
        make_task(make_model(), CLUEConfig(tmp_path, use_cpu=True, **settings))


def test_passes_by_default(tmp_path):
    config = CLUEConfig(tmp_path, use_cpu=True)
    assert make_task(make_model(), config).mc_samples == 20
    assert make_task(make_model(dropout=0.0, variance_head=True), config).mc_samples == 0
    with pytest.raises(UserError, match="needs dropout"):
        make_task(make_model(dropout=0.0), CLUEConfig(tmp_path, use_cpu=True, mc_samples=5))


def test_number_objectives_are_refused_elsewhere(tmp_path):
    from classifiers import make_vit

    with pytest.raises(UserError, match="'nll' is not for classification"):
        make_task(make_vit(), CLUEConfig(tmp_path, use_cpu=True, objective="nll"))
