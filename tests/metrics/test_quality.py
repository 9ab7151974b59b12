import math

import numpy as np
import pytest

from clue_hf.metrics import (
    QUALITIES,
    bootstrap_interval,
    corpus_quality,
    corpus_quality_interval,
    count_references,
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
    for references, message in (("a", "one or several"), ([[]], "prediction 0"), ([["a", None]], "prediction 0")):
        with pytest.raises(TypeError, match=message):
            sentence_quality("bleu", ["a"], references)


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
    assert found.low < found.value < found.high or name == "exact_match"


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


# ---- several references ----

TEXTS = ["the cat sat on the mat .", "a dog barks", "", "birds sing in the old tree"]
SEVERAL = [
    ["a cat sat on a mat .", "the cat is on the mat ."],
    ["dogs bark at night"],
    ["something", "anything", "nothing"],
    ["birds sing", "some birds sing in the old tree today", "birds sing in a tree"],
]


@pytest.mark.parametrize("name", QUALITIES)
def test_a_list_of_one_is_the_text_itself(name):
    texts = [first for first, *_ in SEVERAL]
    lists = [[text] for text in texts]
    assert sentence_quality(name, TEXTS, lists).tolist() == sentence_quality(name, TEXTS, texts).tolist()
    options = {"resamples": 20, "seed": 1}
    plain = corpus_quality_interval(name, TEXTS, texts, **options)
    found = corpus_quality_interval(name, TEXTS, lists, **options)
    assert found.value == plain.value
    assert found.resampled.tolist() == plain.resampled.tolist()


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_several_references_are_sacrebleus_own(name):
    import sacrebleu

    padded = [[texts[place] if place < len(texts) else None for texts in SEVERAL] for place in range(3)]
    metric = {"bleu": sacrebleu.BLEU, "chrf": sacrebleu.CHRF}[name]()
    assert corpus_quality(name, TEXTS, SEVERAL) == metric.corpus_score(TEXTS, padded).score
    assert "nrefs:var" in str(metric.get_signature())
    if name == "bleu":
        metric = sacrebleu.BLEU(effective_order=True)
    expected = [metric.sentence_score(text, refs).score / 100 for text, refs in zip(TEXTS, SEVERAL, strict=True)]
    np.testing.assert_allclose(sentence_quality(name, TEXTS, SEVERAL), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", QUALITIES)
def test_interval_of_several_references_is_the_plain_bootstrap(name, monkeypatch):
    def of_rows(texts, rows):
        return corpus_quality(name, texts.tolist(), [SEVERAL[row] for row in rows])

    plain = bootstrap_interval(of_rows, TEXTS, [0, 1, 2, 3], resamples=15, seed=2)
    monkeypatch.setattr("clue_hf.metrics.quality.CHUNK", 3)  # whose rows have other numbers of references
    assert corpus_quality_interval(name, TEXTS, SEVERAL, resamples=15, seed=2) == pytest.approx(plain, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in QUALITIES if name not in ("bleu", "chrf")])
def test_the_best_reference_counts(name):
    pairs = zip(TEXTS, SEVERAL, strict=True)
    best = [max(sentence_quality(name, [text], [one])[0] for one in refs) for text, refs in pairs]
    assert sentence_quality(name, TEXTS, SEVERAL).tolist() == best
    assert quality_signature(name, None).endswith("best of the references")
    assert "best" not in quality_signature(name)


@pytest.mark.parametrize("name", QUALITIES)
def test_order_of_the_references_does_not_matter(name):
    turned = [texts[::-1] for texts in SEVERAL]
    np.testing.assert_array_equal(sentence_quality(name, TEXTS, turned), sentence_quality(name, TEXTS, SEVERAL))
    if name != "chrf":  # of references with equal scores sacrebleu's chrF counts the n-grams of the first
        assert corpus_quality(name, TEXTS, turned) == corpus_quality(name, TEXTS, SEVERAL)


def test_number_of_references():
    assert (count_references(["a", "b"]), count_references([["a", "b"], ["c", "d"]])) == (1, 2)
    assert count_references(["a", ["b", "c"]]) is None
    for name in ("bleu", "chrf"):
        for number, written in ((1, "1"), (3, "3"), (None, "var")):
            assert f"nrefs:{written}" in quality_signature(name, number)


# As the official script judges: normalize_answer, and the F1 of version 2.0, where no answer is an answer.
@pytest.mark.parametrize(
    ("output", "reference", "exact", "f1", "contains"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1, 1, 1),
        ("An apple, a day", "apple day", 1, 1, 1),
        ("in the city of Paris", "Paris", 0, 2 * (1 / 4) / (1 + 1 / 4), 1),
        ("Denver Broncos beat Carolina", "the Denver Broncos", 0, 2 / 3, 1),
        ("nothing", "no", 0, 0, 0),
        ("cat cat", "cat", 0, 2 / 3, 1),
        ("U.S.", "US", 1, 1, 1),
        ("theory", "the ory", 0, 0, 0),
        ("", "", 1, 1, 1),
        ("the", "", 1, 1, 1),
        ("word", "", 0, 0, 0),
        ("", "word", 0, 0, 0),
    ],
)
def test_short_answers_as_squad_judges_them(output, reference, exact, f1, contains):
    for name, expected in (("exact_match", exact), ("token_f1", f1), ("contains", contains)):
        assert sentence_quality(name, [output], [reference])[0] == pytest.approx(expected)
