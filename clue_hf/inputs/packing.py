"""Several short sequences in one row of a batch, instead of padding, each read as if it were alone."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq
from transformers.utils import logging

from ..errors import UserError
from ..models.kind import unwrap
from .chats import IGNORED


logger = logging.get_logger(__name__)
#: Sequences that are packed together; more fill the rows better and take more memory.
PACKED_AT_ONCE = 10_000
#: Lengths of the two sequences that a model is tried with.
TRIED = (9, 7)
#: Largest difference of logits between a packed sequence and the same one alone, relative to the largest logit.
TOLERANCE, HALF_TOLERANCE = 1e-4, 3e-2


def pack_dataset(dataset: Any, capacity: int, num_proc: int | None, name: str) -> Any:
    """
    Puts tokenised sequences of at most `capacity` tokens together to rows of at most as many. Their `position_ids`
    begin again at 0 with every sequence; the label of its first token, which nothing before it predicts, is ignored.
    Sequences without a token to learn are left out.
    """
    columns = dataset.column_names or list(next(iter(dataset)))
    options: dict[str, Any] = {"batched": True, "batch_size": PACKED_AT_ONCE, "remove_columns": columns}
    if isinstance(dataset, Dataset):
        options |= {"num_proc": num_proc, "desc": f"Packing {name} data"}
    packed = dataset.map(partial(_pack_rows, capacity=capacity), **options)
    if isinstance(packed, Dataset):
        if len(packed) == 0:
            raise UserError(f"No row of the {name} data has a token to learn.")
        logger.info(f"{len(dataset):,} {name} sequences are packed into {len(packed):,} rows.")
    return packed


def _pack_rows(rows: dict[str, list[Any]], capacity: int) -> dict[str, list[Any]]:
    sequences = [
        (ids, [IGNORED, *labels[1:]])
        for ids, labels in zip(rows["input_ids"], rows["labels"], strict=True)
        if any(label != IGNORED for label in labels[1:])
    ]
    packs = best_fit_decreasing([len(ids) for ids, _ in sequences], capacity)
    return {
        "input_ids": [[token for number in pack for token in sequences[number][0]] for pack in packs],
        "labels": [[label for number in pack for label in sequences[number][1]] for pack in packs],
        "position_ids": [[place for number in pack for place in range(len(sequences[number][0]))] for pack in packs],
    }


def best_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """
    Which of some lengths are put together, none above the capacity: from the longest to the shortest, each where it
    leaves the least space, or into a new pack.
    """
    packs: list[list[int]] = []
    by_space: list[deque[int]] = [deque() for _ in range(capacity + 1)]
    spaces = 0  # bit s is set where a pack has s tokens of space left
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        length = lengths[number]
        fitting = spaces >> length
        if fitting:
            space = length + (fitting & -fitting).bit_length() - 1
            pack = by_space[space].popleft()
            if not by_space[space]:
                spaces &= ~(1 << space)
        else:
            space, pack = capacity, len(packs)
            packs.append([])
        packs[pack].append(number)
        if space > length:
            by_space[space - length].append(pack)
            spaces |= 1 << (space - length)
    return packs


class PackingCollator(DataCollatorForSeq2Seq):
    """
    Makes batches of packed rows, or of others as usual.

    A packed batch has `position_ids` and no `attention_mask`: from that, transformers' models know where a sequence
    ends and that nothing is to be looked at beyond. Each token of padding is a sequence of its own, at position 0.
    """

    def __call__(self, features: list[dict[str, Any]], return_tensors: str | None = None) -> Any:
        if "position_ids" not in features[0]:
            return super().__call__(features, return_tensors)
        width = max(len(row["input_ids"]) for row in features)
        width = -(-width // (self.pad_to_multiple_of or 1)) * (self.pad_to_multiple_of or 1)
        # any token will do, as nothing sees it; at one for padding, some models warn of the missing attention mask
        padding = {"input_ids": features[0]["input_ids"][0], "labels": IGNORED, "position_ids": 0}
        return {
            name: torch.tensor([[*row[name], *[value] * (width - len(row[name]))] for row in features])
            for name, value in padding.items()
        }


def is_packed(inputs: dict[str, Any]) -> bool:
    """Whether a batch holds packed rows."""
    return inputs.get("position_ids") is not None and inputs.get("attention_mask") is None


def count_packed_tokens(position_ids: torch.Tensor) -> torch.Tensor:
    """Number of tokens that are no padding: every sequence has a token at position 1, and so one at 0."""
    return (position_ids > 0).sum() + (position_ids == 1).sum()


def check_packable(model: Any) -> None:
    """
    Raises where a model does not keep packed sequences apart. It is run on two of them, together and each alone: the
    logits of the second must not depend on the first at all, and both must have the same logits as alone.
    """
    base = unwrap(model)
    name = type(base).__name__
    if "position_ids" not in inspect.signature(base.forward).parameters:
        raise _not_packable(f"{name} takes no position_ids")
    modes = [(module, module.training) for module in base.modules()]
    try:
        base.eval()
        dependence, difference = _try_packing(base)
    finally:
        for module, training in modes:
            module.training = training
    exact = base.dtype in (torch.float32, torch.float64)
    if dependence > 0:
        raise _not_packable(f"{name} mixes sequences that are packed together")
    if not difference <= (TOLERANCE if exact else HALF_TOLERANCE):
        raise _not_packable(f"{name} reads a packed sequence in another way than the same one alone")


def _not_packable(reason: str) -> UserError:
    return UserError(
        f"packing=True is not possible with this model: {reason}. Leave it out; "
        "train_sampling_strategy='group_by_length' makes batches with little padding."
    )


def _try_packing(base: Any) -> tuple[float, float]:
    """
    The largest derivative of the logits of the second of two packed sequences by the embeddings of the first, and the
    largest difference of the logits of both to those of each alone, relative to the largest logit.
    """
    device, embeddings = base.device, base.get_input_embeddings()
    generator, first = torch.Generator().manual_seed(0), TRIED[0]
    size = embeddings.weight.shape[0]
    alone = [torch.randint(size, (1, length), generator=generator).to(device) for length in TRIED]
    unused = getattr(base.config.get_text_config(), "pad_token_id", None)
    alone = [ids.where(ids != (-1 if unused is None else unused), (ids + 1) % size) for ids in alone]
    positions = torch.cat([torch.arange(length) for length in TRIED]).unsqueeze(0).to(device)
    embedded: list[torch.Tensor] = []

    def keep(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    with torch.no_grad():
        expected = torch.cat([base(input_ids=ids, use_cache=False)["logits"].float() for ids in alone], 1)
    hook = embeddings.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            packed = base(input_ids=torch.cat(alone, 1), position_ids=positions, use_cache=False)["logits"].float()
            [gradient] = torch.autograd.grad(packed[:, first:].square().sum(), embedded[:1])
    finally:
        hook.remove()
    difference = (packed.detach() - expected).abs().max() / expected.abs().max().clamp(min=1e-30)
    return float(gradient[:, :first].abs().max()), float(difference)
