"""The scorer `learned` on real models: from a text to its features to its score."""

import numpy as np
import pytest
from helpers import CAUSAL, SENTENCES, make_model, make_tokenizer
from learned_scores import linear_score

from clue_hf import UncertaintyEvaluator, generate_with_uncertainty
from clue_hf.errors import UserError
from clue_hf.experiments.arguments import RunArguments
from clue_hf.experiments.comparison import CompareArguments
from clue_hf.scorers import DEFAULT_SCORERS, SCORERS


def parts_of(kind):
    return make_model(kind), make_tokenizer(end_every_text=kind not in CAUSAL)


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_the_score_by_its_formula(kind):
    weights = {
        "mean_of_log_probability": 0.05,
        "max_of_entropy": -0.02,
        "source_tokens": 0.01,
        "ended": 0.1,
        "pmi": 0.03,
    }
    model, tokenizer = parts_of(kind)
    names = ["learned", "perplexity", "pmi"]
    settings = {"max_new_tokens": 7, "batch_size": 3, "learned_score": linear_score(weights, ["pmi"])}
    outputs = generate_with_uncertainty(model, tokenizer, SENTENCES, names, **settings)
    alone = generate_with_uncertainty(model, tokenizer, SENTENCES, ["learned"], **settings)
    for source, output, other in zip(SENTENCES, outputs, alone, strict=True):
        ended = output.tokens[-1] == tokenizer.eos_token
        features = [
            -output.scores["perplexity"],
            max(output.token_entropies),
            len(tokenizer(source)["input_ids"]),
            ended,
            output.scores["pmi"],
        ]
        expected = 1 - (1 + np.dot(features, list(weights.values()))) / 2  # the trees say 0
        assert 0 < expected < 1
        assert output.uncertainty == output.scores["learned"] == pytest.approx(expected, abs=1e-9)
        assert other.uncertainty == pytest.approx(expected, rel=1e-5)  # the scores that it needs are collected for it


def test_where_it_is_a_single_scorer():
    single = linear_score({}, ["mc_sequence_entropy"], single="pmi")
    settings = {"max_new_tokens": 7, "num_samples": 2, "learned_score": single}
    outputs = generate_with_uncertainty(*parts_of("t5"), SENTENCES, ["learned", "pmi"], **settings)
    assert [output.scores["learned"] for output in outputs] == [output.scores["pmi"] for output in outputs]
    outputs = generate_with_uncertainty(*parts_of("t5"), SENTENCES, ["learned"], **settings)
    assert len({output.uncertainty for output in outputs}) > 1


def test_what_is_refused():
    with pytest.raises(UserError, match="clue-hf calibrate MODEL --config CONFIG.yaml --scorer learned"):
        generate_with_uncertainty(*parts_of("t5"), SENTENCES, ["learned"])
    settings = {"learned_score": linear_score({}), "compat": "lm-polygraph"}
    with pytest.raises(UserError, match="not on those of lm-polygraph"):
        generate_with_uncertainty(*parts_of("t5"), SENTENCES, ["learned"], **settings)
    with pytest.raises(UserError, match="needs the scorer 'gone'"):
        generate_with_uncertainty(*parts_of("t5"), SENTENCES, ["learned"], learned_score=linear_score({}, ["gone"]))
    # a model in training has none
    with pytest.raises(UserError, match="not 'learned'"):
        RunArguments(eval_uncertainty_scorers=["learned"])
    with pytest.raises(UserError, match="not 'learned'"):
        CompareArguments(methods=["ce"], scorers=["learned"])


def test_it_is_not_among_the_defaults():
    assert "learned" in SCORERS
    assert "learned" not in DEFAULT_SCORERS
    assert UncertaintyEvaluator().scorer_names == list(DEFAULT_SCORERS)
