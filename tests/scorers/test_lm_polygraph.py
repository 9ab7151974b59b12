"""
Our scores and rejection metrics against numbers recorded from lm-polygraph 0.7.0 by `fixtures/lm_polygraph/record.py`:
a tiny trained T5, 200 phrases, greedy. It generated one text at a time, we generate in batches.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures.lm_polygraph.record import tiny_causal
from safetensors.numpy import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from clue_hf import generate_with_uncertainty, score_with_uncertainty
from clue_hf.metrics.rejection import prediction_rejection_ratio, rejection_area_minmax
from clue_hf.scorers import SCORERS, Collected, CollectionSettings, ScoredText, make_scorers
from clue_hf.scorers.by_similarity import compare_texts
from clue_hf.scorers.density import Density
from clue_hf.scorers.truth import QUESTION


FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "lm_polygraph"
RECORDED = json.loads((FIXTURES / "recorded.json").read_text(encoding="utf-8"))
SAMPLES = json.loads((FIXTURES / "samples.json").read_text(encoding="utf-8"))
SAME_INPUTS = json.loads((FIXTURES / "same_inputs.json").read_text(encoding="utf-8"))["scores"]
STATES = FIXTURES / "hidden_states.safetensors"
ALIKE, UNLIKE = ["msp", "perplexity", "mean_token_entropy"], ["pmi", "cpmi"]
TOLERANCE = 1e-4
# lm-polygraph's CPMI defaults: the values of the method's authors the wrong way round
THEIR_TAU, THEIR_LAMBDA = 0.0656, 3.599


@pytest.fixture(scope="module")
def trained():
    model = AutoModelForSeq2SeqLM.from_pretrained(FIXTURES / "model", dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(FIXTURES / "model")


@pytest.fixture(scope="module")
def ours(trained):
    limit = RECORDED["settings"]["max_new_tokens"]
    return generate_with_uncertainty(*trained, RECORDED["sources"], [*ALIKE, *UNLIKE], max_new_tokens=limit)


@torch.no_grad()
def log_probabilities(model, encoder_ids, decoder_ids):
    """ln p of every vocabulary entry after each decoder token, one text alone: (tokens, vocabulary)."""
    logits = model(input_ids=torch.tensor([encoder_ids]), decoder_input_ids=torch.tensor([decoder_ids])).logits[0]
    return logits.double().log_softmax(-1)


def teacher_forced(trained):
    """Per recorded text its tokens and the distributions they were chosen from."""
    model, tokenizer = trained
    start = model.config.decoder_start_token_id
    for source, tokens in zip(RECORDED["sources"], RECORDED["tokens"], strict=True):
        yield tokens, log_probabilities(model, tokenizer(source)["input_ids"], [start, *tokens[:-1]])


def test_same_texts(trained, ours):
    # lm-polygraph sets min_new_tokens=2; the shortest text has 5 tokens, so no row differs because of it
    _, tokenizer = trained
    assert len(ours) == 200
    assert min(map(len, RECORDED["tokens"])) > 2
    assert [output.text for output in ours] == RECORDED["texts"]
    assert [output.tokens for output in ours] == [tokenizer.convert_ids_to_tokens(row) for row in RECORDED["tokens"]]


@pytest.mark.parametrize("name", ALIKE)
def test_same_scores(ours, name):
    # 3 of the texts were cut at 32 tokens and have no end token; they agree as well
    scores = [output.scores[name] for output in ours]
    np.testing.assert_allclose(scores, RECORDED["scores"][name], rtol=0, atol=TOLERANCE)


def test_the_end_is_improbable_early(trained):
    # For its min_new_tokens=2 lm-polygraph lowers the end token's logit to the smallest one at the first two steps and
    # takes the probabilities after that; ours are the model's own. They agree where the end has no probability there,
    # as in a model that has learned to write sentences; elsewhere about -ln(1 - p(end)) per step lies between them.
    end = trained[1].eos_token_id
    assert max(float(full[:2, end].exp().max()) for _, full in teacher_forced(trained)) < 1e-5


@pytest.fixture(scope="module")
def in_compat_mode(trained):
    limit, names = RECORDED["settings"]["max_new_tokens"], [*ALIKE, *UNLIKE, "mc_sequence_entropy"]
    return generate_with_uncertainty(
        *trained, RECORDED["sources"], names, max_new_tokens=limit, num_samples=1, compat="lm-polygraph"
    )


@pytest.mark.parametrize("name", [*ALIKE, *UNLIKE])
def test_compat_mode_reproduces_the_numbers(in_compat_mode, name):
    assert [output.text for output in in_compat_mode] == RECORDED["texts"]
    scores = [output.scores[name] for output in in_compat_mode]
    np.testing.assert_allclose(scores, RECORDED["scores"][name], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", UNLIKE)
def test_mutual_information_is_another_by_default(ours, name):
    difference = np.abs(np.subtract([output.scores[name] for output in ours], RECORDED["scores"][name]))
    assert np.median(difference) > 1


def test_mutual_information_by_hand(trained):
    # written out once more from the description in clue_hf/scorers/compat.py: the encoder reads the generated text
    # (decoding and encoding again doubles the end token), the decoder reads it unshifted, m_t is read late
    model, tokenizer = trained
    end = tokenizer.eos_token_id
    theirs = {"pmi": [], "cpmi": []}
    for tokens, full in teacher_forced(trained):
        read = tokenizer(tokenizer.decode(tokens))["input_ids"]
        assert read == [*tokens, end]
        chosen, entropy = full[range(len(tokens)), tokens], -(full.exp() * full).sum(-1)
        late = log_probabilities(model, read, read)[1:][range(len(tokens)), tokens]
        late[0] = 0
        theirs["pmi"].append(-float((chosen - late).mean()))
        theirs["cpmi"].append(-float((chosen - THEIR_LAMBDA * (entropy >= THEIR_TAU) * late).mean()))
    for name in UNLIKE:
        np.testing.assert_allclose(theirs[name], RECORDED["scores"][name], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("max_rejection", [1.0, 0.5])
@pytest.mark.parametrize("name", [*ALIKE, *UNLIKE])
def test_same_rejection_metrics(name, max_rejection):
    key = "prr" if max_rejection == 1 else f"prr_{max_rejection}"
    score, quality = RECORDED["scores"][name], np.array(RECORDED["quality"])
    area = rejection_area_minmax(score, quality, max_rejection)
    oracle = rejection_area_minmax(-quality, quality, max_rejection)
    recorded = RECORDED["rejection"]
    assert area == pytest.approx(recorded[name][key], rel=0, abs=1e-6)
    assert oracle == pytest.approx(recorded["oracle"][key], rel=0, abs=1e-6)
    # the random order is exact in ours, the mean of 1000 shuffles in theirs: all of the difference comes from there
    ratio, normalized = prediction_rejection_ratio(score, quality, max_rejection), recorded[name][f"{key}_normalized"]
    assert ratio == pytest.approx(normalized, rel=0, abs=2e-3)
    shuffled = recorded["random"][key]
    assert (area - shuffled) / (oracle - shuffled) == pytest.approx(normalized, rel=0, abs=2e-6)


def collected_from(trained, samples, compat=None):
    """Our outputs for the first sources, and the recorded samples as we see them."""
    settings = CollectionSettings(max_new_tokens=RECORDED["settings"]["max_new_tokens"], compat=compat, batch_size=8)
    names = [name for name in samples["scores"] if name in SCORERS]
    scorers, collector, _ = make_scorers(*trained, names, settings)
    collector.needs = collector.needs - {"samples"}
    entries = {}
    for batch in collector.plan(RECORDED["sources"][: len(samples["tokens"])]):
        for row, prompt, entry in zip(batch.rows, batch.prompts, collector.collect_batch(batch), strict=True):
            tokens = samples["tokens"][row]
            entry.samples = collector._score(collector.reader.read([prompt] * len(tokens)), tokens)
            entries[row] = entry
    entries = [entries[row] for row in range(len(entries))]
    compare_texts(entries, collector.similarities)
    return entries, scorers


@pytest.fixture(scope="module", params=[None, "lm-polygraph"], ids=["ours", "compat"])
def sampled(request, trained):
    with torch.no_grad():
        return request.param, *collected_from(trained, SAMPLES, request.param)


def test_the_samples_are_the_recorded_ones(sampled):
    texts = [[sample.text for sample in entry.samples] for entry in sampled[1]]
    assert texts == [[text.strip() for text in row] for row in SAMPLES["texts"]]
    assert len({text for row in texts for text in row}) > len(texts)  # they differ
    assert any(len(set(row)) < len(row) for row in texts)  # and come again


@pytest.mark.parametrize("name", [name for name in SAMPLES["scores"] if name in SCORERS])
def test_scores_of_distributions_and_samples(sampled, name):
    mode, entries, scorers = sampled
    ours, theirs = np.array([scorers[name].score(entry) for entry in entries]), np.array(SAMPLES["scores"][name])
    if mode is None and name == "semantic_entropy":  # ours does not count a sample twice: one of their options
        theirs = np.array(SAMPLES["scores"]["semantic_entropy of distinct samples"])
    tolerance = TOLERANCE
    if mode is None and name in ("self_certainty", "renyi_divergence", "fisher_rao"):
        tolerance = 0.05  # at the first two steps they lower the end token, which all tokens count here
        if name != "self_certainty":  # theirs is the divergence itself, which is largest for certain texts
            assert np.corrcoef(ours, theirs)[0, 1] < -0.99
            theirs = -theirs - (2 * np.log(400) if name == "renyi_divergence" else 0)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)
    assert np.ptp(theirs) > 100 * TOLERANCE


@pytest.mark.parametrize("name", ["mahalanobis", "relative_mahalanobis", "rde"])
def test_distances_of_the_same_hidden_states(name):
    """Given its covariances, which ours shrinks before inverting them; those of `rde` are the same anyway."""
    train, background, outputs = (load_file(STATES)[part].astype(float) for part in ("train", "background", "outputs"))
    density = Density.fit(train, background, seed=42)
    same = {"precision": np.linalg.inv(np.cov(train.T)), "background_precision": np.linalg.inv(np.cov(background.T))}
    text = ScoredText("", [], *[np.empty(0)] * 4, ended=True)
    ours, shrunk = (
        [SCORERS[name](density=part).score(Collected(text, hidden=vector)) for vector in outputs]
        for part in (replace(density, **same), density)
    )
    np.testing.assert_allclose(ours, SAME_INPUTS[name], rtol=0, atol=TOLERANCE)
    assert np.ptp(ours) > 100 * TOLERANCE
    assert (shrunk == ours) == (name == "rde")


@pytest.mark.parametrize("compat", [None, "lm-polygraph"], ids=["ours", "compat"])
def test_p_true_of_the_same_texts(compat):
    """It asks for one token at least, so that the end is as improbable as any: that is all of the difference."""
    sources, texts = (RECORDED[name][: len(SAME_INPUTS["p_true"])] for name in ("sources", "texts"))
    pairs = zip(sources, texts, strict=True)
    questions = [QUESTION.format(source=source, output=text) for source, text in pairs]
    model, tokenizer = tiny_causal([*sources, *texts, *questions, "True"])
    outputs = score_with_uncertainty(model, tokenizer, sources, texts, ["p_true"], compat=compat)
    assert [output.text for output in outputs] == texts
    ours = np.array([output.uncertainty for output in outputs])
    if compat is None:
        with torch.no_grad():
            last = [model(**tokenizer(text, return_tensors="pt")).logits[0, -1].double() for text in questions]
        probabilities = torch.stack(last).softmax(-1)
        end = (probabilities[:, tokenizer.eos_token_id] - probabilities.min(-1).values).numpy()
        assert end.max() > 10 * TOLERANCE
        ours += np.log1p(-end)
    np.testing.assert_allclose(ours, SAME_INPUTS["p_true"], rtol=0, atol=TOLERANCE)
    assert np.ptp(ours) > 100 * TOLERANCE
