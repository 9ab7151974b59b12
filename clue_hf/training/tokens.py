"""How many tokens a training has read."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState


class TokenCounter(TrainerCallback, ExportableState):
    """
    Counts the tokens of all steps and processes, padding left out; logged as `num_tokens`. The count is part of
    checkpoints, so that a resumed training goes on with it.
    """

    def __init__(self) -> None:
        self.total: torch.Tensor | int | None = None

    def add(self, tokens: torch.Tensor) -> None:
        """Adds the tokens of a step; they stay on their device until they are read."""
        self.total = tokens if self.total is None else self.total + tokens

    def logged(self) -> dict[str, float]:
        """The count, for a line of the log; nothing where no tokens are read."""
        return {} if self.total is None else {"num_tokens": int(self.total)}

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"total": None if self.total is None else int(self.total)}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.total = None
        if state.global_step > 0:  # resumed
            stored = state.stateful_callbacks.get(type(self).__name__, {})
            self.total = stored.get("attributes", {}).get("total")
