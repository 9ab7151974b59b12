"""Texts that come token by token are those that come at once, in tokens, numbers and scores."""

import pytest
from helpers import CAUSAL, SENTENCES, TRANSLATIONS, make_model, make_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, TextIteratorStreamer

from clue_hf import UserError, generate_with_uncertainty, stream_with_uncertainty
from clue_hf.posthoc.token_temperature import TemperatureHead
from clue_hf.scorers import unfitted_names


#: Characters of two to four bytes, spaces of several bytes, and emoji that are joined of several.
TEXTS = ["déjà vu à Nîmes", "水の中 🦆", "a 👩‍👩‍👧 b", "x\N{IDEOGRAPHIC SPACE}y", "n'est-ce pas ?"]


def assert_same(model, tokenizer, source, names, **settings):
    stream = stream_with_uncertainty(model, tokenizer, source, names, **settings)
    tokens = list(stream)
    [expected] = generate_with_uncertainty(model, tokenizer, [source], names, **settings)
    assert stream.output == expected
    assert [token.token for token in tokens] == expected.tokens
    assert [token.log_probability for token in tokens] == expected.token_log_probabilities
    assert [token.entropy for token in tokens] == expected.token_entropies
    assert "".join(token.text for token in tokens) == expected.text
    return tokens


@pytest.mark.parametrize("kind", ["t5", "marian", "gpt2", "llama"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_a_stream_gives_what_the_call_gives(kind, calibrated):
    room = {"n_positions": 256} if kind == "gpt2" else {}  # for the question of p_true
    model, tokenizer = make_model(kind, **room), make_tokenizer(end_every_text=kind not in CAUSAL)
    names = [name for name in unfitted_names() if name != "p_true" or kind in CAUSAL]
    calibrator = TemperatureHead([0.2] * 3, [0.0] * 3, [1.0] * 3, 0.3, 0) if calibrated else None
    settings = {"max_new_tokens": 9, "num_samples": 3, "token_calibrator": calibrator}
    for source in SENTENCES[:3]:
        assert len(assert_same(model, tokenizer, source, names, **settings)) > 1


def byte_level():
    """A tokenizer of single bytes, as of GPT-2 before its merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=258, special_tokens=["<pad>", "</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>")


def byte_fallback():
    """A tokenizer that spells unknown characters in bytes, as those of Llama and Gemma."""
    names = ["<pad>", "</s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghinpstuvx-?'"]
    model = models.BPE({name: number for number, name in enumerate(names)}, [], byte_fallback=True, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>")


def forced(model, tokens):
    """The model, made to write these tokens: the more of them there are, the stronger is the bias to the next."""
    model.generation_config.sequence_bias = [[tokens[:length], 100.0 * length] for length in range(1, len(tokens) + 1)]
    return model


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
@pytest.mark.parametrize("text", TEXTS)
def test_parts_of_characters_are_held_back(make, text):
    tokenizer = make()
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    for cut in (len(tokens), len(tokens) - 1):  # the last token may be half a character
        model = forced(make_model("gpt2", vocabulary=len(tokenizer)), tokens)
        pieces = assert_same(model, tokenizer, "?", ["msp"], max_new_tokens=cut)
        assert [piece.token for piece in pieces] == tokenizer.convert_ids_to_tokens(tokens[:cut])
        assert not any("\N{REPLACEMENT CHARACTER}" in piece.text for piece in pieces[:-1])


def test_spaces_that_are_cleaned_up_later_are_held_back():
    tokenizer = make_tokenizer()
    tokenizer.clean_up_tokenization_spaces = True
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    for source in (*SENTENCES[:2], *TRANSLATIONS[:2]):
        tokens = tokenizer(source, add_special_tokens=False)["input_ids"]
        pieces = assert_same(forced(make_model("t5"), tokens), tokenizer, source, ["msp"], max_new_tokens=len(tokens))
        assert " ." not in "".join(piece.text for piece in pieces)


def test_a_stream_need_not_be_read_to_its_end():
    model, tokenizer = make_model("t5").train(), make_tokenizer()
    [expected] = generate_with_uncertainty(model, tokenizer, SENTENCES[:1], max_new_tokens=9)
    stream = stream_with_uncertainty(model, tokenizer, SENTENCES[0], max_new_tokens=9)
    next(stream)
    assert stream.output == expected == stream.output
    stream = stream_with_uncertainty(model, tokenizer, SENTENCES[0], max_new_tokens=9)
    next(stream)
    stream.close()
    assert model.training
    assert list(stream) == []
    with pytest.raises(RuntimeError, match="before its end"):
        _ = stream.output


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"num_beams": 2}, "not decoded greedily"),
        ({"mc_samples": 2}, "passes over the finished text"),
        ({"compat": "lm-polygraph"}, "`generate`"),
    ],
)
def test_what_cannot_be_streamed_says_why(settings, reason):
    stream = stream_with_uncertainty(make_model("t5", dropout=True), make_tokenizer(), SENTENCES[0], **settings)
    with pytest.raises(UserError, match=reason):
        next(stream)
    with pytest.raises(TypeError, match="one text"):
        stream_with_uncertainty(make_model("t5"), make_tokenizer(), SENTENCES)


def test_a_streamer_of_transformers_is_served_too():
    model, tokenizer = make_model("gpt2"), make_tokenizer(end_every_text=False)
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    [output] = generate_with_uncertainty(model, tokenizer, SENTENCES[:1], streamer=streamer, max_new_tokens=9)
    assert "".join(streamer).strip() == output.text
