"""What the folder of a model tells a card: what kind of model it is, what it was made from, and how it is asked."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..models.uncertainty_file import read_uncertainty
from ..posthoc.baked import BakedTemperature
from ..posthoc.stored import reading_part
from .escape import one_line


#: Task on the Hub -> an example of an input, and what the pipeline answers.
TASKS = {
    "text-generation": ('"a source text"', ("generated_text", "uncertainty", "confidence")),
    "text-classification": ('"a text"', ("label", "score", "uncertainty", "confidence")),
    "image-classification": ('"picture.png"', ("label", "score", "uncertainty", "confidence")),
    "tabular-regression": ('{"column": 1.0}', ("mean", "std", "interval")),
}
#: The same of models whose pipelines are transformers' own, which say nothing of uncertainty.
TOKEN_TASKS = {"token-classification": '"a text"', "fill-mask": '"a text with a mask token"'}
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*[A-Za-z0-9_]")
_FILE = re.compile(r"\.(jsonl?|csv|tsv|parquet|npz|txt)(\.gz)?$", re.IGNORECASE)


def is_hub_id(name: str, owned: bool = True) -> bool:
    """
    Whether a name can be that of a repository `owner/name`, and is not a local file or folder. The first models on the
    Hub have no owner.
    """
    is_id = _HUB_ID.fullmatch(name) and not _FILE.search(name)
    return bool(is_id or (not owned and _NAME.fullmatch(name))) and not Path(name).exists()


def existing_folder(folder: str | Path) -> Path:
    """The folder of a model; raises where there is none."""
    if not Path(folder).is_dir():
        raise UserError(f"The folder {str(folder)!r} does not exist: give the folder of a model.")
    return Path(folder)


@dataclass(frozen=True)
class ModelFolder:
    """The folder of a saved model."""

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """The model's config; for an adapter there may be none."""
        return self._json("config.json")

    @cached_property
    def adapter(self) -> dict[str, Any]:
        """The adapter's config, where this is one."""
        return self._json("adapter_config.json")

    @cached_property
    def uncertainty(self) -> dict[str, Any]:
        """What stands in `uncertainty.json`."""
        return read_uncertainty(str(self.folder)) if (self.folder / "uncertainty.json").is_file() else {}

    @property
    def fitted_on(self) -> dict[str, Any]:
        """The data on which confidence and abstention were fitted, where they were."""
        data = self.uncertainty.get("data")
        return data if isinstance(data, dict) and "confidence" in self.uncertainty else {}

    @property
    def baked(self) -> BakedTemperature | None:
        """The temperature in the weights, where there is one."""
        content = self.uncertainty.get("baked")
        if content is None:
            return None
        with reading_part(str(self.folder), "baked", advice="Make the model again: clue-hf calibrate MODEL --bake"):
            return BakedTemperature.from_checked_dict(content)

    @property
    def made_from(self) -> str:
        """The model that an adapter or a temperature was fitted to, where it is known."""
        return self.adapter.get("base_model_name_or_path") or (self.baked.model if self.baked else "")

    @property
    def members(self) -> int:
        """Number of models of an ensemble; 0 where it is none."""
        members = self.uncertainty.get("members")
        return len(members) + 1 if members else 0

    @property
    def task(self) -> str:
        """The task of the model, as the Hub calls it."""
        kinds = " ".join([*self.config.get("architectures", []), str(self.adapter.get("task_type", ""))])
        if "Image" in kinds or self.config.get("model_type") == "clue_resnet":
            return "image-classification"
        if "Tabular" in kinds:
            return "tabular-regression"
        if "ForTokenClassification" in kinds or "TOKEN_CLS" in kinds:
            return "token-classification"
        if "ForMaskedLM" in kinds:
            return "fill-mask"
        return "text-classification" if "SequenceClassification" in kinds or "SEQ_CLS" in kinds else "text-generation"

    @property
    def predicts_tokens(self) -> bool:
        """Whether its answers are classes of tokens."""
        return self.task in TOKEN_TASKS

    @property
    def predicts_numbers(self) -> bool:
        """Whether its answers are numbers."""
        tasks = (self.uncertainty.get("task"), self.config.get("problem_type"))
        return not self.predicts_tokens and (
            "regression" in tasks or self.task == "tabular-regression" or len(self.config.get("id2label", "..")) == 1
        )

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        if not path.is_file():
            return {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise UserError(f"{path} is damaged ({error}): save the model again.") from error
        return content if isinstance(content, dict) else {}

    def usage(self, model_id: str) -> str:
        """Code that asks the model, in Python."""
        name = json.dumps(one_line(model_id), ensure_ascii=False)
        if self.predicts_tokens:
            ask = f"ask = pipeline({json.dumps(self.task)}, {name})\nprint(ask({TOKEN_TASKS[self.task]}))"
            return f"from transformers import pipeline\n\n{ask}"
        example, answer = TASKS[self.task]
        if self.predicts_numbers:
            answer = TASKS["tabular-regression"][1]
        values = ", ".join(f'answer["{key}"]' for key in answer)
        ask = f"ask = pipeline({name})\nanswer = ask({example})\nprint({values})"
        return f"# pip install clue-hf\nfrom clue_hf import pipeline\n\n{ask}"


@dataclass(frozen=True)
class Training:
    """How a model was trained, as far as it is known."""

    command: str | None = None
    objective: str | None = None
    alpha: float | None = None
    #: Hub id or folder of the model it started from.
    base_model: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    #: The results at its end: objective, split and numbers; and the definitions of the numbers.
    rows: list[dict[str, Any]] = field(default_factory=list)
    definitions: dict[str, str] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether there is anything to tell."""
        return self != Training()


#: Settings that a card names.
NAMED_SETTINGS = (
    "learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps",
    "optim", "lr_scheduler_type", "seed", "level", "clue_gradient", "plain_steps", "plain_epochs", "mc_samples",
)  # fmt: skip


def read_training(folder: Path) -> Training:
    """What `results.json` of `clue-hf train` tells: in the folder, or above it where several objectives were run."""
    folder = folder.resolve()
    for place in (folder, folder.parent):
        path = place / "results.json"
        if not path.is_file():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            trained = content["history"]
            settings, model = content["settings"]["training"], content["settings"]["model"]
            rows, command, definitions = list(content["rows"]), str(content["command"]), dict(content["definitions"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} was not written by clue-hf train ({error!r}): move it away.") from error
        alone = place == folder
        if alone or folder.name in trained:
            objective = settings.get("objective") if alone else folder.name
            alpha = next((row.get("alpha") for row in rows if str(row.get("objective")) == objective), None)
            base_model = model.get("model_name_or_path")
            return Training(command, objective, alpha, base_model, named_settings(settings), rows, definitions)
    return Training()


def named_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Those settings of a training that a card names, without those that do nothing."""
    named = {name: settings[name] for name in NAMED_SETTINGS if settings.get(name) not in (None, "", -1, 0)}
    if "max_steps" in named:
        named.pop("num_train_epochs", None)
    return named
