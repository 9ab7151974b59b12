"""Answers with their uncertainty against plain transformers and closed forms, for tiny models of every kind."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from class_models import TEXTS
from classifiers import NAMES, image_rows, make_processor
from deploy.deployed_models import KINDS, inputs_for, table_rows
from deploy.pipelines import SHORT, TEXT_KINDS, assert_alike, load
from helpers import SENTENCES
from PIL import Image
from scipy import stats
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, ViTForImageClassification

from clue_hf import UncertaintyPipeline, generate_with_uncertainty, pipeline
from clue_hf.errors import UserError
from clue_hf.inputs.table_preprocessor import TablePreprocessor
from clue_hf.models.tabular import CLUETabularResNetForRegression
from clue_hf.models.uncertainty_file import read_uncertainty, write_uncertainty
from clue_hf.posthoc import QuantileCalibrator
from clue_hf.predictors.loading import save_model


# ---- every kind ----


@pytest.mark.parametrize("kind", KINDS)
def test_answers_do_not_depend_on_the_batch_size(folders, kind):
    pipe, inputs = load(folders, kind), inputs_for(kind)
    alone = [pipe(given) for given in inputs]
    assert len({json.dumps(answer) for answer in alone}) > 1
    together = pipe(inputs, batch_size=3)
    for found, expected in zip(together, alone, strict=True):
        assert_alike(found, expected)
    assert pipe([]) == []
    assert load(folders, kind)(inputs, batch_size=3) == together  # nothing of it is drawn when the model is loaded


@pytest.mark.parametrize("kind", ["gpt2", "lora", "image ensemble", "image deup", "table", "table deup"])
def test_a_saved_copy_answers_the_same(folders, kind, tmp_path):
    pipe, stored = load(folders, kind), read_uncertainty(folders[kind])
    save_model(pipe.predictor, tmp_path, stored)
    write_uncertainty(tmp_path, **{name: value for name, value in stored.items() if name != "version"})
    settings = SHORT if kind in TEXT_KINDS else {}
    assert pipeline(str(tmp_path), device="cpu", **settings)(inputs_for(kind)) == pipe(inputs_for(kind))


def test_a_copy_never_leaves_its_folder(folders, tmp_path):
    pipe = load(folders, "image ensemble")
    with pytest.raises(UserError, match="outside of the model's"):
        save_model(pipe.predictor, tmp_path / "copy", {"members": ["../elsewhere"]})
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", ["image", "table", "t5"])
def test_passes_with_dropout_are_the_same_in_every_call(folders, kind):
    if kind == "image":
        from clue_hf.models.mc_dropout import add_classifier_dropout

        model = add_classifier_dropout(ViTForImageClassification.from_pretrained(folders[kind]), 0.5)
        model.save_pretrained(folder := folders[kind] + "_dropout")
        make_processor().save_pretrained(folder)
    else:
        folder = folders[kind]
    if kind == "t5":
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        model.config.dropout_rate = 0.3
        model.save_pretrained(folder := folder + "_dropout")
        AutoTokenizer.from_pretrained(folders[kind]).save_pretrained(folder)
    inputs, settings = inputs_for(kind), SHORT if kind == "t5" else {}
    passes = UncertaintyPipeline.from_pretrained(folder, "cpu", mc_samples=4, **settings)
    plain = UncertaintyPipeline.from_pretrained(folder, "cpu", mc_samples=0, **settings)
    assert passes(inputs) == passes(inputs)
    pairs = zip(passes(inputs), plain(inputs), strict=True)
    assert all(one["uncertainty"] != other["uncertainty"] for one, other in pairs)


# ---- texts ----


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_texts_and_tokens_are_those_of_generate(folders, kind):
    pipe = load(folders, kind)
    auto = AutoModelForSeq2SeqLM if kind == "t5" else AutoModelForCausalLM
    model, tokenizer = auto.from_pretrained(folders[kind]), AutoTokenizer.from_pretrained(folders[kind])
    for text in SENTENCES[:4]:
        inputs = tokenizer(text, return_tensors="pt")
        out = model.generate(
            **inputs, max_new_tokens=6, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
        ids = out.sequences[0, 1 if kind == "t5" else inputs["input_ids"].shape[1] :]
        log_p = torch.stack(out.logits)[:, 0].double().log_softmax(-1)
        chosen = log_p.gather(1, ids[:, None]).squeeze(1)
        answer = pipe(text, return_tokens=True, num_alternatives=3)
        assert answer["generated_text"] == tokenizer.decode(ids, skip_special_tokens=True).strip()
        assert answer["uncertainty"] == pytest.approx(-chosen.mean().item(), abs=1e-5)
        assert [token["token"] for token in answer["tokens"]] == tokenizer.convert_ids_to_tokens(ids.tolist())
        likely = log_p.exp().topk(3)
        for step, token in enumerate(answer["tokens"]):
            assert token["probability"] == pytest.approx(chosen[step].exp().item(), abs=1e-5)
            assert token["entropy"] == pytest.approx(-(log_p[step].exp() * log_p[step]).sum().item(), abs=1e-5)
            names = tokenizer.convert_ids_to_tokens(likely.indices[step].tolist())
            assert [other["token"] for other in token["alternatives"]] == names
            np.testing.assert_allclose(
                [other["probability"] for other in token["alternatives"]], likely.values[step], atol=1e-5
            )
    assert "tokens" not in pipe(SENTENCES[0])


@pytest.mark.parametrize("scorer", ["msp", "mean_token_entropy", "mc_sequence_entropy", "pmi"])
def test_any_scorer_serves(folders, scorer):
    pipe = load(folders, "t5", scorer=scorer)
    model, tokenizer = (auto.from_pretrained(folders["t5"]) for auto in (AutoModelForSeq2SeqLM, AutoTokenizer))
    expected = generate_with_uncertainty(model, tokenizer, SENTENCES[:4], [scorer], **SHORT)
    found = pipe(SENTENCES[:4])
    assert [answer["generated_text"] for answer in found] == [output.text for output in expected]
    np.testing.assert_allclose(
        [answer["uncertainty"] for answer in found], [output.uncertainty for output in expected], rtol=1e-6
    )
    # samples belong to rows, not to calls
    later = pipe(SENTENCES[2:4], first_row=2)
    assert [answer["uncertainty"] for answer in later] == pytest.approx(
        [output.uncertainty for output in expected[2:]], rel=1e-4
    )


def test_an_adapter_comes_with_its_base_model(folders):
    from peft import PeftModel

    base = AutoModelForSeq2SeqLM.from_pretrained(str(folders["lora"]).replace("adapter", "base"))
    tokenizer = AutoTokenizer.from_pretrained(folders["lora"])
    inputs = inputs_for("lora")
    plain = generate_with_uncertainty(base, tokenizer, inputs, **SHORT)
    adapted = generate_with_uncertainty(PeftModel.from_pretrained(base, folders["lora"]), tokenizer, inputs, **SHORT)
    found = [answer["uncertainty"] for answer in load(folders, "lora")(inputs)]
    assert found == [output.uncertainty for output in adapted]
    assert found != [output.uncertainty for output in plain]


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_it_is_one_of_transformers_pipelines(folders, kind):
    pipe = transformers.pipeline("text-uncertainty", model=folders[kind], device="cpu", **SHORT)
    ours, texts = load(folders, kind), SENTENCES[:5]
    assert pipe(texts) == ours(texts)
    assert pipe(texts[0], return_tokens=True) == ours(texts[0], return_tokens=True)
    streamed = pipe((text for text in texts), batch_size=2)
    for found, expected in zip(streamed, ours(texts), strict=True):
        assert_alike(found, expected)


# ---- classes ----


def plain_probabilities(folder, images):
    """By transformers alone, in float64."""
    model = ViTForImageClassification.from_pretrained(folder).double()
    pixels = make_processor()(images=[Image.fromarray(image) for image in images], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        return model(pixel_values=pixels.double()).logits.softmax(-1).numpy()


def assert_classes(answers, probabilities, uncertainty):
    best = probabilities.argmax(1)
    assert [answer["label"] for answer in answers] == [NAMES[number] for number in best]
    np.testing.assert_allclose([answer["score"] for answer in answers], probabilities.max(1), atol=1e-5)
    np.testing.assert_allclose([answer["uncertainty"] for answer in answers], uncertainty, atol=1e-5)


def test_classes_of_images(folders):
    images = inputs_for("image")
    p = plain_probabilities(folders["image"], images)
    assert_classes(load(folders, "image")(images), p, stats.entropy(p, axis=1) / math.log(3))


def test_an_image_may_be_given_in_many_ways(folders, tmp_path):
    pixels = image_rows(1)[0][0]
    Image.fromarray(pixels).save(tmp_path / "one.png")
    pipe = load(folders, "image")
    given = [pixels, Image.fromarray(pixels), str(tmp_path / "one.png"), tmp_path / "one.png",
             (tmp_path / "one.png").read_bytes(), pixels.tolist()]  # fmt: skip
    answers = [pipe(image) for image in given[:-1]] + pipe([given[-1]]) + pipe(pixels[None])
    assert all(answer == answers[0] for answer in answers)
    assert_alike(pipe(given)[3], answers[0])


def test_an_ensemble_of_classifiers_is_its_mean(folders):
    images, folder = inputs_for("image"), folders["image ensemble"]
    p = (plain_probabilities(folder, images) + plain_probabilities(f"{folder}/members/1", images)) / 2
    assert_classes(load(folders, "image ensemble")(images), p, stats.entropy(p, axis=1) / math.log(3))


def test_a_calibrator_and_an_error_predictor(folders):
    images, folder = inputs_for("image"), folders["image deup"]
    sharp = plain_probabilities(folder, images)
    p = np.sqrt(sharp) / np.sqrt(sharp).sum(1, keepdims=True)  # a temperature of 2
    second = ViTForImageClassification.from_pretrained(f"{folder}/error_predictor").double()
    pixels = make_processor()(images=[Image.fromarray(image) for image in images], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        errors = 1.5 + 0.5 * second(pixel_values=pixels.double()).logits[:, 0].numpy()
    assert ((errors > 1) & (errors < 2)).any()
    assert_classes(load(folders, "image deup")(images), p, np.clip(errors - 1, 0, 1))


def test_classes_of_texts_are_read_as_they_were_trained(folders):
    pipe = load(folders, "text classes", source_prefix="what a ", max_source_length=4)
    plain = load(folders, "text classes")
    tokenizer = plain.predictor.processing_class
    ids = tokenizer(["what a " + text for text in TEXTS[:3]], truncation=True, max_length=4, padding=True,
                    return_tensors="pt")  # fmt: skip
    with torch.no_grad():
        p = plain.predictor.model(**ids).logits.double().softmax(-1)
    np.testing.assert_allclose([answer["score"] for answer in pipe(TEXTS[:3])], p.max(1).values, atol=1e-5)
    assert plain(TEXTS[0])["score"] != pytest.approx(pipe(TEXTS[0])["score"], abs=1e-5)


# ---- numbers ----


def plain_moments(folder, rows):
    """Mean and variance of a model with a variance head, standardised, in float64."""
    preprocessor = TablePreprocessor.from_pretrained(str(folder).split("/members")[0].split("/error_pred")[0])
    tensors = preprocessor(pd.DataFrame(rows), target=False)
    model = CLUETabularResNetForRegression.from_pretrained(folder).double().eval()
    with torch.no_grad():
        out = model(numeric=tensors["numeric"].double(), categories=tensors["categories"]).logits.numpy()
    return preprocessor, out[:, 0], np.exp(out[:, -1])


def test_numbers_in_their_own_units(folders):
    rows = table_rows()
    preprocessor, mean, variance = plain_moments(folders["table"], rows)
    center, std = mean * preprocessor.target_std + preprocessor.target_mean, variance**0.5 * preprocessor.target_std
    low, high = stats.norm.interval(0.8, center, std)
    for number, answer in enumerate(load(folders, "table")(rows, level=0.8)):
        expected = {"mean": center[number], "std": std[number], "interval": [low[number], high[number]]}
        assert_alike({name: answer[name] for name in expected}, expected)
        assert answer["uncertainty"] == answer["std"]


def test_rows_may_be_given_in_many_ways(folders):
    rows, pipe = table_rows(), load(folders, "table")
    expected = pipe(rows)
    frame = pd.DataFrame(rows)
    assert pipe(frame) == pipe(frame.to_dict("list")) == expected
    assert pipe(frame[frame.columns[::-1]].assign(other="x")) == expected
    assert isinstance(pipe(rows[0]), dict)
    texts = [{name: value if name == "sex" else str(value) for name, value in row.items()} for row in rows]
    assert pipe(texts) == expected
    unknown = pipe({**rows[0], "bmi": None})  # a missing value is not an error
    assert unknown["mean"] != expected[0]["mean"]


def test_an_ensemble_of_regressors_adds_how_its_members_differ(folders):
    rows, folder = table_rows(), folders["table ensemble"]
    preprocessor, *first = plain_moments(folder, rows)
    _, *second = plain_moments(f"{folder}/members/1", rows)
    mean = (first[0] + second[0]) / 2
    variance = (first[1] + second[1]) / 2 + (first[0] - second[0]) ** 2 / 4
    found = load(folders, "table ensemble")(rows)
    np.testing.assert_allclose(
        [answer["mean"] for answer in found], preprocessor.target_mean + preprocessor.target_std * mean, rtol=1e-5
    )
    np.testing.assert_allclose([answer["std"] for answer in found], preprocessor.target_std * variance**0.5, rtol=1e-4)


def test_a_predicted_error_is_the_variance_and_the_calibrator_comes_last(folders):
    rows, folder = table_rows(), folders["table deup"]
    preprocessor, mean, _ = plain_moments(folder, rows)
    _, errors, _ = plain_moments(f"{folder}/error_predictor", rows)
    std = np.maximum(1.0 + 0.3 * errors, 1e-6) ** 0.5 * preprocessor.target_std
    mean = mean * preprocessor.target_std + preprocessor.target_mean
    calibrator = QuantileCalibrator.from_dict(read_uncertainty(folder)["calibrator"])
    low, high = calibrator.interval(mean, std, 0.95)
    for number, answer in enumerate(load(folders, "table deup")(rows)):
        assert answer["mean"] == pytest.approx(mean[number] + std[number] * calibrator.shift, rel=1e-5)
        assert answer["std"] == pytest.approx(std[number] * calibrator.factor, rel=1e-4)
        np.testing.assert_allclose(answer["interval"], [low[number], high[number]], rtol=1e-4)


def test_numbers_of_texts_and_a_model_without_any_uncertainty(folders, warnings_seen):
    pipe = load(folders, "text numbers")
    assert "standard deviations mean nothing" in warnings_seen.text
    ids = pipe.predictor.processing_class(TEXTS[:3], padding=True, return_tensors="pt")
    with torch.no_grad():
        means = 10 + 2 * pipe.predictor.model(**ids).logits[:, 0]
    np.testing.assert_allclose([answer["mean"] for answer in pipe(TEXTS[:3])], means, rtol=1e-5)
