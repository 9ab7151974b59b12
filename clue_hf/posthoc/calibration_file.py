"""What `clue-hf calibrate` leaves in `uncertainty.json` for those who run the model, as typed parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..models.uncertainty_file import damaged, read_uncertainty, write_uncertainty
from ..versions import package_versions
from . import AbstentionThreshold, AbstentionThresholds, Conformal, IsotonicConfidence, ReferenceQuantiles
from . import reference_quantiles as quantiles_of
from .stored import Stored, reading_part


#: Parts that are maps of plain values.
PLAIN = ("settings", "data", "definitions", "versions")
#: Parts that are fitted.
FITTED: dict[str, type[Stored]] = {
    "reference_quantiles": ReferenceQuantiles,
    "confidence": IsotonicConfidence,
    "abstention": AbstentionThresholds,
    "conformal": Conformal,
}


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
        conformal ([`~clue_hf.posthoc.Conformal`], *optional*):
            Classes and numbers: how large prediction sets or intervals must be.
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
    conformal: Conformal | None = None
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
        fitting: tuple[np.ndarray, np.ndarray] | None = None,
        **descriptions: Any,
    ) -> UncertaintyCalibration:
        """
        From an uncertainty and a quality in [0, 1] for each row of calibration data; the loss is 1 - quality. Without
        qualities there is neither a confidence nor a threshold. The confidence is fitted on other rows where their
        uncertainty and quality are given (`fitting`). `descriptions` are `conformal`, `data`, `definitions` and
        `weights`.
        """
        quantiles, confidence, abstention = quantiles_of(uncertainty), None, None
        if quality is not None:
            confidence = IsotonicConfidence.fit(*(fitting or (uncertainty, quality)))
            abstention = AbstentionThresholds.fit(uncertainty, 1 - quality, risks, delta, test=test)
        return cls(scorer, settings, quantiles, confidence, abstention, versions=package_versions(), **descriptions)

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
        if "reference_quantiles" not in content:
            raise damaged(name, "reference_quantiles", "it is missing")
        parts: dict[str, Any] = {part: content.get(part, {}) for part in PLAIN}
        for part in FITTED.keys() & content.keys():
            with reading_part(name, part):
                parts[part] = FITTED[part].from_checked_dict(content[part])
        return cls(scorer=content["scorer"], weights=content.get("weights"), **parts)

    def write(self, folder: str | Path) -> None:
        """Puts it into the `uncertainty.json` of a folder, beside what else stands there."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        plain = {name: part.to_dict() if isinstance(part, Stored) else part for name, part in parts.items()}
        write_uncertainty(folder, **plain)

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
