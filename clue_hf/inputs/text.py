"""From texts to `input_ids` and `labels`: pairs, prompts with completions, chats and plain texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from transformers.utils import logging

from ..data.columns import check_texts, column_values, find_pair
from ..errors import UserError


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..config import CLUEConfig

logger = logging.get_logger(__name__)
IGNORED = -100
#: Rows whose tokens are looked at together.
CHECKED_AT_ONCE = 10_000


@dataclass(frozen=True)
class TextSettings:
    """What decides the tokens. `datasets` caches by it: another alpha must not tokenise the data again."""

    source_prefix: str
    max_source_length: int
    max_target_length: int

    @property
    def max_length(self) -> int:
        return self.max_source_length + self.max_target_length


# Columns that say whether a text was cut; read for the report, then dropped.
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
        dataset = datasets.Dataset.from_list(dataset)
    if not isinstance(dataset, (datasets.Dataset, datasets.IterableDataset)):
        return dataset
    columns = dataset.column_names or list(next(iter(dataset)))
    if "labels" in columns and ("input_ids" in columns or "inputs_embeds" in columns):
        return dataset
    if isinstance(dataset, datasets.Dataset) and len(dataset) == 0:
        raise UserError(f"The {name} data has no rows.")
    encode = _choose_encoder(columns, tokenizer, kind, config)
    settings: dict[str, Any] = {"batched": True, "with_indices": True, "remove_columns": columns}
    if isinstance(dataset, datasets.IterableDataset):
        return dataset.map(encode, **settings).remove_columns([CUT_SOURCE, CUT_TARGET])
    settings["num_proc"] = config.preprocessing_num_workers
    dataset = dataset.map(encode, desc=f"Tokenising {name} data", **settings)
    _report_cuts(dataset, config, name)
    return dataset.remove_columns([CUT_SOURCE, CUT_TARGET])


def has_text_pairs(dataset: Any, source: str | None, target: str | None) -> bool:
    """Whether the rows of a dataset are pairs of texts, not chats, plain texts or tokens."""
    try:
        pair = find_pair(dataset.column_names, source, target)
    except UserError:
        return False
    first = {name: [value] for name, value in dataset[0].items()}
    return all(isinstance(column_values(first, path, "source_column")[0], str) for path in pair)


def check_tokens(dataset: Any, sizes: dict[str, int | None], name: str) -> None:
    """
    Raises where a tokenised dataset has tokens that the model does not, as with another model's tokenizer: they would
    end the training at the batch they are in. `sizes` holds the size of the vocabulary for each column.
    """
    if isinstance(dataset, dict):
        for key, part in dataset.items():
            check_tokens(part, sizes, key)
    if not isinstance(dataset, datasets.Dataset):
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


def count_cuts(dataset: datasets.Dataset) -> tuple[int, int]:
    """How many sources and targets of a freshly tokenised dataset were truncated."""
    table = dataset.with_format("numpy", columns=[CUT_SOURCE, CUT_TARGET])
    return int(table[CUT_SOURCE][:].sum()), int(table[CUT_TARGET][:].sum())


def _report_cuts(dataset: datasets.Dataset, config: CLUEConfig, name: str) -> None:
    sources, targets = count_cuts(dataset)
    for count, what in ((sources, "source"), (targets, "target")):
        option = f"max_{what}_length"
        for message in cut_message(count, len(dataset), f"{name} {what}s", option, getattr(config, option)):
            logger.warning(message)


def _choose_encoder(columns: list[str], tokenizer: Any, kind: str, config: CLUEConfig) -> Any:
    settings = TextSettings(config.source_prefix, config.max_source_length, config.max_target_length)
    named = config.source_column or config.target_column
    if kind == "causal" and not named:
        if "input_ids" in columns:
            return partial(_encode_ids, settings=settings)
        if "messages" in columns:
            return partial(_encode_chats, tokenizer=tokenizer, settings=settings)
        if "text" in columns and not {"prompt", "completion"} <= set(columns):
            return partial(_encode_plain, tokenizer=tokenizer, settings=settings)
    source, target = find_pair(columns, config.source_column, config.target_column)
    return partial(_encode_pairs, tokenizer=tokenizer, kind=kind, settings=settings, source=source, target=target)


def _encode_pairs(
    rows: dict[str, list[Any]],
    indices: list[int],
    tokenizer: Any,
    kind: str,
    settings: TextSettings,
    source: str,
    target: str,
) -> dict[str, list[Any]]:
    sources = column_values(rows, source, "source_column")
    targets = column_values(rows, target, "target_column")
    if kind == "causal" and sources and isinstance(sources[0], list):  # a prompt and a completion of chat messages
        chats = [prompt + completion for prompt, completion in zip(sources, targets, strict=True)]
        starts = [len(prompt) for prompt in sources]
        return _encode_messages(chats, starts, indices, tokenizer, settings)
    check_texts(sources, source, "source_column", indices[0])
    check_texts(targets, target, "target_column", indices[0])
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


def encode_texts(
    tokenizer: Any, texts: list[str], limit: int, target: bool = False
) -> tuple[dict[str, list[Any]], list[bool]]:
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


def _encode_plain(
    rows: dict[str, list[Any]], indices: list[int], tokenizer: Any, settings: TextSettings
) -> dict[str, list[Any]]:
    """Plain texts: every token is a target."""
    check_texts(rows["text"], "text", "column", indices[0])
    limit = settings.max_length
    encoded = tokenizer(rows["text"], verbose=False)["input_ids"]
    ended = [ids if ids and ids[-1] == tokenizer.eos_token_id else ids + [tokenizer.eos_token_id] for ids in encoded]
    inputs = [ids[:limit] for ids in ended]
    return _batch(inputs, inputs, [len(ids) > limit for ids in ended], [False] * len(inputs))


def _encode_ids(rows: dict[str, list[Any]], indices: list[int], settings: TextSettings) -> dict[str, list[Any]]:
    """Token ids without labels: every token is a target, or those of the completion mask."""
    limit = settings.max_length
    masks = rows.get("completion_mask") or [[1] * len(ids) for ids in rows["input_ids"]]
    labels = [
        [token if chosen else IGNORED for token, chosen in zip(ids, mask, strict=True)][:limit]
        for ids, mask in zip(rows["input_ids"], masks, strict=True)
    ]
    inputs = [ids[:limit] for ids in rows["input_ids"]]
    return _batch(inputs, labels, [len(ids) > limit for ids in rows["input_ids"]], [False] * len(inputs))


def _encode_chats(
    rows: dict[str, list[Any]], indices: list[int], tokenizer: Any, settings: TextSettings
) -> dict[str, list[Any]]:
    return _encode_messages(rows["messages"], [0] * len(indices), indices, tokenizer, settings)


def _encode_messages(
    chats: list[list[dict]], starts: list[int], indices: list[int], tokenizer: Any, settings: TextSettings
) -> dict[str, list[Any]]:
    """Chats through the tokenizer's template; the targets are the assistant's turns from message `start` on."""
    if tokenizer.chat_template is None:
        raise UserError("The data holds chat messages, but the tokenizer has no chat template.")
    limit = settings.max_length
    inputs, labels, cut = [], [], []
    for chat, start, index in zip(chats, starts, indices, strict=True):
        ids: list[int] = []
        label: list[int] = []
        for text, is_target in _pieces(tokenizer, chat, start, index):
            tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            ids += tokens
            label += tokens if is_target else [IGNORED] * len(tokens)
        inputs.append(ids[:limit])
        labels.append(label[:limit])
        cut.append(len(ids) > limit)
    return _batch(inputs, labels, cut, [False] * len(cut))


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
                "assistant's words cannot be told apart. Use prompt and completion columns."
            )
        pieces += [(whole[position : len(prompt)], False), (whole[len(prompt) : len(answered)], True)]
        position = len(answered)
    return [*pieces, (whole[position:], False)]


def _render(tokenizer: Any, messages: list[dict], **options: Any) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, **options)


def _batch(inputs: list, labels: list, cut_sources: list[bool], cut_targets: list[bool]) -> dict[str, list[Any]]:
    return {
        "input_ids": inputs,
        "attention_mask": [[1] * len(ids) for ids in inputs],
        "labels": labels,
        CUT_SOURCE: cut_sources,
        CUT_TARGET: cut_targets,
    }
