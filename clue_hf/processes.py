"""The processes of this run: one, or as many as accelerate launch or torchrun started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from .errors import UserError


Result = TypeVar("Result")


def process_state() -> PartialState:
    """Which process this is, of how many, on which device. Several without an accelerator talk through the CPU."""
    return PartialState(cpu=not torch.accelerator.is_available())


def on_main_process(compute: Callable[[], Result]) -> Result:
    """Runs a function on the main process only; all processes get its result, or raise its `UserError`."""
    answer: list[Any] = [None, None]
    if process_state().is_main_process:
        try:
            answer[0] = compute()
        except UserError as error:
            answer[1] = error
    result, failure = broadcast_object_list(answer)
    if failure is not None:
        raise failure
    return result
