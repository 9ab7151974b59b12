"""What `clue-hf calibrate` leaves in `uncertainty.json` for those who run the model, as typed parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import UserError
from ..metrics.arrays import checked_arrays
from ..models.uncertainty_file import damaged, read_uncertainty, write_uncertainty
from ..versions import package_versions
from . import AbstentionThreshold, AbstentionThresholds, IsotonicConfidence, ReferenceQuantiles
from . import reference_quantiles as quantiles_of
from .stored import Stored


Part = TypeVar("Part", bound=Stored)
#: Parts that are maps of plain values.
PLAIN = ("settings", "data", "definitions", "versions")


@dataclass(frozen=True)
class UncertaintyCalibration:
    """
    How the uncertainty of a model is read: as a confidence, as a place among others, as a reason not to answer.

    Args:
        scorer (`str`):
            Which uncertainty it is about: a name in [`~clue_hf.scorers.SCORERS`] for texts, `"normalized_entropy"` or
            `"predicted_error"` for classes, `"std"` for numbers.
        settings (`dict`):
            How outputs and their uncertainty were produced: with other settings the rest may not hold.
        reference_quantiles ([`~clue_hf.posthoc.ReferenceQuantiles`]):
            Of the uncertainty.
        confidence ([`~clue_hf.posthoc.IsotonicConfidence`], *optional*):
            From uncertainty to expected quality.
        abstention ([`~clue_hf.posthoc.AbstentionThresholds`], *optional*):
            Above which uncertainties not to answer.
        data (`dict`):
            `name` and `rows` of the data that all this was fitted on.
        definitions (`dict`):
            What is meant by `uncertainty`, `quality` and `loss`.
        versions (`dict`):
            Of the packages.
        weights (`str`, *optional*):
            The [`~clue_hf.predictors.base.Predictor.fingerprint`] of the model that all this is about.
    """

    scorer: str
    settings: dict[str, Any]
    reference_quantiles: ReferenceQuantiles
    confidence: IsotonicConfidence | None = None
    abstention: AbstentionThresholds | None = None
    data: dict[str, Any] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    weights: str | None = None

    @classmethod
    def fit(
        cls,
        scorer: str,
        settings: dict[str, Any],
        uncertainty: np.ndarray,
        quality: np.ndarray | None,
        risks: Iterable[float],
        delta: float = 0.1,
        test: str | None = None,
        **words: Any,
    ) -> UncertaintyCalibration:
        """
        From an uncertainty and a quality in [0, 1] for each row of calibration data; the loss is 1 - quality. Without
        qualities there is neither a confidence nor a threshold. `words` are `data`,
        `definitions` and `weights`.
        """
        quantiles = quantiles_of(uncertainty)
        if quality is None:
            return cls(scorer, settings, quantiles, versions=package_versions(), **words)
        return cls(
            scorer,
            settings,
            quantiles,
            IsotonicConfidence.fit(uncertainty, quality),
            AbstentionThresholds.fit(uncertainty, 1 - quality, risks, delta, test=test),
            versions=package_versions(),
            **words,
        )

    @classmethod
    def read(cls, name: str) -> UncertaintyCalibration | None:
        """
        What the `uncertainty.json` of a folder or Hub repository says; `None` where the model was not calibrated. A
        part that is damaged raises, and is named.
        """
        content = read_uncertainty(name)
        if "scorer" not in content:
            return None
        if not isinstance(content["scorer"], str):
            raise damaged(name, "scorer", f"it must be a name, not {content['scorer']!r}")
        for part in PLAIN:
            if not isinstance(content.get(part, {}), dict):
                raise damaged(name, part, f"it must be a map, not {content[part]!r}")
        quantiles = _part(content, "reference_quantiles", ReferenceQuantiles, name)
        if quantiles is None:
            raise damaged(name, "reference_quantiles", "it is missing")
        return cls(
            content["scorer"],
            content.get("settings", {}),
            quantiles,
            _part(content, "confidence", IsotonicConfidence, name),
            _part(content, "abstention", AbstentionThresholds, name),
            **{part: content.get(part, {}) for part in PLAIN if part != "settings"},
            weights=content.get("weights"),
        )

    def write(self, folder: str | Path) -> None:
        """Puts it into the `uncertainty.json` of a folder, beside what else stands there."""
        write_uncertainty(
            folder,
            scorer=self.scorer,
            settings=self.settings,
            reference_quantiles=self.reference_quantiles.to_dict(),
            confidence=None if self.confidence is None else self.confidence.to_dict(),
            abstention=None if self.abstention is None else self.abstention.to_dict(),
            **{part: getattr(self, part) for part in PLAIN if part != "settings"},
            weights=self.weights,
        )

    def threshold(self, max_risk: float | None, min_quality: float | None) -> AbstentionThreshold:
        """The threshold for a risk or a quality; raises where there is none for it, and names those there are."""
        if self.abstention is None:
            raise UserError(
                "The model was calibrated without thresholds for abstention. Calibrate it again with a tolerance: "
                "clue-hf calibrate MODEL --config CONFIG.yaml --tolerance NUMBER"
            )
        try:
            return self.abstention.at(max_risk, min_quality=min_quality)
        except ValueError as error:
            raise UserError(f"{error} Others: clue-hf calibrate MODEL --config CONFIG.yaml --risks ...") from error


def _part(content: dict[str, Any], part: str, kind: type[Part], name: str) -> Part | None:
    """One fitted part, or `None` where there is none."""
    if part not in content:
        return None
    try:
        found = kind.from_dict(content[part])
        _check(found)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise damaged(name, part, f"{type(error).__name__}: {error}") from error
    return found


def _check(part: Stored) -> None:
    """Raises where the numbers of a part are not such as are ever fitted."""
    if isinstance(part, ReferenceQuantiles):
        _check_ascending(part.quantiles, 2)
    elif isinstance(part, IsotonicConfidence):
        _check_ascending(part.uncertainty, 1)
        [quality] = checked_arrays(quality=part.quality)
        if len(quality) != len(part.uncertainty) or (np.diff(quality) > 0).any() or quality[0] > 1 or quality[-1] < 0:
            raise ValueError("the qualities must fall within 1 and 0, one for each uncertainty")
    elif isinstance(part, AbstentionThresholds):
        for entry in part.thresholds:
            numbers = [entry.max_risk, entry.delta, 0.0 if entry.threshold is None else entry.threshold]
            if not all(isinstance(number, (int, float)) for number in numbers):
                raise ValueError(f"no numbers: {numbers}")


def _check_ascending(values: Any, least: int) -> None:
    [numbers] = checked_arrays(numbers=values)
    if len(numbers) < least or (np.diff(numbers) < 0).any():
        raise ValueError(f"the numbers must ascend, and be {least} at least")
