"""The largest memory that a training took."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch


#: Writing 5 here makes Linux forget the largest memory of the process so far.
CLEAR = Path("/proc/self/clear_refs")


def reset_peak_memory() -> None:
    """Forgets what came before, where the system can."""
    if torch.accelerator.is_available():
        torch.accelerator.reset_peak_memory_stats()
    elif CLEAR.exists():
        CLEAR.write_text("5")


def peak_memory() -> int:
    """Bytes: of the accelerator, or else of the process."""
    if torch.accelerator.is_available():
        return torch.accelerator.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
