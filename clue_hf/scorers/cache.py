"""A cache of keys and values that is not copied with every token."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


#: Tokens that a layer has room for when it is copied.
ROOM = 16


class RoomyLayer(DynamicLayer):
    """Writes new keys and values behind the others, in place; when its room is used up it moves to a larger one."""

    keys: torch.Tensor
    values: torch.Tensor
    _rooms: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._rooms is None or self._rooms[0].shape[-2] < end:
            rooms = [_with_length(new, end + ROOM) for new in (key_states, value_states)]
            if start:
                rooms[0][..., :start, :], rooms[1][..., :start, :] = self.keys, self.values
            self._rooms = (rooms[0], rooms[1])
        self.is_initialized = True
        self._rooms[0][..., start:end, :], self._rooms[1][..., start:end, :] = key_states, value_states
        self._show(end)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """These rows of all keys and values, which may repeat."""
        if self._rooms is not None:
            length = self.get_seq_length()
            self._rooms = (self._rooms[0].index_select(0, beam_idx), self._rooms[1].index_select(0, beam_idx))
            self._show(length)

    def _show(self, length: int) -> None:
        assert self._rooms is not None
        self.keys, self.values = (room[..., :length, :] for room in self._rooms)


def _with_length(states: torch.Tensor, length: int) -> torch.Tensor:
    return states.new_empty(*states.shape[:-2], length, states.shape[-1])


def roomy_cache(config: Any) -> DynamicCache:
    """transformers' own cache for a model, its plain layers with room."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
