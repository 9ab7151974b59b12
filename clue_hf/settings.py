"""Settings that users write as text."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import field
from typing import Any

from .errors import UserError


#: Settings of TRL's SFTConfig and SFTTrainer that are not supported: why, and what to use instead.
TRL_SETTINGS = {
    "activation_offloading": "activations stay where they are: gradient_checkpointing saves memory too",
    "dataset_batch_size": "rows are tokenised in batches of the size that datasets chooses",
    "dataset_kwargs": "tokenised data (input_ids and labels) is used as it is, and needs no skip_prepare_dataset",
    "eval_dataset_packing": "use eval_packing",
    "loss_type": "the loss is the objective: set objective='ce' for the plain one, 'dft' where it is registered",
    "max_prompt_length": "use max_source_length, or max_length for prompt and completion together",
    "max_seq_length": "use max_length",
    "num_of_sequences": "packing looks at all of the data",
    "packing_strategy": "sequences are packed as by 'bfd' (best-fit decreasing) and never split: remove it",
    "padding_free": "batches are rows, not one long sequence: use packing, which leaves almost no padding",
    "quantization_config": "load the model with it, and give the model instead of its name",
    "router_aux_loss_coef": "set it in the config of the model: model.config.router_aux_loss_coef",
    "shuffle_dataset": "the training data is shuffled in every epoch, packed rows too: remove it",
    "truncation_mode": "sequences keep their start ('keep_start'): remove it, or cut the data before",
    "trust_remote_code": "code of a repository is never run: load the model yourself, and give the model",
    "use_liger": "the fused head (fused_head) already avoids holding the logits: remove it",
}


def setting(default: Any, help: str) -> Any:
    """The field of a dataclass of settings, with its help for `--help` and the docs."""
    metadata = {"help": help}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def check_trl_settings(names: Iterable[str]) -> None:
    """Raises a `UserError` on the first of some names that is a setting of TRL without a counterpart here."""
    for name in names:
        if name in TRL_SETTINGS:
            raise UserError(f"`{name}`, a setting of TRL, is not supported: {TRL_SETTINGS[name]}.")


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raises a `ValueError` that names the setting and its choices unless `value` is one of them."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, not {value!r}.")


def check_minimum(minimum: int, **values: Any) -> None:
    """Raises a `UserError` that names the first setting below the minimum."""
    for name, value in values.items():
        if not value >= minimum:
            wanted = "must not be negative" if minimum == 0 else f"must be at least {minimum}"
            raise UserError(f"`{name}` {wanted}, but is {value!r}.")


def known_names(option: str, texts: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names separated by spaces or commas; raises a `UserError` where one is not known."""
    names = [name for text in texts for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise UserError(f"`{option}` must be among {', '.join(known)}, not {name!r}.")
    if not names:
        raise UserError(f"`{option}` names none of {', '.join(known)}.")
    return names


def parse_fractions(option: str, texts: Iterable[str]) -> list[float]:
    """Numbers separated by spaces or commas; raises a `UserError` where one is not a number."""
    numbers = []
    for part in (part for text in texts for part in str(text).split(",") if part):
        try:
            numbers.append(float(part))
        except ValueError:
            raise UserError(f"`{option}` must be numbers from 0 to 1, like 0.5,0.9, but there is {part!r}.") from None
    return numbers


def parse_settings(option: str, text: str, separator: str = ",") -> dict[str, Any]:
    """`"d_model=192,scale_parameter=True"` as a dict of numbers, booleans, `None` and texts."""
    settings = {}
    for assignment in text.split(separator):
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or not name:
            raise UserError(f"{option}: {assignment!r} is not of the form name=value.")
        settings[name] = _parse_value(value)
    return settings


def _parse_value(text: str) -> Any:
    literals = {"true": True, "false": False, "none": None}
    if text.lower() in literals:
        return literals[text.lower()]
    for parse in (json.loads, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text
