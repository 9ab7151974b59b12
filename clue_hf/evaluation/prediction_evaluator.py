"""What the evaluators of classifiers and regressors share: a predictor, and the description of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from ..inputs.base import InputSettings
from ..inputs.labels import Labelled, make_inputs
from ..metrics import Measured, interval_description, metric_definitions
from ..posthoc import Conformal
from ..posthoc.conformal import COVERAGE, check_coverage
from ..posthoc.error_predictor import halves
from ..posthoc.rules import CONFORMAL_BY_FAMILY
from ..predictors.base import RowPredictor
from ..settings import check_choice, check_minimum
from ..versions import package_versions


class PredictionEvaluator:
    """
    Base of the evaluators of models that predict a class or a number.

    Args:
        predictor ([`~clue_hf.predictors.base.RowPredictor`]):
            The model, with what it needs to predict.
        calibrator (*optional*):
            The name of one to fit, or one that was fitted before.
        resamples (`int`):
            Bootstrap resamples of the intervals.
        batch_size (`int`):
            Rows per batch.
        conformal (*optional*):
            The name of a conformal method to fit, or prediction sets or intervals that were fitted before, on top of
            the calibrator.
        coverage (`float`, *optional*, defaults to 0.9):
            Coverage of a method to fit.
    """

    #: Kind of the report in the registry of metrics, and what one of its rows is called.
    kind: ClassVar[str]
    rows_name: ClassVar[str]
    #: What prepares the inputs, for messages.
    needs: ClassVar[str]
    #: The calibrators that can be fitted, by name.
    calibrators: ClassVar[dict[str, Any]]
    #: The classes of the training data, where its labels are texts that the model's config does not know.
    class_names: list[str] | None = None

    def __init__(
        self,
        predictor: RowPredictor,
        calibrator: Any,
        resamples: int,
        batch_size: int,
        conformal: Any = None,
        coverage: float = COVERAGE,
    ) -> None:
        if isinstance(calibrator, str):
            check_choice("calibrator", calibrator, self.calibrators)
        if isinstance(conformal, str):
            check_choice("conformal", conformal, CONFORMAL_BY_FAMILY[self.kind])
            check_coverage(coverage)
        check_minimum(0, resamples=resamples)
        check_minimum(1, batch_size=batch_size)
        self.predictor: Any = predictor
        self.calibrator, self.resamples, self.batch_size = calibrator, resamples, batch_size
        self.conformal, self.coverage = conformal, coverage

    @classmethod
    def from_predictor(
        cls,
        predictor: RowPredictor,
        calibrator: Any = None,
        resamples: int = 2000,
        batch_size: int = 64,
        class_names: list[str] | None = None,
        conformal: Any = None,
        coverage: float = COVERAGE,
    ) -> Self:
        """
        An evaluator of a model that was loaded with all it needs; by default with its own calibrator, and its own
        prediction sets or intervals, which go with no other calibrator.
        """
        evaluator = cls.__new__(cls)
        if conformal is None and calibrator is None:
            conformal = predictor.conformal
        chosen = predictor.calibrator if calibrator is None else calibrator
        PredictionEvaluator.__init__(evaluator, predictor, chosen, resamples, batch_size, conformal, coverage)
        evaluator.class_names = class_names
        return evaluator

    @classmethod
    def _inputs(cls, processing_class: Any, columns: dict[str, Any]) -> Any:
        if processing_class is None:
            raise ValueError(f"The evaluator needs the model's {cls.needs}: pass `processing_class`.")
        return make_inputs(processing_class, InputSettings(**columns))

    @property
    def model(self) -> Any:
        """The model that is evaluated."""
        return self.predictor.model

    @property
    def mc_samples(self) -> int:
        """Number of MC-dropout forward passes."""
        return self.predictor.task.mc_samples

    def _check_validation(self, validation: Any) -> None:
        for name in ("calibrator", "conformal"):
            if isinstance(getattr(self, name), str) and validation is None:
                raise ValueError(f"Fitting `{name}` needs validation data: pass `validation`.")

    def _parts(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """
        Validation rows to fit a calibrator on, and those that the coverage is certified on: halves where both are
        fitted here, as rows that a calibrator was fitted to certify nothing.
        """
        if isinstance(self.calibrator, str) and isinstance(self.conformal, str):
            return halves(count)
        return np.arange(count), np.arange(count)

    def _conformal(
        self, calibrator: Any, held_out: Any, known: Labelled | None, rows: np.ndarray | None
    ) -> dict[str, Conformal]:
        """
        Prediction sets or intervals by kind of predictions: one for each, fitted on some rows of the validation data,
        or the one that was fitted before, with the predictions that it goes with.
        """
        if self.conformal is None:
            return {}
        if not isinstance(self.conformal, str) or known is None:
            return {"raw" if calibrator is None else "calibrated": self.conformal}
        return {
            kind: predictions.fit_conformal(self.conformal, known.labels, self.coverage, rows)
            for kind, predictions in by_kind(held_out, calibrator).items()
        }

    def _measured_conformal(self, kinds: dict[str, Any]) -> dict[str, Any]:
        """Coverage and size of the prediction sets or intervals, by kind of predictions, if there are any."""
        with_sets = {kind: predictions for kind, predictions in kinds.items() if predictions.conformal is not None}
        measured = {kind: predicted.conformal_report(self.resamples) for kind, predicted in with_sets.items()}
        return {"conformal": measured} if measured else {}

    def _description(
        self,
        description: dict[str, Any] | None,
        metrics: dict[str, Any],
        settings: dict[str, Any],
        conformal: dict[str, Conformal],
        **own: Any,
    ) -> dict[str, Any]:
        """What it takes to read the numbers, or to compute them again."""
        predictor = self.predictor
        return {
            **(description or {}),
            **own,
            **({"conformal": {kind: fitted.to_dict() for kind, fitted in conformal.items()}} if conformal else {}),
            "interval": interval_description(self.resamples, self.rows_name),
            "settings": {
                "mc_samples": self.mc_samples,
                "calibrator": self.calibrator if isinstance(self.calibrator, str | None) else self.calibrator.name,
                "members": predictor.members,
                "error_predictor": None if predictor.error_predictor is None else "deup",
                **settings,
                "batch_size": self.batch_size,
                "seed": predictor.task.seed,
                **vars(predictor.inputs.settings),
            },
            "versions": package_versions(),
            "metrics": metric_definitions(dict.fromkeys(_metric_names(metrics)), self.kind),
        }


def by_kind(predictions: Any, calibrator: Any, conformal: Mapping[str, Conformal] | None = None) -> dict[str, Any]:
    """The predictions by name: `raw` and, with a calibrator, `calibrated`; each with its sets or intervals, if any."""
    kinds = {"raw": predictions} | ({} if calibrator is None else {"calibrated": predictions.calibrated(calibrator)})
    return {kind: replace(predicted, conformal=(conformal or {}).get(kind)) for kind, predicted in kinds.items()}


def _metric_names(metrics: Any) -> Iterator[str]:
    """The names of all metrics at any depth."""
    for name, part in metrics.items():
        if isinstance(part, Measured):
            yield name
        elif isinstance(part, dict):
            yield from _metric_names(part)
