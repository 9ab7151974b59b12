"""What the next line of a training's log is made of: part of checkpoints, so that a resumed training logs the same."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState


class LogState(TrainerCallback, ExportableState):
    """
    What this process has to add to the next line of the log: the sums over the steps since the last one, and the
    number of tokens read since the training began, padding left out. They stay on their device until they are read.
    """

    def __init__(self) -> None:
        self.sums: torch.Tensor | None = None
        self.tokens: torch.Tensor | None = None
        #: The same of all processes, for the checkpoint that is being written.
        self.saved: dict[str, Any] = {}

    def add(self, sums: torch.Tensor) -> None:
        """Adds the sums of a batch."""
        self.sums = sums if self.sums is None else self.sums.to(sums.device) + sums

    def add_tokens(self, tokens: torch.Tensor) -> None:
        """Adds the tokens of a step."""
        self.tokens = tokens if self.tokens is None else self.tokens.to(tokens.device) + tokens

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": self.saved}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.sums = self.tokens = None
        state.stateful_callbacks.setdefault(type(self).__name__, self.state())  # not in checkpoints of other trainers
        if state.global_step > 0 and args.process_index == 0:  # resumed: the first process has those of all
            stored = state.stateful_callbacks.get(type(self).__name__, {}).get("attributes", {})
            if stored.get("sums") is not None:
                self.sums = torch.tensor(stored["sums"], dtype=torch.float64)
            if stored.get("tokens") is not None:
                self.tokens = torch.tensor(stored["tokens"])
