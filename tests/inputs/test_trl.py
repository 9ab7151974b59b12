"""
Rows and settings of TRL's users: the tokens and labels that TRL 1.16.0 made of the same rows, recorded by
`fixtures/trl/record.py`; and what is refused.
"""

import inspect
import json
from pathlib import Path

import datasets
import pytest
from helpers import make_model, make_trainer
from trl_cases import CASES, CHAT, MARKED, PLAIN, make_byte_tokenizer

from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.cli.train import make_parser
from clue_hf.errors import UserError
from clue_hf.inputs.text import prepare_text_dataset
from clue_hf.settings import TRL_SETTINGS


RECORDED = json.loads((Path(__file__).parents[1] / "fixtures/trl/recorded.json").read_text(encoding="utf-8"))
#: Cases whose rows are packed, and which need a trainer.
PACKED, BY_TRAINER = ("packing", "packed pairs"), ("eos_token",)


def prepare(rows, tokenizer, folder, func=None, stream=False, **settings):
    config = CLUEConfig(str(folder), use_cpu=True, **{"max_length": 1024, **settings})
    data = datasets.Dataset.from_list(rows)
    data = data.to_iterable_dataset() if stream else data
    return prepare_text_dataset(data, tokenizer, "causal", config, "train", func, training=True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if name not in (*PACKED, *BY_TRAINER)])
def test_tokens_and_labels_are_those_of_trl(name, stream, tmp_path):
    case = CASES[name]
    tokenizer = make_byte_tokenizer(case.get("template", "plain"))
    settings = case.get("settings", {})
    prepared = prepare(case["rows"], tokenizer, tmp_path, case.get("func"), stream, **settings)
    expected = RECORDED["prepared"][name]
    assert [row["input_ids"] for row in prepared] == [row["input_ids"] for row in expected]
    assert [row["labels"] for row in prepared] == [row["labels"] for row in expected]
    assert all(set(row["attention_mask"]) == {1} for row in prepared)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", PACKED)
def test_packs_are_those_of_trl(name, stream, tmp_path):
    case, expected = CASES[name], RECORDED["prepared"][name]
    packed = list(prepare(case["rows"], make_byte_tokenizer(), tmp_path, stream=stream, **case["settings"]))
    assert sorted(len(row["input_ids"]) for row in packed) == sorted(len(row["input_ids"]) for row in expected)

    def sequences(row, lengths):
        ends = [sum(lengths[: number + 1]) for number in range(len(lengths))]
        return [
            (tuple(row["input_ids"][end - length : end]), tuple(row["labels"][end - length + 1 : end]))
            for end, length in zip(ends, lengths, strict=True)
        ]

    ours, theirs = [], [part for row in expected for part in sequences(row, row["seq_lengths"])]
    for row in packed:
        starts = [place for place, position in enumerate(row["position_ids"]) if position == 0]
        lengths = [stop - start for start, stop in zip(starts, [*starts[1:], len(row["position_ids"])], strict=True)]
        assert row["position_ids"] == [place for length in lengths for place in range(length)]
        assert {row["labels"][start] for start in starts} == {-100}  # TRL's collator does this
        ours += sequences(row, lengths)
    assert sorted(ours) == sorted(theirs)


def test_special_tokens_reach_the_tokenizer_and_the_model(tmp_path):
    case, tokenizer, model = CASES["eos_token"], make_byte_tokenizer(), make_model("llama", vocabulary=260)
    trainer = make_trainer(
        model, tmp_path, datasets.Dataset.from_list(case["rows"]), processing_class=tokenizer,
        eos_token="<|im_end|>", pad_token="<|end|>",
    )  # fmt: skip
    assert trainer.train_dataset[0]["input_ids"] == RECORDED["prepared"]["eos_token"][0]["input_ids"]
    assert (model.config.eos_token_id, model.generation_config.eos_token_id) == (3, [3, 1])
    assert (tokenizer.pad_token_id, model.config.pad_token_id, model.generation_config.pad_token_id) == (1, 1, 1)
    for name in ("eos_token", "pad_token"):
        with pytest.raises(UserError, match=f"{name} '<nothing>' is not in the vocabulary"):
            make_trainer(model, tmp_path, processing_class=tokenizer, **{name: "<nothing>"})


def learned(row, tokenizer):
    """The stretches of text that are learned."""
    texts, before = [], -100
    for label in row["labels"]:
        if label != -100 and before == -100:
            texts.append([])
        if label != -100:
            texts[-1].append(label)
        before = label
    return [tokenizer.decode(tokens) for tokens in texts]


@pytest.mark.parametrize("assistant_only_loss", [None, True])
@pytest.mark.parametrize("template", ["plain", "marked"])
def test_the_assistants_turns_are_found_with_and_without_marks(template, assistant_only_loss, tmp_path):
    tokenizer = make_byte_tokenizer(template)
    [row] = prepare([{"messages": CHAT}], tokenizer, tmp_path, assistant_only_loss=assistant_only_loss)
    end = "<|im_end|>" + ("\n" if template == "plain" else "")
    assert learned(row, tokenizer) == [f"le chat{end}", f"un chien{end}"]
    assert tokenizer.decode(row["input_ids"]) == tokenizer.apply_chat_template(CHAT, tokenize=False)


def test_chats_of_people_and_gpt(tmp_path):
    chat = [{"from": "system", "value": "Translate."}, {"from": "human", "value": "the cat"}]
    tokenizer = make_byte_tokenizer()
    [row] = prepare([{"conversations": [*chat, {"from": "gpt", "value": "le chat"}]}], tokenizer, tmp_path)
    assert learned(row, tokenizer) == ["le chat<|im_end|>\n"]
    assert "<|im_start|>user\nthe cat<|im_end|>" in tokenizer.decode(row["input_ids"])


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([{"messages": CHAT}, {"messages": CHAT[:2]}], {}, "Row 1 .* has a chat without an assistant turn. Leave"),
        ([{"prompt": CHAT[:3], "completion": CHAT[3:4]}], {}, "Row 0 .* has a chat without an assistant turn"),
        ([{"messages": []}], {"assistant_only_loss": False}, "Row 0 .* has no chat"),
        ([{"messages": [{"content": "a"}]}], {"assistant_only_loss": False}, "message 0 .* has no role. Fix the data"),
        ([{"text": "a"}], {"completion_only_loss": True}, "needs the columns prompt and completion"),
        ([{"messages": CHAT}], {"completion_only_loss": True}, "needs the columns prompt and completion"),
        ([{"text": "a"}], {"assistant_only_loss": True}, "needs chats, but the column 'text' holds plain texts"),
        ([{"prompt": "a", "completion": "b"}], {"assistant_only_loss": True}, "needs chats"),
        ([{"text": "a"}], {"dataset_text_field": "texts"}, "dataset_text_field 'texts' is not in the data.*'text'"),
    ],
)
def test_rows_that_do_not_suit_are_explained(rows, settings, message, tmp_path):
    with pytest.raises(UserError, match=message):
        prepare(rows, make_byte_tokenizer(), tmp_path, **settings)


def test_a_template_without_an_assistants_mark_is_explained(tmp_path):
    tokenizer = make_byte_tokenizer("marked")
    tokenizer.chat_template = MARKED.replace("== 'assistant'", "== 'robot'")
    with pytest.raises(UserError, match="Row 0 .* the chat template marks no token"):
        prepare([{"messages": CHAT}], tokenizer, tmp_path)


def test_whole_chats_need_no_assistant(tmp_path):
    [row] = prepare([{"messages": CHAT[:2]}], make_byte_tokenizer(), tmp_path, assistant_only_loss=False)
    assert row["labels"] == row["input_ids"]


def test_a_formatting_function_makes_one_text(tmp_path):
    with pytest.raises(UserError, match="must return the text of one row, but returned a list"):
        prepare([{"a": "b"}], make_byte_tokenizer(), tmp_path, lambda row: [row["a"]])
    with pytest.raises(UserError, match="formatting_func is for causal"):
        CLUETrainer(make_model("t5"), formatting_func=str)


def test_a_template_from_a_file_or_another_tokenizer(tmp_path):
    model, other = make_model("llama", vocabulary=260), make_byte_tokenizer("marked")
    (tmp_path / "chat.jinja").write_text(PLAIN, encoding="utf-8")
    other.save_pretrained(tmp_path / "other")
    for place, template in ((tmp_path / "chat.jinja", PLAIN), (tmp_path / "other", MARKED)):
        tokenizer = make_byte_tokenizer()
        tokenizer.chat_template = None
        make_trainer(model, tmp_path, processing_class=tokenizer, chat_template_path=str(place))
        assert tokenizer.chat_template == template
    other.add_tokens(["<|new|>"])
    other.chat_template = "<|new|>" + PLAIN
    other.save_pretrained(tmp_path / "new")
    for place, message in (("absent.jinja", "does not exist"), (str(tmp_path / "new"), "writes '<|new|>', which")):
        with pytest.raises(UserError, match=message.replace("|", r"\|")):
            make_trainer(model, tmp_path, processing_class=make_byte_tokenizer(), chat_template_path=place)


def test_settings_of_from_pretrained(tmp_path):
    make_model("llama", vocabulary=260).save_pretrained(tmp_path / "model")
    make_byte_tokenizer().save_pretrained(tmp_path / "model")

    def load(**settings):
        config = CLUEConfig(str(tmp_path), use_cpu=True, model_init_kwargs=settings)
        return CLUETrainer(str(tmp_path / "model"), config).model

    model = load(attn_implementation="eager", dtype="bfloat16", attention_dropout=0.25)
    assert (model.config._attn_implementation, str(model.dtype)) == ("eager", "torch.bfloat16")
    assert model.config.attention_dropout == 0.25
    assert str(load().dtype) == "torch.float32"
    with pytest.raises(UserError, match="trust_remote_code is not supported"):
        load(trust_remote_code=True)
    with pytest.raises(UserError, match="'no_such_setting' is not a setting of"):
        load(no_such_setting=1)


def test_every_setting_of_trl_is_known_or_refused_with_a_reason(tmp_path):
    ours = set(inspect.signature(CLUEConfig).parameters)
    assert set(RECORDED["settings"]) - ours <= set(TRL_SETTINGS)
    assert not ours & set(TRL_SETTINGS)
    for name in TRL_SETTINGS:
        with pytest.raises(UserError, match=f"`{name}`, a setting of TRL, is not supported: "):
            CLUEConfig(str(tmp_path), **{name: True})
        with pytest.raises(UserError, match="a setting of TRL, is not supported"):
            make_parser().parse([f"--{name}", "true"])
    assert RECORDED["arguments"] == ["formatting_func", "peft_config", "quantization_config"]
    with pytest.raises(UserError, match="`quantization_config`, a setting of TRL, is not supported"):
        CLUETrainer(make_model("gpt2"), quantization_config=object())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 64, "max_source_length": 32}, "Set `max_length`, .* or `max_source_length`, not both"),
        ({"max_length": 64, "max_target_length": 32}, "Set `max_length`, .* or `max_target_length`, not both"),
        ({"max_length": 1}, "`max_length` must be at least 2"),
        ({"dataset_num_proc": 2, "preprocessing_num_workers": 3}, "`dataset_num_proc` or `preprocessing_num_workers`"),
        ({"packing": True, "level": "sequence"}, "not defined for packed rows"),
        ({"model_init_kwargs": "bfloat16"}, "`model_init_kwargs` must be a map"),
    ],
)
def test_contradictions_are_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        CLUEConfig(str(tmp_path), use_cpu=True, **settings)


def test_a_maximum_length_is_that_of_prompts_at_use(tmp_path):
    config = CLUEConfig(str(tmp_path), use_cpu=True, max_length=64, dataset_num_proc=2, pad_to_multiple_of="auto")
    assert (config.max_source_length, config.max_target_length) == (64, 64)
    assert (config.preprocessing_num_workers, config.pad_to_multiple_of) == (2, None)
    again = CLUEConfig(**{name: getattr(config, name) for name in ("output_dir", "use_cpu", "max_length",
                       "max_source_length", "max_target_length")})  # fmt: skip
    assert again.max_source_length == 64
    assert CLUEConfig(str(tmp_path), use_cpu=True, max_length=2000).max_target_length == 128


@pytest.mark.parametrize("kind", ["t5", "classifier"])
@pytest.mark.parametrize("setting", [{"max_length": 9}, {"packing": True}, {"eval_packing": True},
                                     {"completion_only_loss": True}, {"assistant_only_loss": False},
                                     {"dataset_text_field": "a"}])  # fmt: skip
def test_settings_of_causal_models_are_refused_elsewhere(kind, setting, tmp_path):
    from classifiers import make_text_classifier

    with pytest.raises(UserError, match=f"{next(iter(setting))} is for causal language models"):
        make_trainer(make_text_classifier()[0] if kind == "classifier" else make_model(kind), tmp_path, **setting)
