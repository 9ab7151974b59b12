"""
A language model's tokens calibrated on held-out rows: fitted on one part of them, chosen on another, and reported on a
third, none of which shares a source with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers.utils import logging
from transformers.utils.logging import tqdm

from ..errors import UserError
from ..evaluation.text.measures import reference_metrics
from ..kernels import linear_statistics
from ..metrics import Measured, metrics_table
from ..models.kind import unwrap
from ..posthoc.token_temperature import HeldOutTokens, TemperatureHead, TokenCurves, TokenTemperature
from ..predictors.text import TextPredictor
from ..tasks.head import read_head


logger = logging.get_logger(__name__)
#: What `token_calibrator` may be, the simplest first; `auto` chooses among them.
TOKEN_CALIBRATORS = ("none", "temperature", "temperature_head_scalars", "temperature_head")
#: Shares of the sources that fit, that choose, and that give thresholds and reports.
FIT, CHOOSE = 0.5, 0.2
#: Fewest reference tokens and texts to fit a temperature on.
MIN_TOKENS, MIN_TEXTS = 100, 10


@dataclass(frozen=True)
class Parts:
    """Row numbers by what the rows are for: to fit, to choose, to certify and report."""

    fit: list[int]
    choose: list[int]
    certify: list[int]

    @classmethod
    def split(cls, sources: Sequence[str], seed: int) -> Parts:
        """Rows with equal sources stay together."""
        texts = sorted(set(sources))
        places = np.random.default_rng(seed).permutation(len(texts)) / max(len(texts), 1)
        part = dict(zip(texts, np.searchsorted([FIT, FIT + CHOOSE], places, side="right"), strict=True))
        rows: tuple[list[int], list[int], list[int]] = ([], [], [])
        for row, source in enumerate(sources):
            rows[part[source]].append(row)
        return cls(*rows)


@dataclass(frozen=True)
class TokenCalibration:
    """
    A token calibrator (`None` where none is better), the metrics of the reference tokens before and after, and the
    fingerprint of the weights that it belongs to.
    """

    name: str
    calibrator: TokenTemperature | TemperatureHead | None
    before: dict[str, Measured]
    after: dict[str, Measured]
    parts: Parts
    weights: str
    #: Sources and references of the rows that fitted nothing.
    held_out: list[tuple[str, str]] = field(default_factory=list)

    def table(self) -> str:
        """Before and after, with intervals."""
        columns = {"before": self.before, f"after: {self.name}": self.after}
        return metrics_table("reference tokens", columns, "text")

    def summary(self) -> str:
        """The token calibrator, before and after, in a few lines and a table."""
        temperature = getattr(self.calibrator, "temperature", None)
        chosen = self.name if temperature is None else f"{self.name}, T = {temperature:.3f}"
        fit, choose, certify = (len(rows) for rows in (self.parts.fit, self.parts.choose, self.parts.certify))
        return "\n".join([
            f"Token calibrator: {chosen}, fitted on {fit:,} rows; {choose:,} others choose, and {certify:,} others "
            "give this table:",
            "",
            self.table(),
            "",
            "Error and uncertainty in nats per token. A temperature never changes which token is the most likely one: "
            "the\noutputs are the same as before.",
        ])  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """What `uncertainty.json` keeps beside the calibrator itself."""
        entries = {
            when: {name: entry.to_dict() for name, entry in metrics.items()}
            for when, metrics in (("before", self.before), ("after", self.after))
        }
        counts = {name: len(rows) for name, rows in vars(self.parts).items()}
        return {"name": self.name, "rows": counts, "weights": self.weights, **entries}


def token_parts(tokens: TokenCalibration | None) -> dict[str, Any]:
    """The parts of `uncertainty.json` that are about tokens; `None` for those that are to be taken out."""
    fitted = None if tokens is None else tokens.calibrator
    return {
        "token_calibrator": None if fitted is None else fitted.to_dict(),
        "token_calibration": None if tokens is None else tokens.to_dict(),
    }


@dataclass(frozen=True)
class FittedTokenCalibrators:
    """The token calibrators that were fitted, by name, and the name of the one to use."""

    calibrators: dict[str, Any]
    chosen: str


def fit_token_calibrators(
    predictor: TextPredictor, sources: Sequence[str], references: Sequence[str], parts: Parts, name: str = "auto"
) -> FittedTokenCalibrators:
    """
    Fits a token calibrator. `auto` fits all and takes, of those whose error on the rows that choose is not
    significantly above the lowest, the one with the lowest alignment error; a head only where that is significant.
    """
    tokens = _collect(predictor, sources, references, parts.fit)
    if len(tokens) < MIN_TOKENS or len(tokens.text.unique()) < MIN_TEXTS:
        raise UserError(
            f"{len(tokens):,} reference tokens of {len(tokens.text.unique())} texts are too few to fit a temperature: "
            f"use at least {MIN_TOKENS} tokens of {MIN_TEXTS} texts."
        )
    calibrators = _fit(tokens, name)
    if name == "auto":
        choosing = _collect(predictor, sources, references, parts.choose)
        name = _choose({key: _measure(choosing, entry) for key, entry in calibrators.items()})
    return FittedTokenCalibrators(calibrators, name)


def calibrate_tokens(
    predictor: TextPredictor, sources: Sequence[str], references: Sequence[str], parts: Parts, name: str = "auto"
) -> TokenCalibration:
    """Fits a token calibrator, and measures the reference tokens of other rows before and after."""
    fitted = fit_token_calibrators(predictor, sources, references, parts, name)
    calibrator = fitted.calibrators[fitted.chosen]
    held_out = _collect(predictor, sources, references, parts.certify)
    before, after = (_measure(held_out, entry) for entry in (None, calibrator))
    pairs = [(sources[row], references[row]) for row in parts.certify]
    return TokenCalibration(fitted.chosen, calibrator, before, after, parts, predictor.fingerprint(), pairs)


def _fit(tokens: HeldOutTokens, name: str) -> dict[str, Any]:
    """By name, all calibrators that are wanted; the simpler ones come with the others."""
    wanted = TOKEN_CALIBRATORS if name == "auto" else (name,)
    curves = TokenCurves.of(tokens)
    single = TokenTemperature.fit(curves)
    fitted: dict[str, Any] = {"none": None, "temperature": single}
    for head in ("temperature_head_scalars", "temperature_head"):
        if head in wanted:
            fitted[head] = TemperatureHead.fit(tokens, curves, single, scalars=head != "temperature_head")
    return {key: fitted[key] for key in wanted}


def _choose(metrics: dict[str, dict[str, Measured]]) -> str:
    """
    The name of the best. A head must be significantly better than what is simpler: fitted to one kind of text, it is
    easily worse on another.
    """
    lowest = min((entry["error"] for entry in metrics.values()), key=lambda error: error.value)
    near = {name: entry["alignment_error"] for name, entry in metrics.items() if not (entry["error"] - lowest).low > 0}
    best = min((name for name in TOKEN_CALIBRATORS[:2] if name in near), key=lambda name: near[name].value, default="")
    for head in (name for name in TOKEN_CALIBRATORS[2:] if name in near):
        if not best or (near[best] - near[head]).low > 0:
            best = head
    return best


def _measure(tokens: HeldOutTokens, calibrator: Any) -> dict[str, Measured]:
    statistics = linear_statistics(
        tokens.hidden, tokens.weight, tokens.labels, bias=tokens.bias, temperature=calibrator
    )
    columns = [column.double().cpu().numpy() for column in statistics]
    _, lengths = tokens.text.unique_consecutive(return_counts=True)
    return reference_metrics(columns, lengths.cpu().numpy())


def _collect(
    predictor: TextPredictor, sources: Sequence[str], references: Sequence[str], rows: Sequence[int]
) -> HeldOutTokens:
    """The reference tokens of some rows, text by text."""
    columns: list[tuple[torch.Tensor, ...]] = []
    batches = predictor.collector.plan([sources[row] for row in rows])
    for batch in tqdm(batches, desc="Reading the references", leave=False, disable=len(batches) < 3):
        columns.append(predictor.collector.reference_tokens(batch, [references[rows[place]] for place in batch.rows]))
    head = read_head(unwrap(predictor.model))
    weight, bias = head.weight.detach(), None if head.bias is None else head.bias.detach()
    if not columns:
        empty = torch.empty(0, dtype=torch.long)
        return HeldOutTokens(weight[:0], empty, empty, weight, bias)
    hidden, labels, text = (torch.cat(column) for column in zip(*columns, strict=True))
    return HeldOutTokens(hidden, labels, text, weight, bias)
