"""From (regressor, data) to means and variances, from these to metrics, from metrics to one report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from accelerate.utils import broadcast_object_list
from transformers.utils import logging

from ...errors import UserError
from ...inputs.number_rows import NumberColumns, NumberRows, make_rows, target_scale
from ...models.ensemble import Ensemble
from ...models.loading import has_variance_head
from ...posthoc import ErrorPredictor, QuantileCalibrator
from ...processes import process_state
from ...tasks import REGRESSION_PASSES, RegressionTask
from ...versions import package_versions
from ..prediction_evaluator import PredictionEvaluator
from .measures import LEVELS, RegressionPredictions, check_levels, definitions, measure
from .report import RegressionReport


logger = logging.get_logger(__name__)


class RegressionEvaluator(PredictionEvaluator):
    """
    Tells how far the numbers are off that a model predicts for rows of a table, images or texts, and how well its
    variance knows it.

    The prediction is the mean over passes with dropout, if there are any; the uncertainty is the variance over them,
    plus the predicted one where the model predicts one. All is in the target's own units.

    Args:
        model ([`~transformers.PreTrainedModel`] or [`~clue_hf.models.ensemble.Ensemble`]):
            A model that predicts a number, trained with CLUE or not.
        processing_class:
            Its [`~clue_hf.inputs.table_preprocessor.TablePreprocessor`], image processor or tokenizer.
        mc_samples (`int`, *optional*):
            Passes with dropout; 0 for one plain pass. By default 20, or 0 for a model without dropout. The masks
            follow from the seed, and are the same for all rows.
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
            The squared error that it predicts is the variance, instead of the model's own.
        min_variance (`float`, *optional*, defaults to 1e-6):
            Smaller variances count as this, in units of the standardised target. The report says how many there were.
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

    needs = "table preprocessor, image processor or tokenizer"
    calibrators = (QuantileCalibrator.name,)
    usual_passes = REGRESSION_PASSES

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
        **columns: Any,
    ) -> None:
        super().__init__(model, processing_class, mc_samples, calibrator, resamples, batch_size, seed, error_predictor)
        if not 0 < min_variance < np.inf:
            raise ValueError(f"`min_variance` must be above 0, but is {min_variance}.")
        self.min_variance = min_variance
        self.columns = NumberColumns(**columns)
        self.scale = target_scale(model.config, processing_class)

    @property
    def has_variance(self) -> bool:
        """Whether anything tells rows apart by uncertainty: passes, members, a variance head, or a second model."""
        several = self.mc_samples > 1 or isinstance(self.model, Ensemble)
        return several or has_variance_head(self.model.config) or self.error_predictor is not None

    def evaluate(
        self, dataset: Any, validation: Any = None, description: dict[str, Any] | None = None
    ) -> RegressionReport:
        """
        Predicts every row of a dataset and judges the predictions. Started on several processes, each takes its share;
        the report is the same.

        Args:
            dataset (`datasets.Dataset` or `dict` of columns):
                Rows of a table, images or texts, with the number to predict.
            validation (*optional*):
                The same, for the calibrator, which must not learn from the dataset itself.
            description (`dict`, *optional*):
                What else the report should tell, such as the names of model and data.
        """
        self._check_validation(validation)
        if not self.has_variance:
            logger.warning(
                "Nothing tells the uncertainty of this model's predictions: every variance is min_variance. It takes "
                "two passes with dropout, a variance head, an ensemble or an error predictor."
            )
        rows = make_rows(dataset, self.processing_class, self.columns, "evaluation")
        predicted = self._predict(rows, "Predicting")
        calibrator, notes = None if isinstance(self.calibrator, str) else self.calibrator, list(predicted.notes)
        if isinstance(self.calibrator, str):
            held_out = make_rows(validation, self.processing_class, self.columns, "validation")
            fitted_on = self._predict(held_out, "Predicting validation data")
            calibrator = QuantileCalibrator.fit(fitted_on.mean, fitted_on.std, fitted_on.target)
            notes += [f"Validation data: {note}" for note in fitted_on.notes]
        kinds = {"raw": predicted}
        if calibrator is not None:
            kinds["calibrated"] = predicted.calibrated(calibrator)
        metrics = self._measured(kinds) if process_state().is_main_process else None
        [metrics] = broadcast_object_list([metrics])
        told = {**(description or {}), **self._description(rows.target_name, notes)}
        return RegressionReport(
            predicted,
            kinds.get("calibrated"),
            metrics,
            {**told, "metrics": definitions(metrics)},
            calibrator,
            rows.numbers,
            rows,
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
                "The calibrator is not fitted yet: evaluate with validation data first, and give the evaluator that "
                "predicts the report's `calibrator`."
            )
        rows = make_rows(dataset, self.processing_class, self.columns, "given", with_target=False)
        predicted = self._predict(rows, "Predicting", tuple(levels))
        return predicted if self.calibrator is None else predicted.calibrated(self.calibrator)

    def _predict(self, rows: NumberRows, words: str, levels: Sequence[float] = LEVELS) -> RegressionPredictions:
        """Mean and variance of all rows."""
        # the floor is applied, and counted, below
        task = RegressionTask(self.model, self.mc_samples, min_variance=0.0)

        def answer(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
            mean, variance = (part.double().cpu().numpy() for part in task.moments(self.model, inputs))
            return mean, variance if self.error_predictor is None else self.error_predictor.errors(inputs)

        mean, variance = self._run(rows, words, task, answer)
        bad = np.flatnonzero(~np.isfinite(mean + variance))
        if len(bad):
            raise UserError(
                f"The prediction for row {rows.numbers[bad[0]]} (counted from 0) is not finite. Has the training "
                "diverged, or does the model overflow in this precision (use float32)?"
            )
        clamped = int((variance < self.min_variance).sum())
        std = np.sqrt(np.maximum(variance, self.min_variance)) * self.scale.std
        mean = mean * self.scale.std + self.scale.mean
        return RegressionPredictions(mean, std, rows.target, levels, clamped, tuple(rows.notes))

    def _measured(self, kinds: dict[str, RegressionPredictions]) -> dict[str, Any]:
        """All that is reported: raw and calibrated metrics, and what was clamped."""
        return {
            "n": len(kinds["raw"]),
            "clamped": kinds["raw"].clamped,
            "min_variance": self.min_variance * self.scale.std**2,
            **{kind: measure(predicted, self.resamples) for kind, predicted in kinds.items()},
        }

    def _description(self, target: str, notes: list[str]) -> dict[str, Any]:
        """What it takes to read the numbers, or to make them again."""
        return {
            "target": target,
            "uncertainty": self._uncertainty(),
            "interval": f"95 % percentile bootstrap over rows, {self.resamples} resamples, seed 0",
            "notes": notes,
            "settings": self._settings(
                variance_head=has_variance_head(self.model.config),
                min_variance=self.min_variance,
                target_mean=self.scale.mean,
                target_std=self.scale.std,
            ),
            "versions": package_versions(),
        }

    def _uncertainty(self) -> str:
        if self.error_predictor is not None:
            return "squared error predicted by a second model"
        parts = ["variance over the passes"] if self.mc_samples > 1 else []
        parts += ["mean predicted variance"] if has_variance_head(self.model.config) else []
        parts += ["variance of the members' means"] if self.members > 1 else []
        return " + ".join(parts) or "min_variance: nothing tells another"
