"""A case runs the same few lines with transformers' classes and with ours, and says what was found."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    PreTrainedModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
    set_seed,
)

from clue_hf import CLUEConfig, CLUETrainer


QUIET = {
    "max_steps": 3, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "logging_steps": 1,
    "save_strategy": "no", "disable_tqdm": True, "report_to": "none", "use_cpu": True, "learning_rate": 1e-2,
    "dataloader_pin_memory": False,
}  # fmt: skip
#: Arguments of a trainer; all others are settings.
ARGUMENTS = ("train_dataset", "eval_dataset", "data_collator", "processing_class", "model_init", "compute_loss_func",
             "compute_metrics", "callbacks", "optimizers", "optimizer_cls_and_kwargs",
             "preprocess_logits_for_metrics", "peft_config", "formatting_func")  # fmt: skip


@dataclass
class Side:
    """One of the two: makes its configs and trainers in a folder of its own."""

    name: str
    folder: Path
    #: Whether the stock classes are those of sequence-to-sequence models.
    seq2seq: bool = False

    @property
    def is_ours(self) -> bool:
        return self.name == "ours"

    @property
    def trainer_class(self) -> type[Trainer]:
        return CLUETrainer if self.is_ours else Seq2SeqTrainer if self.seq2seq else Trainer

    @property
    def config_class(self) -> type[TrainingArguments]:
        return CLUEConfig if self.is_ours else Seq2SeqTrainingArguments if self.seq2seq else TrainingArguments

    def config(self, **settings: Any) -> TrainingArguments:
        plain = {"objective": "ce"} if self.is_ours else {}
        return self.config_class(str(self.folder), **{**QUIET, **plain, **settings})

    def trainer(self, model: Any, cls: Callable[[type], type] | None = None, **settings: Any) -> Any:
        """A trainer; `cls` makes a subclass of the class that it is given."""
        set_seed(0)
        arguments = {name: settings.pop(name) for name in ARGUMENTS if name in settings}
        if self.is_ours and _is_regressor(model):
            settings = {"objective": "mse", **settings}
        made = (cls or (lambda base: base))(self.trainer_class)
        return made(model, settings.pop("args", None) or self.config(**settings), **arguments)

    def trained(self, model: Any, cls: Callable[[type], type] | None = None, **settings: Any) -> Any:
        trainer = self.trainer(model, cls, **settings)
        trainer.train()
        return trainer


def _is_regressor(model: Any) -> bool:
    return isinstance(model, PreTrainedModel) and getattr(model.config, "num_labels", 2) == 1


@dataclass(frozen=True)
class Case:
    """
    A row of the table.

    Args:
        group, name (`str`):
            The heading it stands under, and what a user writes.
        run (`Callable[[Side], Any]`):
            Returns what is compared.
        verdict (`str`):
            `"same"`, `"ours"` or `"refused"`.
        note (`str`):
            The sentence it is refused with, or why it differs.
        truth (`Callable[[Side], Any]`, *optional*):
            What ours gives where it differs: run with the stock classes.
    """

    group: str
    name: str
    run: Callable[[Side], Any]
    verdict: str
    note: str = ""
    truth: Callable[[Side], Any] | None = None
    seq2seq: bool = False


CASES: list[Case] = []


def case(group: str, name: str, *, ours: str = "", refused: str = "", note: str = "", truth: Any = None,
         seq2seq: bool = False) -> Callable:  # fmt: skip
    """Adds a function as a case: the same as stock, unless it says what it is refused with or why it is ours."""

    def add(run: Callable[[Side], Any]) -> Callable[[Side], Any]:
        verdict = "refused" if refused else "ours" if ours else "same"
        CASES.append(Case(group, name, run, verdict, refused or ours or note, truth, seq2seq))
        return run

    return add


def find_verdict(case: Case, folder: Path) -> str:
    """Runs both sides. What is refused must be refused with the sentence of the table."""
    own, stock = Side("ours", folder / "ours", case.seq2seq), Side("stock", folder / "stock", case.seq2seq)
    try:
        ours = case.run(own)
    except (ValueError, TypeError) as error:  # a UserError is a ValueError
        if case.note and case.note in " ".join(str(error).split()):
            return "refused"
        raise
    if case.truth is not None:
        assert_same(ours, case.truth(stock), "truth")
    try:
        expected = case.run(stock)
    except Exception as error:  # what stock cannot do
        if case.verdict == "ours":
            return "ours"
        raise error
    try:
        assert_same(ours, expected)
    except AssertionError as error:
        if case.verdict == "same":
            raise AssertionError(f"ours (first) differs from stock: {error}") from None
        return "ours"
    return "same"


def assert_same(ours: Any, stock: Any, place: str = "") -> None:
    """Equal in structure, and in numbers up to rounding; of a dict, ours may have more."""
    if isinstance(stock, dict):
        assert set(stock) <= set(ours), f"{place}: {sorted(ours)} lacks {sorted(set(stock) - set(ours))}"
        for key in stock:
            assert_same(ours[key], stock[key], f"{place}.{key}")
    elif isinstance(stock, (list, tuple)):
        assert type(ours) is type(stock), f"{place}: {type(ours)} and {type(stock)}"
        assert len(ours) == len(stock), f"{place}: {ours} and {stock}"
        for number, (one, other) in enumerate(zip(ours, stock, strict=True)):
            assert_same(one, other, f"{place}[{number}]")
    elif isinstance(stock, (np.ndarray, torch.Tensor)):
        one, other = np.asarray(ours), np.asarray(stock)
        assert one.shape == other.shape, f"{place}: {one.shape} and {other.shape}"
        assert np.allclose(one, other, rtol=1e-3, atol=2e-4), f"{place}: {one} and {other}"
    elif isinstance(stock, float):
        close = math.isclose(ours, stock, rel_tol=1e-3, abs_tol=2e-4)
        assert close or (math.isnan(ours) and math.isnan(stock)), f"{place}: {ours} and {stock}"
    else:
        assert ours == stock, f"{place}: {ours!r} and {stock!r}"


#: Keys of the log that measure time.
TIMES = ("runtime", "_per_second", "preparation_time")


def measured(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if not key.endswith(TIMES)}


def log(trainer: Any) -> list[dict[str, Any]]:
    """The lines of the log without times."""
    return [measured(line) for line in trainer.state.log_history]


def weights(trainer: Any) -> dict[str, Any]:
    return {name: value.detach().float().numpy() for name, value in trainer.model.state_dict().items()}


def result(trainer: Any) -> tuple:
    """What a training leaves: its log and the weights."""
    return log(trainer), weights(trainer)
