"""The processes of this run: one, or as many as accelerate launch or torchrun started."""

from __future__ import annotations

import torch
from accelerate import PartialState


def process_state() -> PartialState:
    """Which process this is, of how many, on which device. Several without an accelerator talk through the CPU."""
    return PartialState(cpu=not torch.accelerator.is_available())
