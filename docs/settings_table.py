"""Writes docs/settings.md: every setting that clue_hf adds to transformers' own, with its default.

Run as `.venv/bin/python docs/settings_table.py`.
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

from transformers import Seq2SeqTrainingArguments

from clue_hf import CLUEConfig
from clue_hf.data.loading import DataArguments
from clue_hf.deploy.arguments import ConformalArguments
from clue_hf.experiments.arguments import RunArguments
from clue_hf.models.arguments import LoraArguments, ModelArguments


HEADING = """# Settings

Made by `.venv/bin/python docs/settings_table.py`. Every setting is an option of `clue-hf train` (`--alpha 0.9`) and
a key of its YAML files (`alpha: 0.9`); those of `CLUEConfig` are also arguments in Python. `CLUEConfig` has all
settings of transformers' `Seq2SeqTrainingArguments` besides: `clue-hf train --help_all` lists them.
"""


CONFORMAL = """
The following are options of `clue-hf calibrate`, `evaluate` and `compare`, and keys of the same files.
"""


def default_of(field: dataclasses.Field) -> Any:
    made = field.default_factory is not dataclasses.MISSING
    return field.default_factory() if made else field.default  # type: ignore[misc]


def own_fields(settings: type) -> list[dataclasses.Field]:
    """The fields a class adds, or whose default it changes."""
    inherited = {field.name: field for field in dataclasses.fields(Seq2SeqTrainingArguments)}
    arguments = inspect.signature(settings).parameters
    fields = [field for name, field in settings.__dataclass_fields__.items() if name in arguments and field.init]  # type: ignore[attr-defined]
    if not issubclass(settings, Seq2SeqTrainingArguments):
        return list(fields)
    return [
        field
        for field in fields
        if field.name not in inherited or default_of(field) != default_of(inherited[field.name])
    ]


def table(settings: type) -> str:
    rows = [f"| `{f.name}` | `{default_of(f)!r}` | {f.metadata['help']} |" for f in own_fields(settings)]
    summary = (settings.__doc__ or "").strip().splitlines()[0]
    return "\n".join([f"\n## {settings.__name__}\n\n{summary}\n", "| setting | default | |", "|---|---|---|", *rows])


def page() -> str:
    classes = (CLUEConfig, ModelArguments, LoraArguments, DataArguments, RunArguments)
    return HEADING + "\n".join(map(table, classes)) + "\n" + CONFORMAL + table(ConformalArguments) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(page())
