"""From texts to `input_ids` and `labels`: pairs, prompts with completions, chats and plain texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, IterableDataset
from transformers.utils import logging

from ..data.chats import KNOWN_CHATS, is_chat
from ..data.columns import as_references, check_column, check_texts, column_values, find_pair
from ..errors import UserError
from .base import InputSettings
from .chats import IGNORED, encode_chats, make_chats
from .packing import pack_dataset


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..config import CLUEConfig

logger = logging.get_logger(__name__)
#: Some rows as columns.
Batch = dict[str, list[Any]]
#: Rows whose tokens are looked at together.
CHECKED_AT_ONCE = 10_000
#: Columns that say what was cut, and whether any token of a row is learned; read for the report, then dropped.
CUT_SOURCE, CUT_TARGET, CUT_WHOLE, IS_LEARNED = NOTES = (
    "source_was_cut",
    "target_was_cut",
    "sequence_was_cut",
    "is_learned",
)
#: The usual column of plain texts.
TEXT = "text"


@dataclass(frozen=True)
class SequenceSettings:
    """
    How the sequences of a causal model are made of rows, as [`CLUEConfig`] says. Beside the tokenizer and
    [`InputSettings`] this is all that decides the tokens.
    """

    max_length: int | None = None
    text: str = TEXT
    completion_only: bool | None = None
    assistant_only: bool | None = None

    @classmethod
    def from_config(cls, config: CLUEConfig) -> SequenceSettings:
        """What a config says."""
        learned = (config.completion_only_loss, config.assistant_only_loss)
        return cls(config.max_length, config.dataset_text_field, *learned)

    def limit(self, settings: InputSettings) -> int:
        """Number of tokens that a sequence is cut to."""
        return self.max_length or settings.max_source_length + settings.max_target_length


#: Settings for causal models only, with the value that they have otherwise and what others use instead.
CAUSAL_SETTINGS = {
    "max_length": (None, "use max_source_length and max_target_length"),
    "packing": (False, "train_sampling_strategy='group_by_length' makes batches with little padding"),
    "eval_packing": (False, "leave it out"),
    "completion_only_loss": (None, "targets alone are learned anyway"),
    "assistant_only_loss": (None, "targets alone are learned anyway"),
    "dataset_text_field": (TEXT, "use source_column and target_column"),
}


def check_causal_settings(config: CLUEConfig, formatting_func: Any = None) -> None:
    """Raises where a setting that only causal models have is set."""
    if formatting_func is not None:
        raise UserError("formatting_func is for causal language models: give columns of source and target.")
    for name, (default, advice) in CAUSAL_SETTINGS.items():
        if getattr(config, name) != default:
            raise UserError(f"{name} is for causal language models: {advice}.")


def prepare_text_dataset(
    dataset: Any,
    tokenizer: PreTrainedTokenizerBase,
    kind: str,
    config: CLUEConfig,
    name: str,
    formatting_func: Callable[[dict[str, Any]], str] | None = None,
    training: bool = False,
    has_own_collator: bool = False,
) -> Any:
    """
    Tokenises a dataset for `kind` (`"seq2seq"`, `"causal"` or `"token"`, for which it must be tokenised) unless it
    already is, and packs it where the config says so; a dict of datasets works too. `formatting_func` makes a text of
    each row. Tokens for a user's own collator are left as they are, and so are raw rows that reach it.

    Truncated texts are counted and reported. In training, rows without a token to learn are left out and counted.
    """
    if isinstance(dataset, dict):
        options = (formatting_func, training, has_own_collator)
        return {
            key: prepare_text_dataset(part, tokenizer, kind, config, key, *options) for key, part in dataset.items()
        }
    if isinstance(dataset, list):
        dataset = Dataset.from_list(dataset)
    packed = config.packing if training else config.eval_packing
    if not isinstance(dataset, (Dataset, IterableDataset)):
        if packed and dataset is not None:
            raise UserError(f"Packing needs a datasets.Dataset, but the {name} data is a {type(dataset).__name__}.")
        return dataset
    settings, sequence = InputSettings.from_config(config), SequenceSettings.from_config(config)
    columns = dataset.column_names or list(next(iter(dataset)))
    if has_own_collator and ("input_ids" in columns or not config.remove_unused_columns):
        return dataset
    is_cut = kind == "causal" and "input_ids" in columns and (packed or config.max_length is not None)
    if "labels" in columns and ("input_ids" in columns or "inputs_embeds" in columns) and not is_cut:
        return dataset
    if isinstance(dataset, Dataset) and len(dataset) == 0:
        raise UserError(f"The {name} data has no rows.")
    if kind == "token":
        if "input_ids" in columns and not training:
            return dataset
        raise UserError(
            f"The {name} data must be tokenised, with a label for each token: columns input_ids and labels (-100 for "
            f"tokens that do not count), or a `data_collator` that makes them; its columns are {', '.join(columns)}."
        )
    if formatting_func is not None:
        dataset = _formatted(dataset, formatting_func, sequence.text, name)
        columns = dataset.column_names or [sequence.text]
    encode = _choose_encoder(columns, tokenizer, kind, settings, sequence)
    num_proc = config.preprocessing_num_workers
    if isinstance(dataset, IterableDataset):
        encoded = dataset.map(encode, batched=True, with_indices=True, remove_columns=columns)
        encoded = (encoded.filter(_is_learned) if training else encoded).remove_columns(list(NOTES))
    else:
        encoded = encode_dataset(dataset, encode, settings, num_proc, name, sequence, training)
    return pack_dataset(encoded, sequence.limit(settings), num_proc, name) if packed else encoded


def encode_dataset(
    dataset: Dataset,
    encode: Callable,
    settings: InputSettings,
    num_proc: int | None,
    name: str,
    sequence: SequenceSettings | None = None,
    training: bool = False,
) -> Dataset:
    """
    Tokenises a dataset with a function of a batch of rows and their numbers; reports how many texts it cut and, in
    training, leaves out rows without a token to learn.
    """
    desc, columns = f"Tokenising {name} data", dataset.column_names
    encoded = dataset.map(
        encode, batched=True, with_indices=True, remove_columns=columns, num_proc=num_proc, desc=desc
    )
    sequence = sequence or SequenceSettings()
    whole = "max_length" if sequence.max_length else "max_source_length + max_target_length"
    limits = {
        CUT_SOURCE: ("max_source_length", settings.max_source_length),
        CUT_TARGET: ("max_target_length", settings.max_target_length),
        CUT_WHOLE: (whole, sequence.limit(settings)),
    }
    for column in (column for column in limits if column in encoded.column_names):
        count, what = sum(encoded[column][:]), column.split("_")[0]
        for note in cut_message(count, len(encoded), f"{name} {what}s", *limits[column]):
            logger.warning(note)
    if training and IS_LEARNED in encoded.column_names:
        encoded = _learned_rows(encoded, name)
    return encoded.remove_columns([column for column in NOTES if column in encoded.column_names])


def _learned_rows(encoded: Dataset, name: str) -> Dataset:
    learned = np.flatnonzero(encoded[IS_LEARNED][:])
    if len(learned) == 0:
        raise UserError(f"No row of the {name} data has a token to learn: a larger max_length leaves more of them.")
    if len(learned) < len(encoded):
        count = len(encoded) - len(learned)
        logger.warning(f"{count:,} of {len(encoded):,} {name} rows are left out: none of their tokens is learned.")
        encoded = encoded.select(learned)
    return encoded


def _is_learned(row: dict[str, Any]) -> bool:
    return row[IS_LEARNED]


def _formatted(dataset: Any, formatting_func: Callable[[dict[str, Any]], str], column: str, name: str) -> Any:
    """Plain texts, which a user's function makes of rows."""
    columns = dataset.column_names or list(next(iter(dataset)))
    if "input_ids" in columns:
        logger.warning(f"The {name} data holds tokens: formatting_func is not used.")
        return dataset
    return dataset.map(partial(_format_row, formatting_func=formatting_func, column=column), remove_columns=columns)


def _format_row(row: dict[str, Any], formatting_func: Callable[[dict[str, Any]], str], column: str) -> dict[str, str]:
    text = formatting_func(row)
    if not isinstance(text, str):
        raise UserError(f"formatting_func must return the text of one row, but returned a {type(text).__name__}.")
    return {column: text}


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


def _choose_encoder(
    columns: list[str], tokenizer: Any, kind: str, settings: InputSettings, sequence: SequenceSettings
) -> Any:
    """
    A function of a batch of rows and their numbers. It holds only what decides the tokens: `datasets` caches by it,
    and another alpha must not tokenise the data again.
    """
    limit, is_pair = sequence.limit(settings), {"prompt", "completion"} <= set(columns)
    if kind == "causal" and not (settings.source_column or settings.target_column):
        chats = next((name for name in KNOWN_CHATS if name in columns), None)
        if "input_ids" in columns:
            return partial(_encode_ids, limit=limit, completion_only=sequence.completion_only is not False)
        if chats and not is_pair:
            _check_learned(sequence, columns, chats)
            return partial(_encode_chats, column=chats, tokenizer=tokenizer, limit=limit, sequence=sequence)
        if sequence.text != TEXT and not is_pair:
            check_column(columns, sequence.text, "dataset_text_field")
        if sequence.text in columns and not is_pair:
            _check_learned(sequence, columns, sequence.text)
            return partial(_encode_plain, column=sequence.text, tokenizer=tokenizer, limit=limit)
    source, target = find_pair(columns, settings.source_column, settings.target_column)
    settings = replace(settings, source_column=source, target_column=target)
    return partial(_encode_pairs, tokenizer=tokenizer, kind=kind, settings=settings, sequence=sequence)


def _check_learned(sequence: SequenceSettings, columns: list[str], column: str) -> None:
    """Raises where only a part of a sequence is to be learned, which the rows do not tell apart."""
    if sequence.completion_only:
        raise UserError(
            f"completion_only_loss=True needs the columns prompt and completion; the columns are {', '.join(columns)}."
        )
    if sequence.assistant_only and column not in KNOWN_CHATS:
        raise UserError(f"assistant_only_loss=True needs chats, but the column {column!r} holds plain texts.")


def _encode_pairs(
    rows: Batch, indices: list[int], tokenizer: Any, kind: str, settings: InputSettings, sequence: SequenceSettings
) -> Batch:
    pair = {"source_column": str(settings.source_column), "target_column": str(settings.target_column)}
    sources, targets = (column_values(rows, path, option) for option, path in pair.items())
    if kind == "causal" and sources and is_chat(sources[0]):  # a prompt and a completion of chat messages
        whole = [prompt + completion for prompt, completion in zip(sources, targets, strict=True)]
        starts = [0 if sequence.completion_only is False else len(prompt) for prompt in sources]
        return _encode_messages(rows, whole, starts, indices, tokenizer, sequence.limit(settings), sequence)
    if sequence.assistant_only:
        raise UserError(f"assistant_only_loss=True needs chats, but {pair['source_column']!r} holds plain texts.")
    check_texts(sources, pair["source_column"], "source_column", indices[0])
    targets = [references[0] for references in as_references(targets, pair["target_column"], indices[0])]
    ends = (settings.max_source_length, settings.max_target_length) if sequence.max_length is None else (None, None)
    inputs, cut_sources = encode_sources(tokenizer, sources, settings.source_prefix, ends[0])
    completions, cut_targets = encode_targets(tokenizer, targets, ends[1], kind)
    if kind == "seq2seq":
        return _batch(inputs, completions, [True] * len(indices), cut_sources, cut_targets)
    ignored = sequence.completion_only is not False
    labels = [
        ([IGNORED] * len(prompt) if ignored else prompt) + ids for prompt, ids in zip(inputs, completions, strict=True)
    ]
    inputs = [prompt + ids for prompt, ids in zip(inputs, completions, strict=True)]
    return _sequences(inputs, labels, sequence.limit(settings), cut_sources, cut_targets)


def encode_sources(
    tokenizer: Any, texts: list[str], prefix: str, limit: int | None
) -> tuple[list[list[int]], list[bool]]:
    """Token ids of each source behind its prefix, and whether it was cut."""
    encoded, cut = encode_texts(tokenizer, [prefix + text for text in texts], limit)
    return encoded["input_ids"], cut


def encode_targets(
    tokenizer: Any, texts: list[str], limit: int | None, kind: str
) -> tuple[list[list[int]], list[bool]]:
    """Token ids of each target, and whether it was cut; a causal model has no special tokens there but the end."""
    if kind == "seq2seq":
        encoded, cut = encode_texts(tokenizer, texts, limit, target=True)
        return encoded["input_ids"], cut
    ids = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    ended = [[*tokens, tokenizer.eos_token_id] for tokens in ids]
    return [tokens[:limit] for tokens in ended], [limit is not None and len(tokens) > limit for tokens in ended]


def encode_texts(
    tokenizer: Any, texts: list[str], limit: int | None, target: bool = False
) -> tuple[Batch, list[bool]]:
    """What a tokenizer makes of each text, special tokens included, and whether it was cut to `limit` tokens."""
    argument = "text_target" if target else "text"
    encoded = dict(tokenizer(**{argument: texts}, verbose=False))
    cut = [limit is not None and len(ids) > limit for ids in encoded["input_ids"]]
    for row in (row for row, is_cut in enumerate(cut) if is_cut):
        shorter = tokenizer(**{argument: texts[row]}, truncation=True, max_length=limit)
        for name, values in encoded.items():
            values[row] = shorter[name]
    return encoded, cut


def cut_message(count: int, rows: int, what: str, option: str, limit: int) -> list[str]:
    """How many texts were truncated, as a sentence; nothing where none was."""
    share = f"{count:,} of {rows:,} {what} ({count / max(rows, 1):.1%})"
    return [f"{share} were truncated to {option}={limit}."] if count else []


def _encode_plain(rows: Batch, indices: list[int], column: str, tokenizer: Any, limit: int) -> Batch:
    """Plain texts: every token is a target."""
    check_texts(rows[column], column, "column", indices[0])
    end = tokenizer.eos_token_id
    encoded = tokenizer(rows[column], verbose=False)["input_ids"]
    ended = [ids if ids[-1:] == [end] else [*ids, end] for ids in encoded]
    return _sequences(ended, ended, limit)


def _encode_ids(rows: Batch, indices: list[int], limit: int, completion_only: bool) -> Batch:
    """Token ids: those are targets that the labels name or, without labels, that all masks let through."""
    inputs = rows["input_ids"]
    if "labels" in rows:
        return _sequences(inputs, rows["labels"], limit)
    names = ("assistant_masks", *(("completion_mask",) if completion_only else ()))
    masks = [rows[name] for name in names if name in rows]
    learned = [list(zip(*row, strict=True)) for row in zip(*masks, strict=True)] if masks else inputs
    labels = [
        [token if not masks or all(chosen) else IGNORED for token, chosen in zip(ids, row, strict=True)]
        for ids, row in zip(inputs, learned, strict=True)
    ]
    return _sequences(inputs, labels, limit)


def _encode_chats(
    rows: Batch, indices: list[int], column: str, tokenizer: Any, limit: int, sequence: SequenceSettings
) -> Batch:
    return _encode_messages(rows, rows[column], [0] * len(indices), indices, tokenizer, limit, sequence)


def _encode_messages(
    rows: Batch,
    whole: list[Any],
    starts: list[int],
    indices: list[int],
    tokenizer: Any,
    limit: int,
    sequence: SequenceSettings,
) -> Batch:
    assistant_only = sequence.assistant_only is not False
    chats = make_chats(rows, whole, starts, indices, assistant_only)
    return _sequences(*encode_chats(chats, tokenizer, assistant_only), limit)


def _sequences(
    inputs: list[list[int]],
    labels: list[list[int]],
    limit: int,
    cut_sources: list[bool] | None = None,
    cut_targets: list[bool] | None = None,
) -> Batch:
    """A batch of texts that hold their targets: both are cut together. The first token is never predicted."""
    cut = [len(ids) > limit for ids in inputs]
    labels = [ids[:limit] for ids in labels]
    learned = [any(label != IGNORED for label in ids[1:]) for ids in labels]
    return _batch([ids[:limit] for ids in inputs], labels, learned, cut_sources, cut_targets, cut)


def _batch(
    inputs: list,
    labels: list,
    learned: list[bool],
    cut_sources: list[bool] | None = None,
    cut_targets: list[bool] | None = None,
    cut: list[bool] | None = None,
) -> Batch:
    nothing = [False] * len(inputs)
    return {
        "input_ids": inputs,
        "attention_mask": [[1] * len(ids) for ids in inputs],
        "labels": labels,
        CUT_SOURCE: cut_sources or nothing,
        CUT_TARGET: cut_targets or nothing,
        CUT_WHOLE: cut or nothing,
        IS_LEARNED: learned,
    }
