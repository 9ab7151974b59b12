"""What upstream_tests.py puts in the place of transformers' classes."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from types import MethodType
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.tasks import Task


@dataclass
class SwappedConfig(CLUEConfig):
    """`CLUEConfig` with the loss and the defaults of transformers."""

    objective: str = "ce"
    logging_steps: float = TrainingArguments.logging_steps


class ModelLoss(Task):
    """Of a module that computes its own loss nothing else is known."""

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def describe(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def count(self, batches: list[dict[str, Any]]) -> torch.Tensor:
        items = sum(batch["labels"].ne(-100).sum() for batch in batches)
        return torch.stack([torch.as_tensor(items), torch.as_tensor(items)])


class SwappedTrainer(CLUETrainer):
    """`CLUETrainer`; a module that is not of transformers is trained with its own loss."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        model, make = args[0] if args else kwargs.get("model"), kwargs.get("model_init")
        if model is None and make is not None:
            model = make(None) if signature(make).parameters else make()
        if isinstance(model, torch.nn.Module) and not type(model).__module__.startswith(("transformers.", "peft.")):
            kwargs["task"] = ModelLoss()
        super().__init__(*args, **kwargs)
        if "task" in kwargs and type(self).compute_loss is CLUETrainer.compute_loss:
            self.compute_loss = MethodType(Trainer.compute_loss, self)  # type: ignore[method-assign]
            self.measures_loss = False
