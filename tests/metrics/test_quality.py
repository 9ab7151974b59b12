import math

import pytest

from clue_hf.metrics import QUALITIES, corpus_quality


REFERENCES = ["the cat sat on the mat .", "a dog barks loudly at night ."]


@pytest.mark.parametrize("name", QUALITIES)
def test_the_same_text_is_perfect_and_another_is_not(name):
    assert corpus_quality(name, REFERENCES, REFERENCES) == pytest.approx(100)
    assert corpus_quality(name, ["zzz", "qqq"], REFERENCES) < 5


def test_bleu_is_corpus_bleu_not_a_mean():
    import sacrebleu

    texts = ["the cat sat on a mat .", "a dog"]
    assert corpus_quality("bleu", texts, REFERENCES) == sacrebleu.corpus_bleu(texts, [REFERENCES]).score
    with pytest.raises(ValueError, match="1 predictions but 2 references"):
        corpus_quality("bleu", ["a"], REFERENCES)
    with pytest.raises(ValueError, match="quality"):
        corpus_quality("blue", REFERENCES, REFERENCES)
    assert math.isnan(corpus_quality("rouge2", [], []))
