"""Cases of TRL's rows and settings. What TRL makes of the rows is recorded in fixtures/trl."""

import json
from pathlib import Path

import datasets
import torch
import trl_cases
from helpers import make_model
from transformers import DataCollatorForSeq2Seq

from clue_hf.settings import TRL_SETTINGS
from drop_in.sides import case, log


ROWS, SETTINGS = "TRL: rows, and the tokens and labels made of them", "TRL: settings and the log"
RECORDED = json.loads((Path(__file__).parents[1] / "fixtures/trl/recorded.json").read_text(encoding="utf-8"))
#: How the cases of trl_cases.py are called in the table.
NAMES = {
    "text": "column `text`",
    "text that ends": "a text that ends with the end token",
    "other field": "`dataset_text_field`",
    "max_length": "`max_length`",
    "formatting_func": "`formatting_func`",
    "pairs": "columns `prompt`, `completion`",
    "cut pairs": "`prompt`, `completion` cut by `max_length`",
    "pairs without a target": "completions that `max_length` cuts off entirely",
    "whole pairs": "`completion_only_loss=False`",
    "whole chat": "column `messages`, `assistant_only_loss=False`",
    "marked chat": "`assistant_only_loss=True`, template with generation marks",
    "from and value": "column `conversations` (`from`, `value`)",
    "chat pairs": "chats in `prompt`, `completion`",
    "marked chat pairs": "chats in `prompt`, `completion`, `assistant_only_loss=True`",
    "whole chat pairs": "chats in `prompt`, `completion`, `completion_only_loss=False`",
    "tools": "column `tools`",
    "tools as JSON": "column `tools` as JSON",
    "template options": "column `chat_template_kwargs`",
    "tokens": "column `input_ids` alone",
    "assistant masks": "column `assistant_masks`",
    "both masks": "columns `assistant_masks` and `completion_mask`",
    "labels": "columns `input_ids`, `labels`, `max_length`",
    "packing": "`packing`",
    "packed pairs": "`packing` of `prompt`, `completion`",
    "eos_token": "`eos_token`",
}


def sequences(row):
    """The sequences of a row, packed or not: tokens, and labels but the first, which nothing predicts."""
    if "seq_lengths" in row:
        lengths = row["seq_lengths"]
    else:
        starts = [place for place, position in enumerate(row.get("position_ids", [0])) if position == 0]
        lengths = [stop - start for start, stop in zip(starts, [*starts[1:], len(row["input_ids"])], strict=True)]
    ends = [sum(lengths[: number + 1]) for number in range(len(lengths))]
    return [
        (row["input_ids"][end - length : end], row["labels"][end - length + 1 : end])
        for end, length in zip(ends, lengths, strict=True)
    ]


def add_rows(name, example):
    @case(ROWS, NAMES[name])
    def run(side):
        rows = RECORDED["prepared"][name]
        if side.is_ours:
            tokenizer = trl_cases.make_byte_tokenizer(example.get("template", "plain"))
            settings = {"max_length": 1024, **example.get("settings", {})}
            data = datasets.Dataset.from_list(example["rows"])
            model, function = make_model("llama", vocabulary=len(tokenizer)), example.get("func")
            rows = side.trainer(
                model, train_dataset=data, processing_class=tokenizer, formatting_func=function, **settings
            ).train_dataset
        lengths = sorted(len(row["input_ids"]) for row in rows)
        parts = [part for row in rows for part in sequences(row)]
        packed = example.get("settings", {}).get("packing")  # in whichever order
        return lengths, sorted(parts) if packed else parts


for name, example in trl_cases.CASES.items():
    add_rows(name, example)


def prepared(side, rows, **settings):
    tokenizer = trl_cases.make_byte_tokenizer()
    model = make_model("llama", vocabulary=len(tokenizer))
    data = datasets.Dataset.from_list(rows)
    return side.trainer(model, train_dataset=data, processing_class=tokenizer, **settings)


@case(ROWS, "column `messages`, no setting",
      ours="only the assistant's turns are learned; `assistant_only_loss=False` is TRL's default")  # fmt: skip
def assistant_turns(side):
    if not side.is_ours:
        return RECORDED["prepared"]["whole chat"][0]["labels"]
    return prepared(side, [{"messages": trl_cases.CHAT}]).train_dataset[0]["labels"]


@case(
    ROWS,
    "a chat without an assistant turn",
    refused="Row 0 (counted from 0) has a chat without an assistant turn. Leave such rows out, or set "
    "assistant_only_loss=False to learn every token.",
)
def no_assistant(side):
    return prepared(side, [{"messages": trl_cases.CHAT[:2]}])


@case(SETTINGS, "`pad_token`")
def pad_token(side):
    if not side.is_ours:
        return 1, 1
    trainer = prepared(side, trl_cases.CASES["text"]["rows"], pad_token="<|end|>")
    return trainer.processing_class.pad_token_id, trainer.model.config.pad_token_id


@case(SETTINGS, "`chat_template_path`")
def template_path(side):
    if not side.is_ours:
        return trl_cases.MARKED
    side.folder.mkdir(parents=True)
    (side.folder / "chat.jinja").write_text(trl_cases.MARKED, encoding="utf-8")
    rows = [{"messages": trl_cases.CHAT}]
    return prepared(side, rows, chat_template_path=str(side.folder / "chat.jinja")).processing_class.chat_template


@case(SETTINGS, "`model_init_kwargs` with the name of a model")
def model_settings(side):
    folder = side.folder.with_name("model")
    tokenizer = trl_cases.make_byte_tokenizer()
    make_model("llama", vocabulary=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if not side.is_ours:
        return "torch.bfloat16"
    return str(side.trainer(str(folder), model_init_kwargs={"dtype": "bfloat16"}).model.dtype)


def first_batch(side):
    """The tokens of the first batch, and the share of targets that are the most probable tokens, counted by hand."""
    tokenizer = trl_cases.make_byte_tokenizer()
    model = make_model("llama", vocabulary=len(tokenizer))
    rows = RECORDED["prepared"]["text"][:4]
    batch = DataCollatorForSeq2Seq(tokenizer)(
        [{"input_ids": row["input_ids"], "labels": row["labels"]} for row in rows]
    )
    with torch.no_grad():
        best = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.argmax(-1)[:, :-1]
    targets = batch["labels"][:, 1:]
    return {
        "num_tokens": int(batch["attention_mask"].sum()),
        "mean_token_accuracy": ((best == targets) & (targets != -100)).sum().item() / (targets != -100).sum().item(),
    }


@case(SETTINGS, "`num_tokens`, `mean_token_accuracy` in the log", note="TRL's `entropy` is called `uncertainty`")
def log_line(side):
    if not side.is_ours:
        return first_batch(side)
    options = {"max_steps": 1, "train_sampling_strategy": "sequential"}
    trainer = prepared(side, trl_cases.CASES["text"]["rows"], **options)
    trainer.train()
    return log(trainer)[0]


def add_refused(name, reason):
    @case(SETTINGS, f"`{name}`", refused=f"`{name}`, a setting of TRL, is not supported: {reason}.")
    def run(side):
        return side.config(**{name: True})


for name, reason in TRL_SETTINGS.items():
    add_refused(name, reason)
