"""Every scorer against its formula, computed one text at a time from the model's own logits."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from helpers import CAUSAL, SENTENCES, TRANSLATIONS, VOCABULARY, make_model, make_tokenizer
from learned_scores import linear_score

from clue_hf import UserError, generate_with_uncertainty, score_with_uncertainty
from clue_hf.predictors.text import TextPredictor
from clue_hf.scorers import DEFAULT_SCORERS, SCORERS, CollectionSettings, Collector


KINDS = ["t5", "bart", "gpt2", "llama"]
#: Enough for the question of `p_true` in single letters.
POSITIONS = {"gpt2": {"n_positions": 512}}
EVERYTHING = frozenset({"samples", "unconditional", "flatness"})


def tokenizer_for(kind):
    return make_tokenizer(end_every_text=kind not in CAUSAL)


def own_log_probabilities(model, kind, source, tokens):
    """ln p of every vocabulary entry before each token, one text alone, no padding: (tokens, vocabulary)."""
    with torch.no_grad():
        if kind in CAUSAL:
            logits = model(input_ids=torch.tensor([source + tokens])).logits[0, len(source) - 1 : -1]
        else:
            start = model.config.decoder_start_token_id
            decoder = torch.tensor([[start, *tokens[:-1]]])
            logits = model(input_ids=torch.tensor([source]), decoder_input_ids=decoder).logits[0]
    return logits.double().log_softmax(-1)


def collect(kind, sources=SENTENCES, targets=None, **settings):
    model, tokenizer = make_model(kind), tokenizer_for(kind)
    settings = {"max_new_tokens": 7, "num_samples": 3, "batch_size": 4, **settings}
    collector = Collector(model, tokenizer, EVERYTHING, CollectionSettings(**settings))
    return model, tokenizer, collector.collect(sources, targets)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_by_the_formulas(kind):
    model, tokenizer, collected = collect(kind)
    empty = tokenizer("")["input_ids"] or [tokenizer.eos_token_id]
    for source, entry in zip(SENTENCES, collected, strict=True):
        ids, tokens = tokenizer(source)["input_ids"], entry.output.tokens
        full = own_log_probabilities(model, kind, ids, tokens)
        chosen = full[range(len(tokens)), tokens].numpy()
        entropy = -(full.exp() * full).sum(-1).numpy()
        alone = own_log_probabilities(model, kind, empty, tokens)[range(len(tokens)), tokens].numpy()
        sums = []
        for sample in entry.samples:
            rows = own_log_probabilities(model, kind, ids, sample.tokens)
            ended = sample.tokens[-1] == model.config.eos_token_id
            sums.append((float(rows[range(len(sample.tokens)), sample.tokens].sum()), len(sample.tokens) - ended))
        size = full.shape[1]
        roots = (full / 2).softmax(-1).sqrt().sum(-1).numpy() / math.sqrt(size)
        expected = {
            "msp": -chosen.sum(),
            "perplexity": -chosen.mean(),
            "mean_token_entropy": entropy.mean(),
            "mc_sequence_entropy": -np.mean([total for total, _ in sums]),
            "mc_normalized_sequence_entropy": -np.mean([total / max(length, 1) for total, length in sums]),
            "pmi": -(chosen - alone).mean(),
            "cpmi": -(chosen - 0.0656 * (entropy >= 3.599) * alone).mean(),
        }
        expected |= {
            "max_token_entropy": entropy.max(),
            "self_certainty": float((full.mean(-1) + math.log(size)).mean()),
            "renyi_divergence": 2 * np.log(roots).mean(),
            "fisher_rao": -(2 / np.pi * np.arccos(roots)).mean(),
        }
        found = {name: SCORERS[name]().score(entry) for name in expected}
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_output_is_what_generate_gives(kind):
    model, tokenizer, collected = collect(kind)
    for source, entry in zip(SENTENCES, collected, strict=True):
        ids = tokenizer(source)["input_ids"]
        expected = model.generate(torch.tensor([ids]), max_new_tokens=7, do_sample=False)[0].tolist()
        expected = expected[len(ids) :] if kind in CAUSAL else expected[1:]
        assert entry.output.tokens == expected[: len(entry.output.tokens)]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_do_not_depend_on_batch_size_padding_or_order(kind):
    sources = [*SENTENCES[:4], "the old cat eats an apple . " * 3]
    model, tokenizer = make_model(kind, **POSITIONS.get(kind, {})), tokenizer_for(kind)

    def run(texts, batch_size, names):
        return generate_with_uncertainty(
            model, tokenizer, texts, names, max_new_tokens=7, batch_size=batch_size, num_samples=3
        )

    alone = run(sources, 1, ["all"])
    assert set(DEFAULT_SCORERS) < set(alone[0].scores) <= set(SCORERS)
    for together in (run(sources, 5, ["all"]), run(sources[::-1], 3, ["all"])[::-1]):
        for one, other in zip(alone, together, strict=True):
            assert one.text == other.text
            assert one.scores == pytest.approx(other.scores, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
@pytest.mark.parametrize("generation", [{}, {"do_sample": True, "temperature": 0.9}, {"num_beams": 2}])
def test_a_source_alone_is_answered_as_among_others(kind, generation):
    """Samples, sampled outputs and scores under dropout, whatever the row's number and its batch."""
    model, tokenizer = make_model(kind, dropout=True), tokenizer_for(kind)
    sources, targets = [*SENTENCES[:4], "the old cat eats an apple . " * 3], TRANSLATIONS[:5]
    settings = CollectionSettings(
        max_new_tokens=7, num_samples=3, mc_samples=4, generation=generation, source_prefix="the "
    )
    together = Collector(model, tokenizer, EVERYTHING, settings).collect(sources, references=targets)
    collector = Collector(model, tokenizer, EVERYTHING, settings)
    for source, target, expected in zip(sources, targets, together, strict=True):
        [batch] = collector.plan([source], first_row=1000)
        assert batch.rows == [1000]
        [alone] = collector.collect_batch(batch, references=[target])
        texts = [[entry.output, entry.reference, *entry.samples] for entry in (alone, expected)]
        for one, other in zip(*texts, strict=True):
            assert one.tokens == other.tokens
            assert one.log_probability == pytest.approx(other.log_probability, rel=1e-6, abs=1e-5)
            assert one.entropy == pytest.approx(other.entropy, rel=1e-6, abs=1e-5)
        assert alone.unconditional == pytest.approx(expected.unconditional, rel=1e-6, abs=1e-5)
    assert len({tuple(entry.samples[0].tokens) for entry in together}) > 2


def test_the_size_of_a_batch_is_an_argument_of_the_plan():
    collector = Collector(make_model("t5"), tokenizer_for("t5"), frozenset(), CollectionSettings(batch_size=4))
    for size, expected in ((None, 4), (2, 2), (100, len(SENTENCES))):
        batches = collector.plan(SENTENCES, batch_size=size)
        assert max(len(batch.rows) for batch in batches) == expected
        assert sorted(row for batch in batches for row in batch.rows) == list(range(len(SENTENCES)))
    assert collector.settings.batch_size == 4


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_beams_and_existing_texts_are_scored_alike(kind):
    model, tokenizer = make_model(kind), tokenizer_for(kind)
    [beamed] = generate_with_uncertainty(model, tokenizer, SENTENCES[:1], ["msp"], num_beams=3, max_new_tokens=5)
    tokens = tokenizer.convert_tokens_to_ids(beamed.tokens)
    full = own_log_probabilities(model, kind, tokenizer(SENTENCES[0])["input_ids"], tokens)
    assert beamed.uncertainty == pytest.approx(-float(full[range(len(tokens)), tokens].sum()), rel=1e-4)
    for given, source, target in zip(
        score_with_uncertainty(model, tokenizer, SENTENCES, TRANSLATIONS, ["msp", "pmi"]),
        SENTENCES,
        TRANSLATIONS,
        strict=True,
    ):
        assert given.text == target
        ids = tokenizer(target, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        full = own_log_probabilities(model, kind, tokenizer(source)["input_ids"], ids)
        assert given.scores["msp"] == pytest.approx(-float(full[range(len(ids)), ids].sum()), rel=1e-4)
        assert given.token_log_probabilities == pytest.approx(full[range(len(ids)), ids].tolist(), rel=1e-3, abs=1e-5)


def test_sampled_entropy_estimates_the_true_one():
    """At most two tokens, three of which are possible: the entropy over all texts can be summed up."""
    model, tokenizer = make_model("t5"), tokenizer_for("t5")
    allowed = [1, 5, 6]
    head = torch.nn.Linear(16, VOCABULARY)
    with torch.no_grad():
        head.weight.copy_(model.lm_head.weight / 10)
        head.bias.fill_(-math.inf)
        head.bias[allowed] = 0
    model.lm_head = head
    source = tokenizer(SENTENCES[0])["input_ids"]
    truth = 0.0
    for text in itertools.chain.from_iterable(itertools.product(allowed, repeat=length) for length in (1, 2)):
        if 1 in text[:-1] or (len(text) < 2 and text[-1] != 1):
            continue
        full = own_log_probabilities(model, "t5", source, list(text))
        total = float(full[range(len(text)), list(text)].sum())
        truth -= math.exp(total) * total
    settings = CollectionSettings(max_new_tokens=2, num_samples=2000)
    [entry] = Collector(model, tokenizer, EVERYTHING, settings).collect(SENTENCES[:1])
    drawn = [-sample.log_probability.sum() for sample in entry.samples]
    standard_error = np.std(drawn, ddof=1) / math.sqrt(len(drawn))
    assert abs(SCORERS["mc_sequence_entropy"]().score(entry) - truth) < 4 * standard_error < 0.1 * truth


def test_a_model_that_does_not_look_at_the_source_has_no_mutual_information():
    model, tokenizer = make_model("t5"), tokenizer_for("t5")
    with torch.no_grad():
        for block in model.decoder.block:
            block.layer[1].EncDecAttention.o.weight.zero_()
    for output in generate_with_uncertainty(model, tokenizer, SENTENCES, ["pmi"], max_new_tokens=5):
        assert output.uncertainty == pytest.approx(0, abs=1e-5)


def test_an_output_that_ends_at_once_is_kept_with_finite_scores():
    model, tokenizer = make_model("t5"), tokenizer_for("t5")
    model.generation_config.forced_eos_token_id = 1
    outputs = generate_with_uncertainty(model, tokenizer, SENTENCES, ["all"], max_new_tokens=1, num_samples=1)
    assert len(outputs) == len(SENTENCES)
    assert all(output.text == "" for output in outputs)
    assert all(math.isfinite(score) for output in outputs for score in output.scores.values())


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_whether_the_model_believes_its_output(kind):
    model, tokenizer = make_model(kind, **POSITIONS.get(kind, {})), tokenizer_for(kind)
    for source, output in zip(
        SENTENCES, generate_with_uncertainty(model, tokenizer, SENTENCES, ["p_true"], max_new_tokens=5), strict=True
    ):
        read = tokenizer.decode(tokenizer(source)["input_ids"], skip_special_tokens=True)
        question = (
            f"Question: {read}\n Possible answer:{output.text}\n Is the possible answer:\n (A) True\n (B) False\n"
        )
        asked, answered = (tokenizer(f"{question} The possible answer is:{end}")["input_ids"] for end in ("", " True"))
        assert answered[: len(asked)] == asked
        answer = answered[len(asked) :]
        full = own_log_probabilities(model, kind, asked, answer)
        assert output.uncertainty == pytest.approx(-float(full[range(len(answer)), answer].sum()), rel=1e-4)
    if kind == "gpt2":
        with pytest.raises(UserError, match="longer than the 64 positions of the model.*leave out `p_true`"):
            generate_with_uncertainty(make_model(kind), tokenizer, SENTENCES, ["p_true"], max_new_tokens=5)


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_all_scorers_that_can_run(kind):
    settings = {"max_new_tokens": 3, "num_samples": 2}
    predictor = TextPredictor(make_model(kind), tokenizer_for(kind), "all", **settings)
    assert sorted([*predictor.scorers, *predictor.unavailable]) == sorted(SCORERS)
    assert "clue-hf calibrate" in predictor.unavailable["learned"]
    assert ("p_true" in predictor.scorers) == (kind in CAUSAL)
    for name, reason in predictor.unavailable.items():
        with pytest.raises(UserError, match=re.escape(f"The scorer {name!r} cannot run: {reason}.")):
            TextPredictor(make_model(kind), tokenizer_for(kind), ["msp", name], **settings)
    fitted = TextPredictor(make_model(kind), tokenizer_for(kind), "all", learned_score=linear_score({}), **settings)
    assert "learned" in fitted.scorers
    assert "learned" not in fitted.unavailable


def test_samples_are_repeatable_and_leave_the_generator_alone():
    first = collect("t5", seed=3)[2]
    again = collect("t5", seed=3)[2]
    other = collect("t5", seed=4)[2]
    tokens = [[sample.tokens for entry in run for sample in entry.samples] for run in (first, again, other)]
    assert tokens[0] == tokens[1] != tokens[2]
    model, tokenizer = make_model("t5"), tokenizer_for("t5")
    state = torch.get_rng_state()
    model.train()
    Collector(model, tokenizer, EVERYTHING, CollectionSettings(max_new_tokens=3)).collect(SENTENCES)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_mistakes_are_explained():
    model, tokenizer = make_model("t5"), tokenizer_for("t5")
    with pytest.raises(ValueError, match="`scorers` must be one of msp, perplexity"):
        generate_with_uncertainty(model, tokenizer, SENTENCES, ["mps"])
    with pytest.raises(TypeError, match="a list of texts"):
        generate_with_uncertainty(model, tokenizer, "one text")
    with pytest.raises(ValueError, match="1 sources but 2 targets"):
        score_with_uncertainty(model, tokenizer, ["a"], ["b", "c"])
    assert generate_with_uncertainty(model, tokenizer, []) == []
