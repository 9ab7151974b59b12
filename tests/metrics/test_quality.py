import math

import numpy as np
import pytest

from clue_hf.metrics import (
    QUALITIES,
    bootstrap_interval,
    corpus_quality,
    corpus_quality_interval,
    quality_signature,
    sentence_quality,
)


REFERENCES = ["the cat sat on the mat .", "a dog barks loudly at night ."]


@pytest.mark.parametrize("name", QUALITIES)
def test_the_same_text_is_perfect_and_another_is_not(name):
    assert corpus_quality(name, REFERENCES, REFERENCES) == pytest.approx(100)
    assert corpus_quality(name, ["zzz", "qqq"], REFERENCES) < 5


@pytest.mark.parametrize("name", QUALITIES)
def test_each_text_is_judged_from_0_to_1(name):
    values = sentence_quality(name, [REFERENCES[0], "", "zzz", "a cat"], [REFERENCES[0], "a b", "", "a dog sat"])
    assert values[0] == 1
    assert values[1] == values[2] == 0
    assert 0 <= values[3] < 1
    assert sentence_quality(name, REFERENCES * 20, REFERENCES * 20).max() == 1
    assert name[:4] in quality_signature(name) or "nrefs:1" in quality_signature(name)


def test_sentence_bleu_has_effective_order():
    import sacrebleu

    expected = sacrebleu.sentence_bleu("the cat", ["the cat ."], use_effective_order=True).score / 100
    assert sentence_quality("bleu", ["the cat"], ["the cat ."])[0] == pytest.approx(expected)
    with pytest.raises(TypeError, match="one reference for each"):
        sentence_quality("bleu", ["a"], [["a"]])


def test_bleu_is_corpus_bleu_not_a_mean():
    import sacrebleu

    texts = ["the cat sat on a mat .", "a dog"]
    assert corpus_quality("bleu", texts, REFERENCES) == sacrebleu.corpus_bleu(texts, [REFERENCES]).score
    with pytest.raises(ValueError, match="1 predictions but 2 references"):
        corpus_quality("bleu", ["a"], REFERENCES)
    with pytest.raises(ValueError, match="quality"):
        corpus_quality("blue", REFERENCES, REFERENCES)
    assert math.isnan(corpus_quality("rouge2", [], []))


@pytest.mark.parametrize("name", QUALITIES)
def test_interval_is_the_plain_bootstrap_of_the_corpus_quality(name):
    generator = np.random.default_rng(0)
    references = [" ".join(generator.choice(["the", "cat", "sat", "on", "a", "mat"], 9)) for _ in range(12)]
    predictions = [text[: generator.integers(0, 30)] for text in references]
    options = {"resamples": 15, "level": 0.8, "seed": 2}
    plain = bootstrap_interval(
        lambda texts, refs: corpus_quality(name, texts.tolist(), refs.tolist()), predictions, references, **options
    )
    found = corpus_quality_interval(name, predictions, references, **options)
    assert found == pytest.approx(plain, abs=1e-9)
    assert found.undefined == plain.undefined
    assert found.low < found.value < found.high


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_chunks_of_texts_do_not_matter_and_are_not_remembered(name, monkeypatch):
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    texts = ["the cat sat on a mat .", "a dog", "", "a dog barks at night ."]
    whole = corpus_quality_interval(name, texts, REFERENCES * 2, resamples=20)
    monkeypatch.setattr("clue_hf.metrics.quality.CHUNK", 3)
    assert corpus_quality_interval(name, texts, REFERENCES * 2, resamples=20) == whole
    sentence_quality(name, texts, REFERENCES * 2)
    assert Tokenizer13a.__call__.cache_info().currsize == 0


def test_interval_of_no_texts():
    for name in QUALITIES:
        empty = corpus_quality_interval(name, [], [], resamples=5)
        assert (empty.n, empty.undefined) == (0, 5)
        assert math.isnan(empty.value)
    with pytest.raises(ValueError, match="1 predictions but 2 references"):
        corpus_quality_interval("bleu", ["a"], REFERENCES)
