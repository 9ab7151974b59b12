"""What every report holds, in memory or read back from its file: the measured numbers and their description."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .measured import read_metrics


@dataclass(frozen=True)
class ReportContent:
    """
    The content of a `report.json`. Reports in memory have the same three attributes.

    Args:
        metrics (`dict`):
            The metrics, at any depth, as [`Measured`].
        description (`dict`):
            Definitions, settings, versions, and what the model and the data are.
    """

    metrics: dict[str, Any]
    description: dict[str, Any]

    @property
    def kind(self) -> str:
        """The kind of the report in the registry of metrics."""
        if "scorers" in self.metrics:
            return "text"
        if "raw" in self.metrics and "classes" in self.description:
            return "classes"
        if "mse" in self.metrics.get("raw", ()):
            return "numbers"
        raise ValueError("The metrics are not those of a report of clue-hf evaluate.")

    @classmethod
    def read(cls, folder: str | Path) -> ReportContent:
        """Reads the `report.json` of a folder."""
        content = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
        return cls(read_metrics(content["metrics"]), content["description"])
