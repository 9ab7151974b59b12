"""From texts to `input_ids` and `labels`: pairs, prompts with completions, chats and plain texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, IterableDataset
from transformers.utils import logging

from ..data.columns import as_references, check_texts, column_values, find_pair
from ..errors import UserError
from .base import InputSettings


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..config import CLUEConfig

logger = logging.get_logger(__name__)
#: Some rows as columns.
Batch = dict[str, list[Any]]
IGNORED = -100
#: Rows whose tokens are looked at together.
CHECKED_AT_ONCE = 10_000
#: Columns that say whether a text was cut; read for the report, then dropped.
CUT_SOURCE, CUT_TARGET = "source_was_cut", "target_was_cut"


def prepare_text_dataset(
    dataset: Any, tokenizer: PreTrainedTokenizerBase, kind: str, config: CLUEConfig, name: str
) -> Any:
    """
    Tokenises a dataset for `kind` (`"seq2seq"` or `"causal"`) unless it already is; a dict of datasets works too.

    Truncated texts are counted and reported, nothing is dropped.
    """
    if isinstance(dataset, dict):
        return {key: prepare_text_dataset(part, tokenizer, kind, config, key) for key, part in dataset.items()}
    if isinstance(dataset, list):
        dataset = Dataset.from_list(dataset)
    if not isinstance(dataset, (Dataset, IterableDataset)):
        return dataset
    columns = dataset.column_names or list(next(iter(dataset)))
    if "labels" in columns and ("input_ids" in columns or "inputs_embeds" in columns):
        return dataset
    if isinstance(dataset, Dataset) and len(dataset) == 0:
        raise UserError(f"The {name} data has no rows.")
    settings = InputSettings.from_config(config)
    encode = _choose_encoder(columns, tokenizer, kind, settings)
    if isinstance(dataset, IterableDataset):
        encoded = dataset.map(encode, batched=True, with_indices=True, remove_columns=columns)
        return encoded.remove_columns([CUT_SOURCE, CUT_TARGET])
    return encode_dataset(dataset, encode, settings, config.preprocessing_num_workers, name)


def encode_dataset(
    dataset: Dataset, encode: Callable, settings: InputSettings, num_proc: int | None, name: str
) -> Dataset:
    """Tokenises a dataset with a function of a batch of rows and their numbers; reports how many texts it cut."""
    desc, columns = f"Tokenising {name} data", dataset.column_names
    encoded = dataset.map(
        encode, batched=True, with_indices=True, remove_columns=columns, num_proc=num_proc, desc=desc
    )
    limits = {CUT_SOURCE: settings.max_source_length, CUT_TARGET: settings.max_target_length}
    cut_columns = [column for column in limits if column in encoded.column_names]
    for column in cut_columns:
        count, what = sum(encoded[column][:]), column.split("_")[0]
        for note in cut_message(count, len(encoded), f"{name} {what}s", f"max_{what}_length", limits[column]):
            logger.warning(note)
    return encoded.remove_columns(cut_columns)


def has_text_pairs(dataset: Any, source: str | None, target: str | None) -> bool:
    """Whether the rows of a dataset are pairs of texts, not chats, plain texts or tokens."""
    try:
        pair = find_pair(dataset.column_names, source, target)
    except UserError:
        return False
    first = {name: [value] for name, value in dataset[0].items()}
    text, reference = (column_values(first, path, "source_column")[0] for path in pair)
    if isinstance(reference, list) and reference:
        reference = reference[0]
    return isinstance(text, str) and isinstance(reference, str)


def check_tokens(dataset: Any, sizes: dict[str, int | None], name: str) -> None:
    """
    Raises where a tokenised dataset has tokens that the model does not, as with another model's tokenizer: they would
    end the training at the batch they are in. `sizes` holds the size of the vocabulary for each column.
    """
    if isinstance(dataset, dict):
        for key, part in dataset.items():
            check_tokens(part, sizes, key)
    if not isinstance(dataset, Dataset):
        return
    known = [column for column, size in sizes.items() if size and column in dataset.column_names]
    tables = dataset.select_columns(known).with_format("arrow").iter(CHECKED_AT_ONCE) if known else ()
    for number, table in enumerate(tables):
        for column in known:
            lists = table[column].combine_chunks()
            if not pa.types.is_integer(getattr(lists.type, "value_type", pa.null())):
                continue  # reported where it is used
            tokens = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero((tokens != IGNORED) & ((tokens < 0) | (tokens >= sizes[column])))
            if len(wrong):
                row = number * CHECKED_AT_ONCE + pc.list_parent_indices(lists)[int(wrong[0])].as_py()
                token, size = tokens[wrong[0]], sizes[column]
                raise UserError(
                    f"Row {row} (counted from 0) of the {name} data has the token {token} in {column!r}, which is "
                    f"outside the model's vocabulary of {size} entries: was it made with another model's tokenizer? "
                    "Otherwise: model.resize_token_embeddings(len(tokenizer))."
                )


def _choose_encoder(columns: list[str], tokenizer: Any, kind: str, settings: InputSettings) -> Any:
    """
    A function of a batch of rows and their numbers. It holds only what decides the tokens: `datasets` caches by it,
    and another alpha must not tokenise the data again.
    """
    limit = settings.max_source_length + settings.max_target_length
    if kind == "causal" and not (settings.source_column or settings.target_column):
        if "input_ids" in columns:
            return partial(_encode_ids, limit=limit)
        if "messages" in columns:
            return partial(_encode_chats, tokenizer=tokenizer, limit=limit)
        if "text" in columns and not {"prompt", "completion"} <= set(columns):
            return partial(_encode_plain, tokenizer=tokenizer, limit=limit)
    source, target = find_pair(columns, settings.source_column, settings.target_column)
    settings = replace(settings, source_column=source, target_column=target)
    return partial(_encode_pairs, tokenizer=tokenizer, kind=kind, settings=settings)


def _encode_pairs(rows: Batch, indices: list[int], tokenizer: Any, kind: str, settings: InputSettings) -> Batch:
    pair = {"source_column": str(settings.source_column), "target_column": str(settings.target_column)}
    sources, targets = (column_values(rows, path, option) for option, path in pair.items())
    if kind == "causal" and sources and isinstance(sources[0], list):  # a prompt and a completion of chat messages
        chats = [prompt + completion for prompt, completion in zip(sources, targets, strict=True)]
        limit = settings.max_source_length + settings.max_target_length
        return _encode_messages(chats, [len(prompt) for prompt in sources], indices, tokenizer, limit)
    check_texts(sources, pair["source_column"], "source_column", indices[0])
    targets = [references[0] for references in as_references(targets, pair["target_column"], indices[0])]
    inputs, cut_sources = encode_sources(tokenizer, sources, settings.source_prefix, settings.max_source_length)
    completions, cut_targets = encode_targets(tokenizer, targets, settings.max_target_length, kind)
    if kind == "seq2seq":
        labels = completions
    else:
        labels = [[IGNORED] * len(prompt) + ids for prompt, ids in zip(inputs, completions, strict=True)]
        inputs = [prompt + ids for prompt, ids in zip(inputs, completions, strict=True)]
    return _batch(inputs, labels, cut_sources, cut_targets)


def encode_sources(tokenizer: Any, texts: list[str], prefix: str, limit: int) -> tuple[list[list[int]], list[bool]]:
    """Token ids of each source behind its prefix, and whether it was cut."""
    encoded, cut = encode_texts(tokenizer, [prefix + text for text in texts], limit)
    return encoded["input_ids"], cut


def encode_targets(tokenizer: Any, texts: list[str], limit: int, kind: str) -> tuple[list[list[int]], list[bool]]:
    """Token ids of each target, and whether it was cut; a causal model has no special tokens there but the end."""
    if kind == "seq2seq":
        encoded, cut = encode_texts(tokenizer, texts, limit, target=True)
        return encoded["input_ids"], cut
    ids = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    ended = [[*tokens, tokenizer.eos_token_id] for tokens in ids]
    return [tokens[:limit] for tokens in ended], [len(tokens) > limit for tokens in ended]


def encode_texts(tokenizer: Any, texts: list[str], limit: int, target: bool = False) -> tuple[Batch, list[bool]]:
    """What a tokenizer makes of each text, special tokens included, and whether it was cut to `limit` tokens."""
    argument = "text_target" if target else "text"
    encoded = dict(tokenizer(**{argument: texts}, verbose=False))
    cut = [len(ids) > limit for ids in encoded["input_ids"]]
    for row in (row for row, is_cut in enumerate(cut) if is_cut):
        shorter = tokenizer(**{argument: texts[row]}, truncation=True, max_length=limit)
        for name, values in encoded.items():
            values[row] = shorter[name]
    return encoded, cut


def cut_message(count: int, rows: int, what: str, option: str, limit: int) -> list[str]:
    """How many texts were truncated, as a sentence; nothing where none was."""
    share = f"{count:,} of {rows:,} {what} ({count / max(rows, 1):.1%})"
    return [f"{share} were truncated to {option}={limit}."] if count else []


def _encode_plain(rows: Batch, indices: list[int], tokenizer: Any, limit: int) -> Batch:
    """Plain texts: every token is a target."""
    check_texts(rows["text"], "text", "column", indices[0])
    end = tokenizer.eos_token_id
    encoded = tokenizer(rows["text"], verbose=False)["input_ids"]
    ended = [ids if ids[-1:] == [end] else [*ids, end] for ids in encoded]
    return _truncated(ended, ended, limit)


def _encode_ids(rows: Batch, indices: list[int], limit: int) -> Batch:
    """Token ids without labels: every token is a target, or those of the completion mask."""
    inputs = rows["input_ids"]
    masks = rows.get("completion_mask") or [[1] * len(ids) for ids in inputs]
    labels = [
        [token if chosen else IGNORED for token, chosen in zip(ids, mask, strict=True)]
        for ids, mask in zip(inputs, masks, strict=True)
    ]
    return _truncated(inputs, labels, limit)


def _encode_chats(rows: Batch, indices: list[int], tokenizer: Any, limit: int) -> Batch:
    return _encode_messages(rows["messages"], [0] * len(indices), indices, tokenizer, limit)


def _encode_messages(
    chats: list[list[dict]], starts: list[int], indices: list[int], tokenizer: Any, limit: int
) -> Batch:
    """Chats through the tokenizer's template; the targets are the assistant's turns from message `start` on."""
    if tokenizer.chat_template is None:
        raise UserError("The data holds chat messages, but the tokenizer has no chat template.")
    inputs, labels = [], []
    for chat, start, index in zip(chats, starts, indices, strict=True):
        ids: list[int] = []
        label: list[int] = []
        for text, is_target in _pieces(tokenizer, chat, start, index):
            tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            ids += tokens
            label += tokens if is_target else [IGNORED] * len(tokens)
        inputs.append(ids)
        labels.append(label)
    return _truncated(inputs, labels, limit)


def _pieces(tokenizer: Any, chat: list[dict], start: int, index: int) -> list[tuple[str, bool]]:
    """
    The rendered chat cut into texts that are learned and texts that are not. Each piece is tokenised on its own: a
    token never spans the border, just as in generation, where the prompt is tokenised before the answer exists.
    """
    whole, position, pieces = _render(tokenizer, chat), 0, []
    for turn in range(start, len(chat)):
        if chat[turn]["role"] != "assistant":
            continue
        prompt = _render(tokenizer, chat[:turn], add_generation_prompt=True)
        answered = _render(tokenizer, chat[: turn + 1])
        if not (whole.startswith(answered) and answered.startswith(prompt) and position <= len(prompt)):
            raise UserError(
                f"Row {index}: the chat template renders a conversation differently once it goes on, so the "
                "assistant's turns cannot be located. Use prompt and completion columns."
            )
        pieces += [(whole[position : len(prompt)], False), (whole[len(prompt) : len(answered)], True)]
        position = len(answered)
    return [*pieces, (whole[position:], False)]


def _render(tokenizer: Any, messages: list[dict], **options: Any) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, **options)


def _truncated(inputs: list[list[int]], labels: list[list[int]], limit: int) -> Batch:
    """A batch of texts that hold their targets: both are cut together, and counted as sources."""
    cut = [len(ids) > limit for ids in inputs]
    return _batch([ids[:limit] for ids in inputs], [ids[:limit] for ids in labels], cut, [False] * len(cut))


def _batch(inputs: list, labels: list, cut_sources: list[bool], cut_targets: list[bool]) -> Batch:
    return {
        "input_ids": inputs,
        "attention_mask": [[1] * len(ids) for ids in inputs],
        "labels": labels,
        CUT_SOURCE: cut_sources,
        CUT_TARGET: cut_targets,
    }
