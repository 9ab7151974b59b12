import datasets
import pytest
from helpers import SENTENCES, TRANSLATIONS, make_tokenizer

from clue_hf import CLUEConfig
from clue_hf.errors import UserError
from clue_hf.inputs.text import has_text_pairs, prepare_text_dataset


TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ' : ' + m['content'] }}{% if m['role'] == 'assistant' %}</s>{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant : {% endif %}"
)


@pytest.fixture
def config(tmp_path):
    return lambda **settings: CLUEConfig(str(tmp_path), use_cpu=True, **settings)


def pairs(**columns):
    return datasets.Dataset.from_dict(columns or {"source": SENTENCES, "target": TRANSLATIONS})


def test_seq2seq_pairs_round_trip(tokenizer, config):
    data = prepare_text_dataset(pairs(), tokenizer, "seq2seq", config(source_prefix="the "), "train")
    assert data.column_names == ["input_ids", "attention_mask", "labels"]
    for row, source, target in zip(data, SENTENCES, TRANSLATIONS, strict=True):
        assert tokenizer.decode(row["input_ids"], skip_special_tokens=True) == "the " + source
        assert tokenizer.decode(row["labels"], skip_special_tokens=True) == target
        assert row["labels"][-1] == tokenizer.eos_token_id


def test_causal_pairs_mask_the_prompt_and_end(config):
    tokenizer = make_tokenizer(end_every_text=False)
    data = prepare_text_dataset(
        pairs(prompt=SENTENCES, completion=TRANSLATIONS), tokenizer, "causal", config(), "train"
    )
    for row, source, target in zip(data, SENTENCES, TRANSLATIONS, strict=True):
        prompt = tokenizer(source)["input_ids"]
        assert row["input_ids"][: len(prompt)] == prompt
        assert row["labels"][: len(prompt)] == [-100] * len(prompt)
        assert row["labels"][len(prompt) :] == row["input_ids"][len(prompt) :]
        assert row["labels"][-1] == tokenizer.eos_token_id
        assert tokenizer.decode(row["labels"][len(prompt) : -1]) == target


def test_truncation_keeps_the_end_token_and_is_reported(tokenizer, config, caplog):
    import transformers

    transformers.utils.logging.enable_propagation()
    settings = config(max_source_length=4, max_target_length=6)
    data = prepare_text_dataset(pairs(), tokenizer, "seq2seq", settings, "train")
    assert max(map(len, data["input_ids"])) == 4
    assert max(map(len, data["labels"])) == 6
    assert {row[-1] for row in data["labels"]} == {tokenizer.eos_token_id}
    longer = sum(len(tokenizer(text)["input_ids"]) > 4 for text in SENTENCES)
    messages = [record.message for record in caplog.records]
    assert any(f"{longer} of 8 train sources" in message and "max_source_length=4" in message for message in messages)
    assert any("train targets" in message for message in messages)


def test_chats_are_learned_from_the_assistant_only(config):
    tokenizer = make_tokenizer(end_every_text=False)
    tokenizer.chat_template = TEMPLATE
    chat = [
        {"role": "user", "content": "the cat"},
        {"role": "assistant", "content": "le chat"},
        {"role": "user", "content": "you see"},
        {"role": "assistant", "content": "tu vois"},
    ]
    [row] = prepare_text_dataset(pairs(messages=[chat]), tokenizer, "causal", config(), "train")
    learned = tokenizer.decode([token for token in row["labels"] if token != -100])
    assert "le chat" in learned
    assert "tu vois" in learned
    assert "cat" not in learned.replace("chat", "")
    assert "see" not in learned
    [last] = prepare_text_dataset(
        pairs(prompt=[chat[:3]], completion=[chat[3:]]), tokenizer, "causal", config(), "train"
    )
    learned = tokenizer.decode([token for token in last["labels"] if token != -100])
    assert "tu vois" in learned
    assert "le chat" not in learned


def test_plain_texts_and_token_ids(config):
    tokenizer = make_tokenizer(end_every_text=False)
    [row] = prepare_text_dataset(pairs(text=SENTENCES[:1]), tokenizer, "causal", config(), "train")
    assert row["labels"] == row["input_ids"] == [*tokenizer(SENTENCES[0])["input_ids"], tokenizer.eos_token_id]
    [row] = prepare_text_dataset(
        pairs(input_ids=[[5, 6, 7]], completion_mask=[[0, 1, 1]]), tokenizer, "causal", config(), "train"
    )
    assert row["labels"] == [-100, 6, 7]


def test_tokenised_data_and_streams(tokenizer, config):
    ready = pairs(input_ids=[[1]], labels=[[1]])
    assert prepare_text_dataset(ready, tokenizer, "seq2seq", config(), "train") is ready
    stream = prepare_text_dataset(pairs().to_iterable_dataset(), tokenizer, "seq2seq", config(), "train")
    whole = prepare_text_dataset(pairs(), tokenizer, "seq2seq", config(), "train")
    assert list(stream) == list(whole)


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        ({"source": ["a"], "target": [3]}, {}, "target_column 'target' must hold text, but row 0"),
        ({"source": [None, "a"], "target": ["b", "b"]}, {}, "row 0 .counted from 0. is empty"),
        ({"english": ["a"], "french": ["b"]}, {}, "Cannot infer the columns of the source"),
        ({"english": ["a"], "french": ["b"]}, {"source_column": "englsh", "target_column": "french"}, "'english'"),
        ({"source": [], "target": []}, {}, "has no rows"),
    ],
)
def test_mistakes_are_explained(columns, settings, message, tokenizer, config):
    with pytest.raises(UserError, match=message):
        prepare_text_dataset(pairs(**columns), tokenizer, "seq2seq", config(**settings), "train")


def test_tokens_are_cached_unless_something_that_decides_them_changes(tmp_path, config):
    path = tmp_path / "pairs.jsonl"
    pairs().to_json(path)
    data = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))

    def files(**settings):
        tokens = prepare_text_dataset(data, make_tokenizer(), "seq2seq", config(**settings), "train")
        return [file["filename"] for file in tokens.cache_files]

    assert files(alpha=0.9) == files(alpha=0.5, objective="ce", learning_rate=1e-3)
    assert files(alpha=0.9) != files(alpha=0.9, source_prefix="say ")


def test_a_byte_tokenizer(config):
    from transformers import ByT5Tokenizer

    data = prepare_text_dataset(pairs(), ByT5Tokenizer(), "seq2seq", config(), "train")
    assert data[0]["labels"] == [byte + 3 for byte in TRANSLATIONS[0].encode()] + [1]


def test_chats_need_a_template(config):
    chats = pairs(messages=[[{"role": "assistant", "content": "hi"}]])
    with pytest.raises(UserError, match="no chat template"):
        prepare_text_dataset(chats, make_tokenizer(False), "causal", config(), "train")


@pytest.mark.parametrize("kind", ["seq2seq", "causal"])
def test_the_first_of_several_references_is_learned(tokenizer, config, kind):
    several = [[target, "autre chose"] for target in TRANSLATIONS]
    plain, listed = (
        prepare_text_dataset(pairs(source=SENTENCES, target=targets), tokenizer, kind, config(), "train")
        for targets in (TRANSLATIONS, several)
    )
    assert listed[:] == plain[:]
    assert has_text_pairs(pairs(source=SENTENCES, target=several), None, None)
    for wrong, message in (([], "row 1 .* has an empty list"), (["a", None], "row 1 .*null.* at place 1")):
        data = pairs(source=SENTENCES[:2], target=[["a"], wrong])
        with pytest.raises(UserError, match=message):
            prepare_text_dataset(data, tokenizer, kind, config(), "train")
