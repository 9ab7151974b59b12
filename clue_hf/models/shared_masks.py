"""Dropout masks that all rows of a batch share, so that the prediction of a row does not depend on its batch.

With K passes a model is K thinned networks, the same for every row. Whether an element is dropped follows from the
seed, the pass, the number of the dropout call and the element's place within its example, by a hash of these numbers:
a stream of random numbers would shift with the padding.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode


LEVELS = 2**16  # 16 random bits decide about an element: rates are exact to 1/65536
ACTIVE: ContextVar[SharedMasks | None] = ContextVar("shared_masks", default=None)


class SharedMasks(TorchFunctionMode):
    """
    Inside it `F.dropout`, `F.dropout1d` ... and the dropout of `F.scaled_dot_product_attention` draw one mask for all
    rows. All other random functions are unchanged. Rows are the first dimension: the masks of a network that puts the
    sequence first still depend on the batch.

    Args:
        seed (`int`):
            Seed of the masks. Every forward continues the count of dropout calls, so that the passes of a loop differ.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed, self.calls = seed, 0
        self.passes, self.rows = 1, 0

    def __enter__(self) -> SharedMasks:
        super().__enter__()
        self.token = ACTIVE.set(self)
        return self

    def __exit__(self, *error: Any) -> None:
        ACTIVE.reset(self.token)
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        replacement = REPLACEMENTS.get(func)
        result = NotImplemented if replacement is None else replacement(self, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is NotImplemented else result

    @contextmanager
    def layout(self, passes: int, rows: int) -> Iterator[None]:
        """For batches of `rows` rows, repeated for each of the passes; else the first dimension is the rows."""
        former = self.passes, self.rows
        self.passes, self.rows = passes, rows
        try:
            yield
        finally:
            self.passes, self.rows = former

    def drop(self, hidden: torch.Tensor, rate: float, inplace: bool, dims: int | None = None) -> torch.Tensor:
        """Drops elements, or all of what follows the first `dims` dimensions together."""
        passes, rows = self.passes, self.rows or max(len(hidden), 1)
        if len(hidden) % (passes * rows):  # a tensor that all rows share
            passes = rows = 1
        parts = len(hidden) // (passes * rows)
        place = hidden.shape[1:dims]
        dropped = min(round(rate * LEVELS), LEVELS - 1)
        self.calls += 1
        bits = random_bits(f"{self.seed} {self.calls}", (passes, parts, *place), hidden.device)
        keep = (bits >= dropped - LEVELS // 2).view(passes * parts, *place, *[1] * (hidden.ndim - 1 - len(place)))
        mask = torch.empty_like(hidden[: passes * parts], requires_grad=False)  # in the same memory format
        mask = mask.copy_(keep).mul_(LEVELS / (LEVELS - dropped)).unflatten(0, (passes, 1, parts))
        split = hidden.unflatten(0, (passes, rows, parts))
        return (split.mul_(mask) if inplace else split * mask).reshape(hidden.shape)


def random_bits(key: str, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """16 random bits for each place of a tensor, as `int16`: a function of the key and of the place's coordinates."""
    sizes = [*shape[:-1], math.ceil(shape[-1] / 4)]  # one hash serves four neighbours
    state = torch.full((1,) * len(sizes), _integer(key), device=device)
    for dim, size in enumerate(sizes):
        if size != 1:
            steps = torch.arange(size, device=device).mul_(STEPS[dim])
            state = state + steps.view(-1, *[1] * (len(sizes) - 1 - dim))
    # the output function of SplitMix64; torch shifts with the sign, which the masks take off
    for bits, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
        state = (state >> bits).bitwise_and_(2 ** (64 - bits) - 1).bitwise_xor_(state).mul_(factor)
    return state.view(torch.int16)[..., : shape[-1]]


def _integer(text: str) -> int:
    """A hash of a text as a signed number of 64 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


#: What a step along each dimension adds to the number that is hashed: odd, and nothing in common.
STEPS = [_integer(f"dimension {dim}") | 1 for dim in range(16)]


def _dropout(
    masks: SharedMasks,
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    dims: int | None = None,
) -> Any:
    return masks.drop(input, p, inplace, dims) if training and 0 < p < 1 else NotImplemented


def _attention(
    masks: SharedMasks,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """The plain formula of attention, with dropout of the weights."""
    if not 0 < dropout_p < 1:
        return NotImplemented
    if enable_gqa:
        key, value = (part.repeat_interleave(query.shape[-3] // part.shape[-3], -3) for part in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        is_bool = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if is_bool else scores + attn_mask
    nothing = scores.amax(-1, keepdim=True) == -math.inf  # a position that attends to nothing gets 0
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).masked_fill(nothing, 0)
    return masks.drop(weights.to(value.dtype), dropout_p, inplace=True) @ value


REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    F.dropout: _dropout,
    torch.dropout: lambda masks, input, p, train: _dropout(masks, input, p, train),
    **dict.fromkeys((F.dropout1d, F.dropout2d, F.dropout3d), partial(_dropout, dims=2)),
    F.scaled_dot_product_attention: _attention,
}
