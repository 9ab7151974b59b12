"""From (regressor, data) to means and variances, from these to metrics, from metrics to one report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers.utils import logging

from ...inputs.labels import Labelled, number_rows
from ...metrics import Measured, regression_report
from ...models.kind import has_variance_head
from ...posthoc import ErrorPredictor, QuantileCalibrator, ScaledIntervals
from ...posthoc.conformal import COVERAGE
from ...posthoc.rules import CALIBRATORS_BY_FAMILY
from ...predictors.numbers import LEVELS, NumberPredictor, RegressionPredictions, check_levels
from ...processes import on_main_process
from ..prediction_evaluator import PredictionEvaluator, by_kind
from .report import RegressionReport


logger = logging.get_logger(__name__)


class RegressionEvaluator(PredictionEvaluator):
    """
    Evaluates a model that predicts a number for rows of a table, images or texts: its error, and how well its variance
    matches it.

    The prediction is the mean over the MC-dropout passes, if there are any; the uncertainty is the variance over them,
    plus the predicted one where the model predicts one. All is in the target's own units.

    Args:
        model ([`~transformers.PreTrainedModel`] or [`~clue_hf.models.ensemble.Ensemble`]):
            A model that predicts a number, trained with CLUE or not.
        processing_class:
            Its [`~clue_hf.inputs.table_preprocessor.TablePreprocessor`], image processor or tokenizer.
        mc_samples (`int`, *optional*):
            Number of MC-dropout forward passes to average; 0 for one pass without dropout. By default 20, or 0 for a
            model without dropout. The masks follow from the seed, and are the same for all rows.
        calibrator (`str` or [`~clue_hf.posthoc.QuantileCalibrator`], *optional*):
            `"quantile"`: fitted on the validation data, reported beside the raw numbers. Or one that was fitted
            before.
        resamples (`int`, *optional*, defaults to 2000):
            Bootstrap resamples of the 95 % intervals; 0 for none.
        batch_size (`int`, *optional*, defaults to 256):
            Rows per batch.
        seed (`int`, *optional*, defaults to 42):
            Seed of the masks.
        error_predictor ([`~clue_hf.posthoc.ErrorPredictor`], *optional*):
            Predicts the squared error, which replaces the model's variance.
        min_variance (`float`, *optional*, defaults to 1e-6):
            Smaller variances count as this, in units of the standardised target. The report says how many there were.
        conformal (`str` or [`~clue_hf.posthoc.ScaledIntervals`], *optional*):
            Intervals, `"scaled"`: fitted on the validation data, on top of the raw and of the calibrated predictions.
            With a calibrator to fit as well, each takes half of the validation data. Or intervals that were fitted
            before.
        coverage (`float`, *optional*, defaults to 0.9):
            The coverage of `conformal`.
        columns:
            `target_column`, `image_column`, `source_column`, `source_prefix` and `max_source_length`, as in
            [`CLUEConfig`].

    Example:

    ```python
    evaluator = RegressionEvaluator(model, preprocessor, calibrator="quantile")
    report = evaluator.evaluate(test_data, validation_data)
    print(report.table())
    report.save("report")
    ```
    """

    kind = "numbers"
    rows_name = "rows"
    needs = "table preprocessor, image processor or tokenizer"
    calibrators = CALIBRATORS_BY_FAMILY["numbers"]

    def __init__(
        self,
        model: Any,
        processing_class: Any,
        mc_samples: int | None = None,
        calibrator: str | QuantileCalibrator | None = None,
        resamples: int = 2000,
        batch_size: int = 256,
        seed: int = 42,
        error_predictor: ErrorPredictor | None = None,
        min_variance: float = 1e-6,
        conformal: str | ScaledIntervals | None = None,
        coverage: float = COVERAGE,
        **columns: Any,
    ) -> None:
        inputs = self._inputs(processing_class, columns)
        predictor = NumberPredictor(model, inputs, mc_samples, None, error_predictor, min_variance, seed)
        super().__init__(predictor, calibrator, resamples, batch_size, conformal, coverage)

    def evaluate(
        self, dataset: Any, validation: Any = None, description: dict[str, Any] | None = None
    ) -> RegressionReport:
        """
        Predicts every row of a dataset and evaluates the predictions. Started on several processes, each takes its
        share; the report is the same.

        Args:
            dataset (`datasets.Dataset` or `dict` of columns):
                Rows of a table, images or texts, with the number to predict.
            validation (*optional*):
                The same, for the calibrator, which must not learn from the dataset itself.
            description (`dict`, *optional*):
                More entries of the report's description, such as the names of model and data.
        """
        self._check_validation(validation)
        if not self.predictor.has_variance:
            logger.warning(
                "The model has no source of uncertainty: every variance is min_variance. Use two or more MC-dropout "
                "passes, a variance head, an ensemble or an error predictor."
            )
        labelled = number_rows(dataset, self.predictor.inputs, "evaluation")
        predictions = self._predict(labelled, "Predicting")
        calibrator, notes = self.calibrator, list(predictions.notes)
        known, held_out, certify = None, None, None
        if isinstance(calibrator, str) or isinstance(self.conformal, str):
            known = number_rows(validation, self.predictor.inputs, "validation")
            held_out = self._predict(known, "Predicting validation data")
            fit, certify = self._parts(len(held_out))
            if isinstance(calibrator, str):
                calibrator = self.calibrators[calibrator].fit(held_out.mean[fit], held_out.std[fit], known.labels[fit])
            notes += [f"Validation data: {note}" for note in held_out.notes]
        conformal = self._conformal(calibrator, held_out, known, certify)
        kinds = by_kind(predictions, calibrator, conformal)
        metrics = on_main_process(lambda: self._metrics(kinds))
        settings = {
            "variance_head": has_variance_head(self.model.config),
            "min_variance": self.predictor.min_variance,
            "target_mean": self.predictor.scale.mean,
            "target_std": self.predictor.scale.std,
        }
        description = self._description(
            description,
            metrics,
            settings,
            conformal,
            target=labelled.target,
            uncertainty=self._uncertainty(),
            notes=notes,
        )
        return RegressionReport(
            kinds["raw"], kinds.get("calibrated"), metrics, description, calibrator, labelled.numbers, labelled.rows
        )

    def predict(self, dataset: Any, levels: Sequence[float] = LEVELS) -> RegressionPredictions:
        """
        Mean, standard deviation and intervals for every row of a dataset, which needs no target.

        Args:
            dataset (`datasets.Dataset` or `dict` of columns):
                Rows of a table, images or texts.
            levels (`Sequence[float]`, *optional*, defaults to 0.5, 0.9 and 0.95):
                Probabilities of the intervals in `columns()`; `interval(level)` takes any.
        """
        check_levels(levels)
        if isinstance(self.calibrator, str):
            raise ValueError(
                "The calibrator is not fitted yet: evaluate with validation data first, and pass the report's "
                "`calibrator` to the evaluator that predicts."
            )
        labelled = number_rows(dataset, self.predictor.inputs, "given", with_target=False)
        predictions = self._predict(labelled, "Predicting", tuple(levels))
        return predictions if self.calibrator is None else predictions.calibrated(self.calibrator)

    def _predict(
        self, labelled: Labelled, description: str, levels: Sequence[float] = LEVELS
    ) -> RegressionPredictions:
        return self.predictor.raw(
            labelled.rows,
            self.batch_size,
            labelled.labels,
            labelled.numbers,
            levels,
            description=description,
            distributed=True,
        )

    def _metrics(self, kinds: dict[str, RegressionPredictions]) -> dict[str, Any]:
        """All that is reported: raw and calibrated metrics, and the variances that were raised to the floor."""
        return {
            "n": len(kinds["raw"]),
            "clamped": kinds["raw"].clamped,
            "min_variance": self.predictor.floor,
            **{kind: measure(predictions, self.resamples) for kind, predictions in kinds.items()},
            **self._measured_conformal(kinds),
        }

    def _uncertainty(self) -> str:
        if self.predictor.error_predictor is not None:
            return "squared error predicted by a second model"
        parts = ["variance over the passes"] if self.predictor.task.mc_samples > 1 else []
        parts += ["mean predicted variance"] if has_variance_head(self.model.config) else []
        parts += ["variance of the members' means"] if self.predictor.members > 1 else []
        return " + ".join(parts) or "min_variance: the model has no source of uncertainty"


def measure(predictions: RegressionPredictions, resamples: int) -> dict[str, Measured]:
    """Every metric of [`~clue_hf.metrics.regression_report`]."""
    forecasts = predictions.forecasts
    return regression_report(
        forecasts.mean, forecasts.std, forecasts.target, pit=forecasts.calibrated_pit, resamples=resamples
    )
