import pytest
import torch
from helpers import CAUSAL, SENTENCES, TRANSLATIONS, make_model, make_tokenizer
from peft import LoraConfig, get_peft_model
from scipy.stats import chisquare

from clue_hf import UserError, generate_with_uncertainty
from clue_hf.kernels.flatness import FLATNESS
from clue_hf.posthoc.token_temperature import TemperatureHead, TokenTemperature
from clue_hf.scorers import CollectionSettings, Collector, decoding
from clue_hf.scorers.decoding import Streams, choose, groups_of
from clue_hf.scorers.processors import decodes_plainly
from clue_hf.scorers.sampling import warper


VOCABULARY = 50
LOGITS = torch.linspace(-2, 2, VOCABULARY)[torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(3))]


def draw(rows, warp=None, seed=0):
    noise = torch.empty(rows, sum(groups_of(VOCABULARY))).exponential_(generator=torch.Generator().manual_seed(seed))
    return choose(LOGITS.repeat(rows, 1), noise, torch.zeros(rows, dtype=torch.bool), warp)


def test_tokens_are_drawn_from_the_softmax():
    tokens, _ = draw(100_000)
    counts = torch.bincount(tokens, minlength=VOCABULARY).double()
    assert chisquare(counts, 100_000 * LOGITS.double().softmax(-1)).pvalue > 1e-3


def test_what_is_told_about_a_token_is_the_models_own():
    for warp in (None, warper(temperature=0.5, top_k=5)):
        tokens, known = draw(200, warp)
        log_probabilities = LOGITS.double().log_softmax(-1)
        expected = torch.stack(
            [
                -log_probabilities[tokens],
                -(log_probabilities.exp() * log_probabilities).sum().expand(200),
                log_probabilities.max().exp().expand(200),
                (tokens == LOGITS.argmax()).double(),
            ],
            -1,
        )
        torch.testing.assert_close(known.double(), expected, rtol=1e-5, atol=1e-6)


def test_a_warped_distribution_is_drawn_from():
    tokens, _ = draw(20_000, warper(temperature=0.5, top_k=5))
    top = LOGITS.topk(5)
    assert set(tokens.tolist()) == set(top.indices.tolist())
    counts = torch.bincount(tokens, minlength=VOCABULARY)[top.indices].double()
    assert chisquare(counts, 20_000 * (top.values.double() / 0.5).softmax(-1)).pvalue > 1e-3


def test_greedy_rows_take_the_best_token_and_no_random_numbers():
    tokens, _ = choose(LOGITS.repeat(3, 1), torch.ones(3, sum(groups_of(VOCABULARY))), torch.ones(3, dtype=torch.bool))
    assert tokens.tolist() == [int(LOGITS.argmax())] * 3


def test_a_stream_is_its_own():
    alone = Streams([7], 4, torch.device("cpu"))
    among = Streams([1, 7, None], 4, torch.device("cpu"))
    for step in range(40):
        if step == 20:
            among.keep(torch.tensor([1]))
        torch.testing.assert_close(alone.next()[0], among.next()[1 if step < 20 else 0], rtol=0, atol=0)


def collect(kind, **settings):
    model, tokenizer = make_model(kind), make_tokenizer(end_every_text=kind not in CAUSAL)
    model.generation_config.forced_eos_token_id = None  # BART's config has one, which is a case for generate
    collector = Collector(
        model, tokenizer, {"samples"}, CollectionSettings(max_new_tokens=9, num_samples=4, **settings)
    )
    return collector, collector.collect(SENTENCES)


@pytest.mark.parametrize("kind", ["t5", "bart", "gpt2", "llama"])
def test_the_loop_agrees_with_a_pass_over_the_finished_texts(kind, monkeypatch):
    collector, found = collect(kind)
    assert collector._own_loop
    batch = collector.plan(SENTENCES)[0]
    context = collector.reader.read(batch.prompts)
    for choice in range(4):
        texts = [found[row].samples[choice] for row in batch.rows]
        scored = collector._score(context, [text.tokens for text in texts])
        for one, two in zip(texts, scored, strict=True):
            assert one.log_probability == pytest.approx(two.log_probability, rel=1e-5, abs=1e-5)
            assert one.entropy == pytest.approx(two.entropy, rel=1e-5, abs=1e-5)
            assert one.text == two.text
    for share in (0.0, 1.0):  # whether ended texts leave at once or never
        monkeypatch.setattr(decoding, "MAX_ENDED_SHARE", share)
        again = collect(kind)[1]
        assert [[s.tokens for s in e.samples] for e in again] == [[s.tokens for s in e.samples] for e in found]


#: Settings of a model's generation config that change which token comes next.
PROCESSED = {
    "bad words": {"bad_words_ids": [[5], [7, 9]]},
    "forced ends": {"forced_eos_token_id": 1, "forced_bos_token_id": 11},
    "lengths": {"min_length": 5, "min_new_tokens": 4},
    "suppressed": {"suppress_tokens": [3, 4], "begin_suppress_tokens": [8, 1]},
    "repetitions": {"no_repeat_ngram_size": 2, "repetition_penalty": 1.7},
    "biased": {"sequence_bias": [[[6], 3.0]], "renormalize_logits": True},
    "sources": {"encoder_no_repeat_ngram_size": 1, "encoder_repetition_penalty": 1.5, "no_repeat_ngram_size": 1},
    "decay": {"exponential_decay_length_penalty": [3, 1.5], "remove_invalid_values": True},
}


@pytest.mark.parametrize("kind", ["t5", "marian", "gpt2"])
@pytest.mark.parametrize("settings", PROCESSED.values(), ids=PROCESSED)
def test_settings_of_a_model_are_carried_out_as_generate_does(kind, settings):
    model, tokenizer = make_model(kind), make_tokenizer(end_every_text=kind not in CAUSAL)
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    assert decodes_plainly(model)
    fast, slow = (
        Collector(model, tokenizer, {"samples"}, CollectionSettings(max_new_tokens=9, num_samples=3)) for _ in range(2)
    )
    slow._own_loop = False
    entries, expected = fast.collect(SENTENCES), slow.collect(SENTENCES)
    for entry, other in zip(entries, expected, strict=True):
        assert entry.output.tokens == other.output.tokens
        # the probabilities stay the model's own
        assert entry.output.log_probability == pytest.approx(other.output.log_probability, rel=1e-5, abs=1e-5)
        assert entry.output.entropy == pytest.approx(other.output.entropy, rel=1e-5, abs=1e-5)
    if "min_new_tokens" in settings:
        assert min(len(sample.tokens) for entry in entries for sample in entry.samples) >= 4
    if "forced_bos_token_id" in settings and kind not in CAUSAL:  # whose texts begin with the prompt
        assert {sample.tokens[0] for entry in entries for sample in entry.samples} == {11}
    if "bad_words_ids" in settings:
        assert not any(5 in sample.tokens for entry in entries for sample in entry.samples)


def test_other_settings_of_a_model_are_left_to_generate():
    model = make_model("t5")
    assert decodes_plainly(model)
    model.generation_config.max_time = 100.0
    assert not decodes_plainly(model)
    collector = Collector(model, make_tokenizer(), {"samples"}, CollectionSettings(max_new_tokens=9, num_samples=2))
    assert len(collector.collect(SENTENCES)) == len(SENTENCES)


#: Generation configs as they are published with models of each family, with the ids of the tests' tokenizer.
PUBLISHED = {
    "t5": {},
    "mt5": {"num_beam_groups": 1, "diversity_penalty": 0.0},
    "bart": {"early_stopping": True, "forced_bos_token_id": 1, "forced_eos_token_id": 1, "length_penalty": 2.0,
             "max_length": 142, "min_length": 6, "no_repeat_ngram_size": 3, "num_beams": 4},
    "mbart": {"early_stopping": True, "forced_bos_token_id": 9, "forced_eos_token_id": 1, "num_beams": 5},
    "m2m_100": {"decoder_start_token_id": 1, "early_stopping": True, "forced_bos_token_id": 9, "max_length": 200},
    "pegasus": {"forced_eos_token_id": 1, "length_penalty": 0.6, "max_length": 64, "num_beams": 8},
    "marian": {"bad_words_ids": [[0]], "forced_eos_token_id": 1, "num_beams": 4, "renormalize_logits": True},
    "gpt2": {"do_sample": True, "max_length": 50},
    "llama": {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2]},
    "qwen2": {"do_sample": True, "repetition_penalty": 1.1, "temperature": 0.7, "top_k": 20, "min_p": 0.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_settings_run_in_the_loop_with_the_probabilities_of_a_pass_over_the_texts(kind):
    start = PUBLISHED[kind].get("decoder_start_token_id", 0)
    ids = {} if kind in CAUSAL else {"decoder_start_token_id": start}
    model, tokenizer = make_model(kind, **ids), make_tokenizer(end_every_text=kind not in CAUSAL)
    for name, value in PUBLISHED[kind].items():
        setattr(model.generation_config, name, value)
    collector = Collector(model, tokenizer, {"samples"}, CollectionSettings(max_new_tokens=9, num_samples=2))
    entries = collector.collect(SENTENCES)
    assert collector._own_loop
    batch = collector.plan(SENTENCES)[0]
    context = collector.reader.read(batch.prompts)
    for choose_text in (lambda entry: entry.output, lambda entry: entry.samples[1]):
        texts = [choose_text(entries[row]) for row in batch.rows]
        for one, two in zip(texts, collector._score(context, [text.tokens for text in texts]), strict=True):
            assert one.log_probability == pytest.approx(two.log_probability, rel=1e-5, abs=1e-5)
            assert one.entropy == pytest.approx(two.entropy, rel=1e-5, abs=1e-5)
    for source, entry in zip(SENTENCES, entries, strict=True):  # the texts are those of generate
        ids = tokenizer(source, return_tensors="pt")["input_ids"]
        expected = model.generate(input_ids=ids, max_new_tokens=9, do_sample=False, num_beams=1)[0]
        expected = expected[ids.shape[1] if kind in CAUSAL else 1 :].tolist()
        assert entry.output.tokens == expected[: len(entry.output.tokens)]


@pytest.mark.parametrize("settings", [PROCESSED["forced ends"], PROCESSED["sources"]], ids=["forced", "sources"])
def test_settings_of_a_user_are_those_of_a_generation_config(settings):
    chosen, configured = make_model("bart"), make_model("bart")
    for name, value in settings.items():
        setattr(configured.generation_config, name, value)
    limits = {"max_new_tokens": 9, "num_samples": 3}
    collectors = [
        Collector(chosen, make_tokenizer(), {"samples"}, CollectionSettings(generation=settings, **limits)),
        Collector(configured, make_tokenizer(), {"samples"}, CollectionSettings(**limits)),
    ]
    one, two = (
        [[text.tokens for text in (entry.output, *entry.samples)] for entry in collector.collect(SENTENCES)]
        for collector in collectors
    )
    assert collectors[0]._own_loop
    assert one == two


def test_beams_are_those_of_generate_and_the_encoder_runs_once():
    model, tokenizer = make_model("bart"), make_tokenizer()
    for name, value in {**PUBLISHED["bart"], "encoder_no_repeat_ngram_size": 1}.items():
        setattr(model.generation_config, name, value)
    settings = CollectionSettings(max_new_tokens=9, generation={"num_beams": 3}, batch_size=len(SENTENCES))
    collector = Collector(model, tokenizer, set(), settings)
    collector.collect(SENTENCES[:2])  # a first time, which also finds out how the model returns its logits
    passes = {"encoder": 0, "teacher-forced": 0}

    def count_encoder(*_):
        passes["encoder"] += 1

    def count_decoder(module, arguments, options):
        passes["teacher-forced"] += not options.get("use_cache")

    handles = [
        model.get_encoder().register_forward_hook(count_encoder),
        model.get_decoder().register_forward_pre_hook(count_decoder, with_kwargs=True),
    ]
    entries = collector.collect(SENTENCES)
    for handle in handles:
        handle.remove()
    assert passes == {"encoder": 1, "teacher-forced": 1}
    inputs = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    expected = model.generate(**inputs, num_beams=3, max_length=10)[:, 1:].tolist()
    assert [entry.output.tokens for entry in entries] == [
        row[: row.index(1, 1) + 1] if 1 in row[1:] else row for row in expected
    ]


TOKEN_CALIBRATORS = {
    "temperature": TokenTemperature(0.6),
    "scalars": TemperatureHead([0.2] * 3, [0.0] * 3, [1.0] * 3, 0.3, 0),
    "head": TemperatureHead([0.1] * 19, [0.0] * 19, [1.0] * 19, -0.2, 16),
}


@pytest.mark.parametrize("calibrator", TOKEN_CALIBRATORS.values(), ids=TOKEN_CALIBRATORS)
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", ["t5", "marian", "bart", "gpt2", "llama", "t5+lora", "llama+lora"])
def test_a_token_calibrator_changes_probabilities_and_no_outputs(kind, beams, calibrator):
    kind, _, adapter = kind.partition("+")
    model, tokenizer = make_model(kind), make_tokenizer(end_every_text=kind not in CAUSAL)
    if adapter:
        model = with_adapter(model, kind)
    settings = CollectionSettings(max_new_tokens=9, num_samples=2, generation={"num_beams": beams})
    raw, tempered = (Collector(model, tokenizer, {"unconditional"}, settings, t) for t in (None, calibrator))
    plain, calibrated = (collector.collect(SENTENCES, references=TRANSLATIONS) for collector in (raw, tempered))
    for entry, other in zip(calibrated, plain, strict=True):
        assert entry.output.tokens == other.output.tokens
        assert abs(entry.output.entropy - other.output.entropy).max() > 1e-3
        assert abs(entry.unconditional - other.unconditional).max() > 1e-3
        assert abs(entry.reference.entropy - other.reference.entropy).max() > 1e-3
        assert entry.uncalibrated_reference.entropy == pytest.approx(other.reference.entropy, rel=1e-5, abs=1e-6)
        assert other.uncalibrated_reference is None
    prompt, tokens = raw.plan(SENTENCES[:1])[0].prompts[0], calibrated[0].output.tokens
    logits = tempered.output_logits(prompt, tokens)
    by_hand = logits.log_softmax(-1).gather(1, torch.tensor(tokens).unsqueeze(1)).squeeze(1)
    assert calibrated[0].output.log_probability == pytest.approx(by_hand.tolist(), rel=1e-4, abs=1e-4)
    if isinstance(calibrator, TokenTemperature):
        torch.testing.assert_close(logits, raw.output_logits(prompt, tokens) / 0.6)


def with_adapter(model, kind):
    targets = ["q", "v"] if kind == "t5" else ["q_proj", "v_proj"]
    return get_peft_model(model, LoraConfig(target_modules=targets, init_lora_weights=False))


@pytest.mark.parametrize("calibrator", [None, *TOKEN_CALIBRATORS.values()], ids=["none", *TOKEN_CALIBRATORS])
def test_the_flatness_of_the_loop_is_that_of_a_pass_over_the_text(calibrator):
    settings = CollectionSettings(max_new_tokens=9, num_samples=2)
    fast, slow = (
        Collector(make_model("t5"), make_tokenizer(), needs, settings, calibrator)
        for needs in ({"samples", "flatness"}, {"flatness"})
    )
    slow._own_loop = False
    for entry, other in zip(fast.collect(SENTENCES), slow.collect(SENTENCES), strict=True):
        for name in FLATNESS:
            expected = getattr(other.output, name)
            assert getattr(entry.output, name) == pytest.approx(expected, rel=1e-5, abs=1e-5)
            assert (expected < -1e-3).all()


@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_adapters_are_decoded_too(kind):
    tokenizer = make_tokenizer(end_every_text=kind not in CAUSAL)
    model = with_adapter(make_model(kind), kind)
    outputs = generate_with_uncertainty(model, tokenizer, SENTENCES, ["msp", "mc_sequence_entropy"], max_new_tokens=6)
    for source, output in zip(SENTENCES, outputs, strict=True):
        ids = tokenizer(source, return_tensors="pt")["input_ids"]
        expected = model.generate(input_ids=ids, max_new_tokens=6, do_sample=False)[0]
        expected = expected[ids.shape[1] :] if kind in CAUSAL else expected[1:]
        assert output.tokens == tokenizer.convert_ids_to_tokens(expected.tolist())[: len(output.tokens)]


def test_more_tokens_than_the_model_has_positions_is_explained():
    model = make_model("gpt2")
    limit = model.config.max_position_embeddings
    with pytest.raises(UserError, match=f"longer than the {limit} positions.*lower max_new_tokens"):
        generate_with_uncertainty(model, make_tokenizer(False), ["a cat"], max_new_tokens=limit + 5)
