"""Several models as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..metrics.answers import checked_probabilities


def ensemble_probabilities(members: Sequence[Any]) -> np.ndarray:
    """
    The mean of the members' probabilities.

    Args:
        members (`Sequence[array]`):
            For each member the probabilities of the same examples, of shape `(n, classes)`.
    """
    tables = [checked_probabilities(member) for member in members]
    shapes = {table.shape for table in tables}
    if len(shapes) != 1:
        raise ValueError(f"The members must have probabilities of one shape, got {sorted(shapes) or 'no members'}.")
    return np.mean(tables, axis=0)
