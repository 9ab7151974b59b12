"""What the evaluators of classifiers and regressors share: a predictor, and the description of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from ..functional import check_choice
from ..inputs.base import InputSettings
from ..inputs.labels import make_inputs
from ..metrics import Measured, interval_description, metric_definitions
from ..predictors.base import RowPredictor
from ..settings import check_minimum
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

    def __init__(self, predictor: RowPredictor, calibrator: Any, resamples: int, batch_size: int) -> None:
        if isinstance(calibrator, str):
            check_choice("calibrator", calibrator, self.calibrators)
        check_minimum(0, resamples=resamples)
        check_minimum(1, batch_size=batch_size)
        self.predictor: Any = predictor
        self.calibrator, self.resamples, self.batch_size = calibrator, resamples, batch_size

    @classmethod
    def from_predictor(
        cls,
        predictor: RowPredictor,
        calibrator: Any = None,
        resamples: int = 2000,
        batch_size: int = 64,
        class_names: list[str] | None = None,
    ) -> Self:
        """An evaluator of a model that was loaded with all it needs; by default with its own calibrator."""
        evaluator = cls.__new__(cls)
        chosen = predictor.calibrator if calibrator is None else calibrator
        PredictionEvaluator.__init__(evaluator, predictor, chosen, resamples, batch_size)
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
        if isinstance(self.calibrator, str) and validation is None:
            raise ValueError("Fitting a calibrator needs validation data: pass `validation`.")

    def _description(
        self, description: dict[str, Any] | None, metrics: dict[str, Any], settings: dict[str, Any], **own: Any
    ) -> dict[str, Any]:
        """What it takes to read the numbers, or to compute them again."""
        predictor = self.predictor
        return {
            **(description or {}),
            **own,
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


def by_kind(predictions: Any, calibrator: Any) -> dict[str, Any]:
    """The predictions by name: `raw` and, with a calibrator, `calibrated`."""
    return {"raw": predictions} | ({} if calibrator is None else {"calibrated": predictions.calibrated(calibrator)})


def _metric_names(metrics: Any) -> Iterator[str]:
    """The names of all metrics at any depth."""
    for name, part in metrics.items():
        if isinstance(part, Measured):
            yield name
        elif isinstance(part, dict):
            yield from _metric_names(part)
