import json
import sys

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from number_models import (
    SCALE,
    TARGET,
    TEXTS,
    make_number_bert,
    make_number_vit,
    make_preprocessor,
    make_tabular,
    number_images,
    number_texts,
    train_tabular,
)
from scipy.stats import norm

from clue_hf import RegressionEvaluator, RegressionReport, UserError
from clue_hf.data.embedded.diabetes import load_diabetes_splits
from clue_hf.data.targets import TargetScale
from clue_hf.evaluation.numbers.evaluator import measure
from clue_hf.inputs.images import ImageCollator, ImageTransform
from clue_hf.metrics import paired_regression_differences, regression_report
from clue_hf.models.ensemble import Ensemble
from clue_hf.models.mc_dropout import active_dropout, mc_logits
from clue_hf.posthoc import ErrorPredictor, QuantileCalibrator
from clue_hf.predictors.numbers import RegressionPredictions


SPLITS = load_diabetes_splits()
TEST, VALIDATION = SPLITS["test"], SPLITS["validation"]
MEAN, STD = np.mean(SPLITS["train"][TARGET]), np.std(SPLITS["train"][TARGET])
TRUTH = np.array(TEST[TARGET])
FLOOR = 1e-6


@pytest.fixture(scope="module")
def tabular(tmp_path_factory):
    return train_tabular(tmp_path_factory.mktemp("tabular"))


@pytest.fixture(scope="module")
def heads():
    """Untrained networks with a variance head and no dropout, and their preprocessor."""
    preprocessor = make_preprocessor(SPLITS["train"])
    return [make_tabular(preprocessor, seed, variance_head=True, dropout=0.0) for seed in range(3)], preprocessor


def evaluator(model, processing_class, **settings):
    return RegressionEvaluator(model, processing_class, **{"resamples": 10, "batch_size": 32, **settings})


@pytest.fixture(scope="module")
def whole_report(tabular):
    return evaluator(*tabular, calibrator="quantile").evaluate(
        TEST, VALIDATION, {"model": "a model", "data": "patients"}
    )


@pytest.fixture(scope="module")
def saved(whole_report, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:  # as without the extra `plots`: pictures take long
        patch.setitem(sys.modules, "clue_hf.evaluation.numbers.plots", None)
        whole_report.save(folder)
    return folder


def moments(model, preprocessor, rows, passes, batch_size=32, seed=42):
    """Mean and std in units of the target, without any of the evaluator's parts but the seeds of its masks."""
    tensors = preprocessor(rows, target=False)
    found = []
    for start in range(0, len(rows), batch_size):
        batch = {name: tensor[start : start + batch_size] for name, tensor in tensors.items()}
        with torch.no_grad():
            if not passes:
                found.append(model(**batch).logits[None])
                continue
            with active_dropout(model, seed):
                found.append(mc_logits(model, batch, passes))
    every = torch.cat(found, 1)[..., 0].double().numpy()
    variance = every.var(0, ddof=1) if passes else np.zeros(len(rows))
    return every.mean(0) * STD + MEAN, np.sqrt(np.maximum(variance, FLOOR)) * STD


@pytest.mark.parametrize("passes", [0, 5])
def test_the_numbers_are_those_of_the_model(tabular, passes):
    report = evaluator(*tabular, mc_samples=passes).evaluate(TEST)
    mean, std = moments(*tabular, TEST, passes)
    assert report.raw.mean == pytest.approx(mean, rel=1e-5)
    assert report.raw.std == pytest.approx(std, rel=1e-4)
    assert report.raw.target.tolist() == TRUTH.tolist()
    direct = regression_report(report.raw.mean, report.raw.std, TRUTH, resamples=10)
    assert report.metrics["raw"] == direct
    assert report.metrics["raw"]["mse"]["value"] == pytest.approx(np.mean((TRUTH - mean) ** 2), rel=1e-5)
    assert report.metrics["raw"]["mse"]["value"] < np.var(TRUTH)
    assert report.metrics["clamped"] == (0 if passes else len(TEST))
    assert report.metrics["min_variance"] == pytest.approx(FLOOR * STD**2)


def test_reports_are_in_units_of_the_target(tabular):
    model, preprocessor = tabular

    def scaled(split):
        return split.map(lambda row: {TARGET: 1000 * row[TARGET]})

    other = make_preprocessor(scaled(SPLITS["train"]))
    one = evaluator(model, preprocessor, calibrator="quantile").evaluate(TEST, VALIDATION)
    two = evaluator(model, other, calibrator="quantile").evaluate(scaled(TEST), scaled(VALIDATION))
    for kind in ("raw", "calibrated"):
        before, after = (
            {name: entry["value"] for name, entry in report.metrics[kind].items()} for report in (one, two)
        )
        assert after["mse"] == pytest.approx(1e6 * before["mse"])
        assert after["mean_std"] == pytest.approx(1e3 * before["mean_std"])
        assert after["nll"] == pytest.approx(before["nll"] + np.log(1000))
        for name in ("coverage_95", "regression_ece", "ence", "ause", "corr_error_var"):
            assert after[name] == pytest.approx(before[name])
    assert two.metrics["min_variance"] == pytest.approx(1e6 * one.metrics["min_variance"])


def test_dropout_is_sampled_by_default_and_can_be_repeated(tabular):
    model, preprocessor = tabular
    assert evaluator(model, preprocessor).mc_samples == 20
    assert evaluator(*make_number_vit()).mc_samples == 0
    one, same, other = (
        evaluator(model, preprocessor, mc_samples=3, seed=seed).evaluate(TEST).raw.std for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.allclose(one, other)
    model.train()
    evaluator(model, preprocessor).predict(TEST)
    assert model.training
    model.eval()


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_the_batch_size_does_not_matter_without_dropout(heads, batch_size):
    models, preprocessor = heads
    whole, parts = (
        evaluator(models[0], preprocessor, batch_size=size).evaluate(TEST).raw for size in (88, batch_size)
    )
    assert parts.mean == pytest.approx(whole.mean, rel=1e-5)
    assert parts.std == pytest.approx(whole.std, rel=1e-5)


def test_a_variance_head_and_an_ensemble_add_up(heads):
    models, preprocessor = heads
    each = [evaluator(model, preprocessor).evaluate(TEST).raw for model in models]
    tensors = preprocessor(TEST, target=False)
    with torch.no_grad():
        logits = models[0](**tensors).logits.double().numpy()
    assert each[0].std == pytest.approx(np.exp(logits[:, 1] / 2) * STD, rel=1e-5)
    together = evaluator(Ensemble(models), preprocessor).evaluate(TEST)
    means, variances = np.array([found.mean for found in each]), np.array([found.variance for found in each])
    assert together.raw.mean == pytest.approx(means.mean(0), rel=1e-5)
    # the law of total variance
    assert together.raw.variance == pytest.approx(variances.mean(0) + means.var(0), rel=1e-4)
    assert together.description["settings"]["members"] == 3
    assert "members" in together.description["uncertainty"]
    assert "each of 3 models" in together.summary()


def test_a_predicted_error_is_the_variance(tabular):
    model, preprocessor = tabular
    second = make_tabular(preprocessor, seed=5, dropout=0.3)
    TargetScale(0.0, 0.5).store(second.config)
    report = evaluator(model, preprocessor, error_predictor=ErrorPredictor(second)).evaluate(TEST)
    with torch.no_grad():
        errors = second(**preprocessor(TEST, target=False)).logits[:, 0].double().numpy() * 0.5
    assert report.raw.variance == pytest.approx(np.maximum(errors, FLOOR) * STD**2, rel=1e-4)
    assert report.raw.mean == pytest.approx(evaluator(model, preprocessor).evaluate(TEST).raw.mean)
    assert report.metrics["clamped"] == (errors < FLOOR).sum() > 0
    assert f"{report.metrics['clamped']} of 88 variances were below the minimum" in report.summary()
    assert report.description["settings"]["error_predictor"] == "deup"


def test_a_calibrator_never_sees_the_test_targets(tabular, whole_report):
    changed = TEST.map(lambda row: {TARGET: 400 - row[TARGET]})
    report = evaluator(*tabular, calibrator="quantile").evaluate(changed, VALIDATION)
    assert report.calibrator == whole_report.calibrator
    mean, std = moments(*tabular, VALIDATION, 20)
    expected = QuantileCalibrator.fit(mean, std, VALIDATION[TARGET])
    assert report.calibrator.scores == pytest.approx(expected.scores, rel=1e-3, abs=1e-4)
    again = evaluator(*tabular, calibrator=report.calibrator).evaluate(changed)
    assert again.metrics == report.metrics


def test_intervals_hold_the_share_that_is_reported(whole_report):
    for kind, predicted in whole_report.kinds.items():
        low, high = predicted.interval(0.95)
        within = np.mean((low <= TRUTH) & (high >= TRUTH))
        assert whole_report.metrics[kind]["coverage_95"]["value"] == pytest.approx(within)
    raw, calibrated = whole_report.raw, whole_report.calibrated
    assert raw.interval(0.8)[1] == pytest.approx(norm.ppf(0.9, raw.mean, raw.std))
    calibrator = whole_report.calibrator
    assert calibrated.mean == pytest.approx(raw.mean + raw.std * calibrator.shift)
    assert np.array_equal(calibrated.interval(0.8), calibrator.interval(raw.mean, raw.std, 0.8))
    pit = calibrator.pit(raw.mean, raw.std, TRUTH)
    direct = regression_report(calibrated.mean, calibrated.std, TRUTH, pit, resamples=10)
    assert whole_report.metrics["calibrated"] == direct


@given(st.integers(0, 100), st.booleans())
def test_wider_intervals_hold_narrower_ones(seed, is_calibrated):
    rng = np.random.default_rng(seed)
    mean, std, target = rng.normal(size=30), rng.exponential(size=30) + 0.01, rng.normal(size=30)
    predicted = RegressionPredictions(mean, std, target)
    if is_calibrated:
        predicted = predicted.calibrated(QuantileCalibrator.fit(mean, std, rng.normal(size=30)))
    ends = [predicted.interval(level) for level in (0.1, 0.5, 0.9, 0.99)]
    for (low, high), (lower, higher) in zip(ends, ends[1:], strict=False):
        assert (lower <= low).all()
        assert (high <= higher).all()
    low, high = predicted.interval(0.95)
    within = ((low <= target) & (target <= high)).mean()
    assert measure(predicted, 0)["coverage_95"]["value"] == pytest.approx(within)


def test_rows_without_a_target_are_predicted(tabular, whole_report):
    model, preprocessor = tabular
    calm = evaluator(model, preprocessor, calibrator=whole_report.calibrator)
    found = calm.predict(TEST.remove_columns(TARGET), levels=(0.8,))
    assert np.array_equal(found.raw.mean, whole_report.raw.mean)
    assert np.array_equal(found.mean, whole_report.calibrated.mean)
    assert np.array_equal(found.interval(0.9), whole_report.calibrated.interval(0.9))
    assert list(found.columns()) == ["mean", "std", "low_80", "high_80"]
    assert found.target is None
    with pytest.raises(ValueError, match="no target"):
        _ = found.error
    columns = {name: TEST[name][:3] for name in TEST.column_names if name != TARGET}
    plain = evaluator(model, preprocessor, mc_samples=0).predict(columns)
    assert plain.mean == pytest.approx(moments(model, preprocessor, TEST, 0)[0][:3], rel=1e-5)
    # a target that is there does not matter, not even a missing one
    missing = evaluator(model, preprocessor, mc_samples=0).predict({**columns, TARGET: [None, 1.0, 2.0]})
    assert np.array_equal(missing.mean, plain.mean)


def test_without_resamples_it_says_that_there_are_no_intervals(tabular):
    report = evaluator(*tabular, mc_samples=0, resamples=0).evaluate(TEST)
    assert "Intervals: none computed (0 resamples)." in report.summary()
    assert "bootstrap" not in report.summary()
    assert "[" not in report.table()


def test_what_was_done_to_the_rows_is_told(tabular):
    model, _ = tabular
    preprocessor = make_preprocessor(SPLITS["train"], drop_missing_target=True)
    columns = {name: list(TEST[name]) for name in TEST.column_names}
    columns["bmi"][:2], columns["sex"][4], columns[TARGET][0] = [None, None], 7, None
    report = evaluator(model, preprocessor, calibrator="quantile").evaluate(
        datasets.Dataset.from_dict(columns), datasets.Dataset.from_dict(columns)
    )
    notes = "\n".join(report.description["notes"])
    for words in ("have no target: dropped", "'bmi': 1 of", "'sex': 1 of", "Validation data: "):
        assert words in notes
        assert words in report.summary()
    assert report.metrics["n"] == 87
    assert report.numbers.tolist() == list(range(1, 88))
    assert next(report._lines())["row"] == 1


def test_a_report_is_read_back_and_compared(whole_report, tabular, saved):
    loaded = RegressionReport.load(saved)
    assert loaded.metrics == json.loads(json.dumps(whole_report.metrics))
    for kind, predicted in loaded.kinds.items():
        assert predicted.mean == pytest.approx(whole_report.kinds[kind].mean, rel=1e-8)
        assert predicted.interval(0.7)[0] == pytest.approx(whole_report.kinds[kind].interval(0.7)[0], abs=1e-5)
        assert measure(predicted, 0)["nll"]["value"] == pytest.approx(whole_report.metrics[kind]["nll"]["value"])
    assert loaded.calibrator == whole_report.calibrator
    assert loaded.summary() == whole_report.summary()
    other = evaluator(*tabular, mc_samples=2, calibrator="quantile").evaluate(TEST, VALIDATION)
    comparison = whole_report.compare(other, resamples=10)
    assert list(comparison) == ["raw", "calibrated"]
    for kind, found in comparison.items():
        one, two = whole_report.kinds[kind].forecasts, other.kinds[kind].forecasts
        assert found == paired_regression_differences(
            one.mean, one.std, two.mean, two.std, TRUTH, one.calibrated_pit, two.calibrated_pit, 10
        )
    assert "a model minus b" in whole_report.comparison(comparison, "b")
    assert all(entry["value"] in (0, None) for entry in loaded.compare(loaded, 5)["raw"].values())
    with pytest.raises(ValueError, match="targets differ"):
        whole_report.compare(evaluator(*tabular).evaluate(VALIDATION))


def test_every_prediction_has_its_line(saved, whole_report):
    lines = [json.loads(line) for line in (saved / "predictions.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == list(range(len(TEST)))
    for place, line in enumerate(lines):
        assert line["target"] == TRUTH[place]
        assert line["squared_error"] == pytest.approx((line["target"] - line["mean"]) ** 2, rel=1e-4, abs=1e-4)
        assert line["high_90"] == pytest.approx(line["mean"] + norm.ppf(0.95) * line["std"], rel=1e-6)
        assert line["calibrated"]["low_95"] == pytest.approx(whole_report.calibrated.interval(0.95)[0][place])
    content = json.loads((saved / "report.json").read_text())
    assert set(content["metrics"]["raw"]) == set(content["description"]["metrics"])
    assert content["description"]["target"] == TARGET
    for name in ("summary.md", "report.html", "calibrator.json"):
        assert (saved / name).stat().st_size > 0


def test_images_with_a_number():
    model, processor = make_number_vit()
    data = number_images()
    found = evaluator(model, processor, target_column="brightness", batch_size=5).evaluate(data)
    collate = ImageCollator(ImageTransform.from_processor(processor))
    batch = collate([{"pixel_values": np.array(image, np.uint8)} for image in data["image"]])
    with torch.no_grad():
        expected = model(**batch).logits[:, 0].double().numpy() * SCALE.std + SCALE.mean
    assert found.raw.mean == pytest.approx(expected, rel=1e-5)
    assert found.raw.target.tolist() == data["brightness"][:]
    assert found.metrics["clamped"] == len(data)
    assert np.array_equal(
        evaluator(model, processor, batch_size=5).predict({"image": data["image"][:]}).mean, found.raw.mean
    )


@pytest.mark.parametrize("has_head", [False, True])
def test_texts_with_a_number(has_head):
    settings = {"num_labels": 2, "problem_type": "regression", "variance_head": True} if has_head else {}
    model, tokenizer = make_number_bert(**settings)
    found = evaluator(model, tokenizer, mc_samples=0, batch_size=4).evaluate(number_texts())
    for row, text in enumerate(TEXTS[:6]):
        with torch.no_grad():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0].double().numpy()
        assert found.raw.mean[row] == pytest.approx(logits[0] * SCALE.std + SCALE.mean, rel=1e-4)
        variance = np.exp(logits[1]) if has_head else FLOOR
        assert found.raw.std[row] == pytest.approx(np.sqrt(variance) * SCALE.std, rel=1e-4)
    short = evaluator(model, tokenizer, mc_samples=2, max_source_length=2).evaluate(number_texts())
    assert "18 of 18 texts (100.0%) were truncated" in short.summary()
    assert next(short._lines())["text"] == TEXTS[0]
    assert evaluator(model, tokenizer, mc_samples=0).predict({"text": TEXTS[:2]}).mean == pytest.approx(
        found.raw.mean[:2], rel=1e-4
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mc_samples": -1}, "must not be negative"),
        ({"resamples": -1}, "must not be negative"),
        ({"batch_size": 0}, "at least 1"),
        ({"min_variance": 0}, "above 0"),
        ({"calibrator": "isotonic"}, "calibrator"),
        ({"mc_samples": 2}, "no dropout"),
    ],
)
def test_wrong_settings_are_explained(settings, message):
    with pytest.raises((ValueError, UserError), match=message):
        evaluator(*make_number_vit(), **settings)


def test_what_is_missing_is_explained(tabular):
    model, preprocessor = tabular
    with pytest.raises(ValueError, match="processing_class"):
        RegressionEvaluator(model, None)
    with pytest.raises(ValueError, match="validation data"):
        evaluator(model, preprocessor, calibrator="quantile").evaluate(TEST)
    with pytest.raises(ValueError, match="not fitted yet"):
        evaluator(model, preprocessor, calibrator="quantile").predict(TEST)
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        evaluator(model, preprocessor).predict(TEST, levels=(0.5, 1.0))
    for empty in (TEST.select([]), {name: [] for name in TEST.column_names}):
        with pytest.raises(ValueError, match="no rows"):
            evaluator(model, preprocessor).evaluate(empty)
    with pytest.raises(UserError, match="trained to predict 'progression'"):
        evaluator(model, preprocessor, target_column="bmi").evaluate(TEST)
    with pytest.raises(UserError, match="'bmi' is not in the data"):
        evaluator(model, preprocessor).evaluate(TEST.remove_columns("bmi"))
    with pytest.raises(UserError, match="first in row 1"):
        evaluator(model, preprocessor).evaluate({**TEST[:3], TARGET: [1.0, None, 3.0]})
    with pytest.raises(UserError, match="row 1 .* is missing"):
        evaluator(*make_number_bert()).evaluate({"text": ["a", "b"], "score": [1.0, None]})
    with pytest.raises(UserError, match="Set target_column"):
        evaluator(*make_number_vit()).evaluate(number_images())
    broken = make_tabular(preprocessor)
    with torch.no_grad():
        broken.head.bias.fill_(float("nan"))
    with pytest.raises(UserError, match="row 0 .* not finite"):
        evaluator(broken, preprocessor).evaluate(TEST)
