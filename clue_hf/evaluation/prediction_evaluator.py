"""What the evaluators of classifiers and regressors share: a predictor, and the settings that a report tells."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from ..functional import check_choice
from ..inputs.base import InputSettings
from ..inputs.labels import make_inputs
from ..predictors.base import RowPredictor


class PredictionEvaluator:
    """
    Base of the evaluators of models that answer with a class or a number.

    Args:
        predictor ([`~clue_hf.predictors.base.RowPredictor`]):
            The model, with what it needs to answer.
        calibrator (*optional*):
            The name of one to fit, or one that was fitted before.
        resamples (`int`):
            Bootstrap resamples of the intervals.
        batch_size (`int`):
            Rows per batch.
    """

    #: What prepares the inputs, in words.
    needs: ClassVar[str]
    #: Names of the calibrators that can be fitted.
    calibrators: ClassVar[tuple[str, ...]]
    #: The classes of the training data, where its labels are texts that the model's config does not know.
    class_names: list[str] | None = None

    def __init__(self, predictor: RowPredictor, calibrator: Any, resamples: int, batch_size: int) -> None:
        if isinstance(calibrator, str):
            check_choice("calibrator", calibrator, self.calibrators)
        if resamples < 0:
            raise ValueError(f"`resamples` must not be negative, but is {resamples}.")
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, but is {batch_size}.")
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
            raise ValueError(f"The evaluator needs the model's {cls.needs}: give `processing_class`.")
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
            raise ValueError("A calibrator is fitted on validation data: give some.")

    def _settings(self, **own: Any) -> dict[str, Any]:
        """The settings that a report tells."""
        predictor = self.predictor
        return {
            "mc_samples": predictor.task.mc_samples,
            "calibrator": self.calibrator if isinstance(self.calibrator, str | None) else self.calibrator.name,
            "members": predictor.members,
            "error_predictor": None if predictor.error_predictor is None else "deup",
            **own,
            "batch_size": self.batch_size,
            "seed": predictor.task.seed,
            **vars(predictor.inputs.settings),
        }
