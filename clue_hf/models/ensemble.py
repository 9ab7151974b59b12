"""Several models as one: the same inputs to each, and their passes side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .mc_dropout import mc_logits


class Ensemble(nn.Module):
    """
    Models of one kind, trained from different seeds: each makes its own passes, and their mean counts.

    Args:
        members (`Sequence[PreTrainedModel]`):
            The models. What is asked of the ensemble's config, the first one's answers.
    """

    def __init__(self, members: Sequence[Any]) -> None:
        super().__init__()
        if not members:
            raise ValueError("An ensemble needs members.")
        self.members = nn.ModuleList(members)
        self.config = members[0].config
        self.main_input_name = members[0].main_input_name

    def forward(self, **inputs: Any) -> torch.Tensor:
        raise TypeError("An ensemble has no single output: ask `member_logits`.")


def member_logits(model: nn.Module, inputs: dict[str, Any], passes: int) -> torch.Tensor:
    """
    The logits of several stochastic passes of each member ([`mc_logits`]), of shape `(members, passes, batch,
    outputs)`; a model that is no ensemble is its only member.
    """
    members = model.members if isinstance(model, Ensemble) else [model]
    return torch.stack([mc_logits(member, inputs, passes) for member in members])
