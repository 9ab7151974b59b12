"""How alike texts are, by words and by models, and the scores that follow from it."""

import math
import random

import numpy as np
import pytest
import torch
from helpers import SENTENCES, VOCABULARY, make_model, make_tokenizer
from rouge_score.rouge_scorer import RougeScorer
from transformers import BertConfig, BertForSequenceClassification, BertModel

from clue_hf import UserError, generate_with_uncertainty
from clue_hf.scorers import SCORERS, Collected, CollectionSettings, ScoredText, make_scorer
from clue_hf.scorers.by_similarity import BySimilarity, compare_texts, equivalent_groups
from clue_hf.scorers.similarity import common_length, load_similarity, normalized_words


CPU = torch.device("cpu")
BY_SIMILARITY = [name for name, scorer in SCORERS.items() if issubclass(scorer, BySimilarity)]


def compare(name, *texts, threshold=0.9):
    [likeness] = load_similarity(name, threshold, CPU).compare([texts])
    return likeness


def text_of(text, log_probability=-1.0, tokens=()):
    one = np.array([log_probability])
    return ScoredText(text, list(tokens), one, -one, np.exp(one), np.ones(1), True)


def collected_of(output, samples, name="jaccard", threshold=0.9):
    entry = Collected(text_of(output), samples=[text if isinstance(text, ScoredText) else text_of(text)
                                                for text in samples])  # fmt: skip
    names = {name, "rougeL", "exact"}
    compare_texts([entry], {name: load_similarity(name, threshold, CPU) for name in names})
    return entry


def test_rouge_is_that_of_rouge_score():
    draw = random.Random(0)
    words = ["the", "cats", "cat", "sleeping", "sleeps", ".", "near", "a", "Garden", "gardens", "?", "it's"]
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    for _ in range(200):
        one, other = (" ".join(draw.choices(words, k=draw.randrange(1, 12))) + " x" for _ in range(2))
        expected = scorer.score(one, other)["rougeL"].fmeasure
        assert compare("rougeL", one, other).similarity[0, 1] == pytest.approx(expected if one != other else 1.0)


def test_common_length():
    assert common_length("abcbdab", "bdcaba") == 4
    assert common_length("", "abc") == common_length("abc", "") == 0
    assert common_length("a" * 200, "a" * 150) == 150


def test_words_in_common():
    likeness = compare("jaccard", "A cat sleeps", "the cat sleeps", "a cat sleeps")
    assert likeness.similarity == pytest.approx(np.array([[1, 0.5, 1], [0.5, 1, 0.5], [1, 0.5, 1]]))
    assert likeness.equivalent.tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    assert compare("jaccard", "A cat sleeps", "the cat sleeps", threshold=0.5).equivalent.all()


def test_exact_looks_at_words_alone():
    assert normalized_words("  L'été, c'est  fini !") == ("lété", "cest", "fini")
    assert compare("exact", "A cat.", "a  cat", "a cat !").similarity.min() == 1
    assert compare("exact", "a cat", "cat a").similarity[0, 1] == 0
    assert compare("exact", "?", "!").similarity[0, 1] == 0
    assert compare("exact", "", "").equivalent.all()


@pytest.mark.parametrize("name", ["exact", "jaccard", "rougeL"])
def test_equal_texts_are_alike_in_any_script(name):
    texts = ("кошка спит", "кошка спит", "", "", "...", "...", "собака ест")
    likeness = compare(name, *texts)
    for one in range(7):
        for other in range(7):
            assert (likeness.similarity[one, other] == 1) == (texts[one] == texts[other])


def test_groups_of_samples():
    same = [(0, 2), (1, 3), (2, 4)]  # 4 is like 2, but not like the first of its group
    equivalent = np.eye(5, dtype=bool)
    for one, other in same:
        equivalent[one, other] = equivalent[other, one] = True
    assert equivalent_groups(equivalent) == [0, 1, 0, 1, 2]


def test_scores_where_all_samples_agree_and_where_none_do():
    words = [f"w{number} v{number}" for number in range(4)]
    agreed, divided = collected_of("w0 v0", ["w0 v0"] * 4), collected_of("w0 v0", words)
    expected = {
        "lexical_similarity": (-1, 0),
        "degree_matrix": (0, 0.75),
        "eccentricity": (0, math.sqrt(3)),
        "laplacian_eigenvalues": (1, 4),
        "cocoa_msp": (0, 0.75),
        "cocoa_perplexity": (0, 0.75),
        "cocoa_mean_token_entropy": (0, 0.75),
        "semantic_entropy": (1, 1),  # four samples of probability e^-1: each is its own group, or one and the same
    }
    assert sorted(expected) == sorted(BY_SIMILARITY)
    for name, values in expected.items():
        for entry, value in zip((agreed, divided), values, strict=True):
            assert make_scorer(name).score(entry) == pytest.approx(value, abs=1e-7), name


def test_semantic_entropy_adds_up_what_means_the_same():
    samples = [
        text_of("A cat.", math.log(0.3), [1]),
        text_of("a cat", math.log(0.2), [2]),
        text_of("a cat", math.log(0.2), [2]),
        text_of("a dog", math.log(0.1), [3]),
    ]
    score = make_scorer("semantic_entropy").score(collected_of("a cat", samples))
    assert score == pytest.approx(-(3 * math.log(0.5) + math.log(0.1)) / 4)


@pytest.mark.parametrize("name", ["degree_matrix", "eccentricity", "laplacian_eigenvalues"])
def test_scores_do_not_depend_on_the_order_of_the_samples(name):
    samples = ["a cat sleeps", "the cat sleeps", "a dog eats", "the old dog eats", "a cat eats"]
    one, other = (make_scorer(name).score(collected_of("", order)) for order in (samples, samples[::-1]))
    assert one == pytest.approx(other, abs=1e-9)


def save_bert(folder, kind, **settings):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=64, pad_token_id=0, **settings)  # fmt: skip
    model = kind(config).eval()
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(30)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return model


def test_a_model_that_embeds(tmp_path):
    model, tokenizer = save_bert(tmp_path, BertModel), make_tokenizer()
    texts = [*SENTENCES[:4], "the old cat eats an apple . " * 30, "", SENTENCES[0]]
    found = compare(str(tmp_path), *texts, threshold=0.7)
    vectors = []
    for text in texts:
        ids = torch.tensor([tokenizer(text)["input_ids"][:64]])
        vectors.append(model(input_ids=ids).last_hidden_state.mean(1).detach())
    vectors = torch.nn.functional.normalize(torch.cat(vectors), dim=-1)
    expected = (vectors @ vectors.T).clamp(0, 1).numpy()
    assert found.similarity[:4, :4] == pytest.approx(expected[:4, :4], abs=1e-5)
    assert found.similarity == pytest.approx(found.similarity.T)
    assert found.similarity[0, 6] == 1
    assert (found.equivalent == (found.similarity >= 0.7)).all()


def test_a_model_of_natural_language_inference(tmp_path):
    names = {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2}
    labels = {"label2id": names, "id2label": {number: name for name, number in names.items()}}
    model, tokenizer = save_bert(tmp_path, BertForSequenceClassification, **labels), make_tokenizer()
    with torch.no_grad():
        model.classifier.weight.mul_(50)
    model.save_pretrained(tmp_path)
    found = compare(str(tmp_path), *SENTENCES[:4])
    entails, likely = np.eye(4), np.eye(4, dtype=bool)
    for one in range(4):
        for other in range(4):
            if one != other:
                pair = tokenizer([[SENTENCES[one], SENTENCES[other]]], return_tensors="pt")
                values = model(**pair).logits.softmax(-1)[0].detach()
                entails[one, other], likely[one, other] = float(values[2]), values.argmax() == 2
    assert found.similarity == pytest.approx((entails + entails.T) / 2, abs=1e-5)
    assert (found.equivalent == (likely & likely.T)).all()
    assert (load_similarity(str(tmp_path), 0.9, CPU).compare([["a"], ["b", "b"]])[1].similarity == 1).all()


def test_what_is_no_similarity(tmp_path):
    model, tokenizer = make_model("t5"), make_tokenizer()
    with pytest.raises(UserError, match="`similarity` must be exact, jaccard, rougeL or a model by Hub id or folder"):
        generate_with_uncertainty(model, tokenizer, SENTENCES, ["cocoa_msp"], similarity="./nowhere")
    save_bert(tmp_path, BertForSequenceClassification, num_labels=2)
    with pytest.raises(UserError, match="classifier of LABEL_0, LABEL_1, not of natural language inference"):
        generate_with_uncertainty(model, tokenizer, SENTENCES, ["cocoa_msp"], similarity=str(tmp_path))
    with pytest.raises(UserError, match="`similarity_threshold` must be above 0 and at most 1"):
        CollectionSettings(similarity_threshold=0)


def test_a_given_similarity_is_that_of_every_scorer_but_the_lexical_one(tmp_path):
    needs = {name: set(make_scorer(name, "exact").similarities) for name in BY_SIMILARITY}
    assert needs == {name: {"rougeL" if name == "lexical_similarity" else "exact"} for name in BY_SIMILARITY}
    save_bert(tmp_path, BertModel)
    settings = {"max_new_tokens": 6, "num_samples": 3}
    plain, by_model = (
        generate_with_uncertainty(make_model("t5"), make_tokenizer(), SENTENCES, BY_SIMILARITY, **settings, **more)
        for more in ({}, {"similarity": str(tmp_path)})
    )
    for one, other in zip(plain, by_model, strict=True):
        differing = {name for name in BY_SIMILARITY if abs(one.scores[name] - other.scores[name]) > 1e-6}
        assert {"degree_matrix", "cocoa_msp"} <= differing
        assert "lexical_similarity" not in differing
