"""A model gives the same prediction wherever it is asked: in training's report, by evaluate, pipeline and predict."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from classifiers import BAD, GOOD, image_rows, make_processor, make_text_classifier, make_vit
from helpers import SENTENCES, TRANSLATIONS, make_model, make_tokenizer
from PIL import Image

from clue_hf import pipeline
from clue_hf.cli.main import main
from clue_hf.posthoc.error_predictor import halves


pytestmark = pytest.mark.usefixtures("without_pictures")
COMMON = ["--max_steps", "2", "--per_device_train_batch_size", "8", "--save_strategy", "no", "--eval_strategy", "no",
          "--logging_strategy", "no", "--report_to", "none", "--disable_tqdm", "true", "--use_cpu", "true",
          "--per_device_eval_batch_size", "16"]  # fmt: skip
#: Of each kind: how it is trained. Columns, prefix and lengths are told here, and nowhere else.
KINDS = {
    "seq2seq": ["--model_name_or_path", "t5", "--source_column", "pair.en", "--target_column", "pair.fr",
                "--source_prefix", "say : ", "--max_source_length", "7", "--max_target_length", "9"],
    "causal": ["--model_name_or_path", "gpt2", "--source_column", "pair.en", "--target_column", "pair.fr",
               "--source_prefix", "say : ", "--max_source_length", "7", "--max_target_length", "9"],
    "lora": ["--model_name_or_path", "gpt2", "--source_column", "pair.en", "--target_column", "pair.fr",
             "--source_prefix", "say : ", "--max_target_length", "9", "--use_peft", "true", "--lora_r", "2"],
    "images": ["--model_name_or_path", "vit", "--image_column", "picture", "--label_column", "animal",
               "--dropout", "0.3", "--mc_samples", "3", "--objective", "ce"],
    "texts": ["--model_name_or_path", "bert", "--source_column", "review.text", "--label_column", "verdict",
              "--task", "classification", "--source_prefix", "so ", "--max_source_length", "5", "--mc_samples", "3",
              "--objective", "ce"],
    "table": ["--model_type", "clue_tabular_resnet", "--target_column", "price", "--dropout", "0.3", "--mc_samples",
              "4", "--config_overrides", "hidden_size=8,num_blocks=1", "--objective", "mse", "--min_variance", "1e-3"],
    "number_texts": ["--model_name_or_path", "bert", "--source_column", "review.text", "--target_column", "score",
                     "--task", "regression", "--source_prefix", "so ", "--max_source_length", "5", "--mc_samples", "3",
                     "--objective", "mse"],
    "number_images": ["--model_name_or_path", "vit", "--image_column", "picture", "--target_column", "light",
                      "--task", "regression", "--dropout", "0.3", "--mc_samples", "3", "--objective", "mse"],
}  # fmt: skip
FILES = {"seq2seq": "pairs", "causal": "pairs", "lora": "pairs", "number_texts": "texts", "number_images": "images"}
#: Metrics that hardly change when predictions do.
CONTINUOUS = ("error", "nll", "brier", "mse", "mean_std", "sharpness", "uncertainty_auc")
DEUP, ENSEMBLE = ["--error_predictor", "deup"], ["--ensemble", "2"]
AFTER = [
    *(("images", ["--calibrator", name]) for name in ("isotonic", "temperature", "platt", "beta")),
    ("images", ENSEMBLE), ("images", DEUP), ("images", [*ENSEMBLE, "--calibrator", "temperature", *DEUP]),
    ("texts", ["--calibrator", "isotonic", *DEUP]),
    ("table", ["--calibrator", "quantile"]), ("table", ENSEMBLE), ("table", DEUP),
    ("table", ["--calibrator", "quantile", *DEUP]), ("table", [*ENSEMBLE, "--calibrator", "quantile", *DEUP]),
    ("number_texts", ["--calibrator", "quantile", *DEUP]), ("number_images", ["--calibrator", "quantile", *DEUP]),
]  # fmt: skip


def write_split(name, rows, seed):
    generator = np.random.default_rng(seed)
    pairs = [{"pair": {"en": SENTENCES[row % 8], "fr": TRANSLATIONS[row % 8]}} for row in generator.permutation(rows)]
    texts = [(GOOD + BAD)[row % 8] + f" {row % 3}" for row in generator.permutation(rows)]
    verdicts = ["good" if any(text.startswith(good) for good in GOOD) else "bad" for text in texts]
    reviews = [
        {"review": {"text": text}, "verdict": verdict, "score": 40.0 + 3 * len(text)}
        for text, verdict in zip(texts, verdicts, strict=True)
    ]
    images, labels = image_rows(rows, seed)
    pictures = []
    for row, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = Path(f"{name}-{row}.png")
        Image.fromarray(image).save(path)
        animal = ["ant", "bee", "cat"][label]
        pictures.append({"picture": str(path.absolute()), "animal": animal, "light": float(image.mean())})
    for kind, lines in (("pairs", pairs), ("texts", reviews), ("images", pictures)):
        Path(f"{kind}-{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    size, colour = generator.normal(size=rows), generator.choice(["red", "green"], rows)
    price = 5000 + 900 * size + 500 * (colour == "red") + 300 * generator.normal(size=rows)
    pd.DataFrame({"size": size, "colour": colour, "price": price}).to_csv(f"table-{name}.csv", index=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("same")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for seed, (name, rows) in enumerate({"train": 24, "validation": 20, "test": 11}.items()):
            write_split(name, rows, seed)
        for name in ("t5", "gpt2"):
            make_model(name).save_pretrained(name)
            make_tokenizer().save_pretrained(name)
        make_vit().save_pretrained("vit")
        make_processor().save_pretrained("vit")
        for part in make_text_classifier():
            part.save_pretrained("bert")
        yield folder


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    return place


def file_of(kind, split):
    name = FILES.get(kind, kind)
    return f"{name}-{split}.{'csv' if name == 'table' else 'jsonl'}"


def data_of(kind):
    return [word for split in ("train", "validation", "test") for word in (f"--{split}_file", file_of(kind, split))]


def trained(kind, after=()):
    """A folder with a model, trained once, and the last row of its report: that of all that follows the training."""
    folder = Path("-".join([kind, *(word.strip("-") for word in after)]))
    if not folder.exists():
        assert main(["train", *KINDS[kind], *data_of(kind), *COMMON, *after, "--output_dir", str(folder)]) == 0
    return folder, json.loads((folder / "results.json").read_text())["rows"][-1]


def evaluated(kind, folder, *options):
    """Metrics and rows of an evaluation, which is told of nothing but the data."""
    report = folder / "report"
    words = ["--report_dir", str(report), "--resamples", "0", *options]
    assert main(["evaluate", str(folder), *data_of(kind), *words]) == 0
    metrics = json.loads((report / "report.json").read_text())["metrics"]
    rows = next(report / name for name in ("examples.jsonl", "predictions.jsonl") if (report / name).exists())
    return metrics, [json.loads(line) for line in rows.read_text().splitlines()]


def inputs_of(kind):
    if kind == "table":
        return pd.read_csv(file_of(kind, "test")).drop(columns="price").to_dict("records")
    rows = [json.loads(line) for line in Path(file_of(kind, "test")).read_text().splitlines()]
    if "picture" in rows[0]:
        return [row["picture"] for row in rows]
    return [row["pair"]["en"] if "pair" in row else row["review"]["text"] for row in rows]


def numbers_of(answers):
    """Every number of some answers, flat."""
    return [
        number
        for answer in answers
        for key in ("score", "mean", "std", "uncertainty", "interval")
        if key in answer
        for number in np.ravel(answer[key]).tolist()
    ]


def predicted(kind, folder):
    column = {"picture": "--image_column"}.get({"images": "picture", "number_images": "picture"}.get(kind, ""))
    path = {"pairs": "pair.en", "texts": "review.text", "images": "picture"}.get(FILES.get(kind, kind))
    named = [] if path is None else [column or "--text_column", path]
    output = folder / "answers.jsonl"
    output.unlink(missing_ok=True)
    words = ["--input", file_of(kind, "test"), "--output", str(output), "--batch_size", "16", *named]
    assert main(["predict", str(folder), *words]) == 0
    return [json.loads(line) for line in output.read_text().splitlines()]


def check_everywhere_else(kind, folder, expected):
    """Pipeline in batches of 16, of 3 and one by one; the predict command; a copy of the folder."""
    inputs = inputs_of(kind)
    ask = pipeline(str(folder), device="cpu")
    answers = ask(inputs, batch_size=16)
    assert numbers_of(answers) == pytest.approx(expected, rel=1e-6, abs=2e-6)
    assert numbers_of(ask(inputs, batch_size=3)) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert numbers_of([ask(inputs[7])]) == pytest.approx(numbers_of(answers[7:8]), rel=1e-4, abs=1e-5)
    assert numbers_of(predicted(kind, folder)) == pytest.approx(numbers_of(answers), rel=1e-6)
    moved = shutil.copytree(folder, f"{folder}-moved", dirs_exist_ok=True)
    again = pipeline(str(moved), device="cpu")(inputs, batch_size=16)
    assert numbers_of(again) == numbers_of(answers)
    return answers


@pytest.mark.parametrize("kind", ["seq2seq", "causal", "lora"])
def test_texts(here, kind):
    folder, row = trained(kind)
    metrics, examples = evaluated(kind, folder, "--scorers", "perplexity", "mc_sequence_entropy")
    assert metrics["quality"]["bleu"]["corpus"]["value"] == pytest.approx(row["bleu"], abs=1e-6)
    for name in ("error", "uncertainty", "alignment_error", "token_ece"):
        assert metrics["references"][name]["value"] == pytest.approx(row[name], abs=1e-6), name
    scores = [example["scores"]["perplexity"] for example in examples]
    answers = check_everywhere_else(kind, folder, scores)
    outputs = [example["output"] for example in examples]
    assert [answer["generated_text"] for answer in answers] == outputs
    assert [answer["generated_text"] for answer in predicted(kind, folder)] == outputs
    # what is sampled, too
    sampled = pipeline(str(folder), device="cpu", scorer="mc_sequence_entropy")(inputs_of(kind)[4])
    assert sampled["uncertainty"] == pytest.approx(examples[4]["scores"]["mc_sequence_entropy"], abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "after"),
    [*((kind, []) for kind in ("images", "texts", "table", "number_texts", "number_images")), *AFTER],
    ids=lambda value: value if isinstance(value, str) else "+".join(value[1::2]) or "plain",
)
def test_classes_and_numbers(here, kind, after):
    folder, row = trained(kind, after)
    metrics, lines = evaluated(kind, folder)
    last = "calibrated" if "--calibrator" in after else "raw"
    for name in CONTINUOUS:  # the others jump where a prediction passes a bin or a knot
        if name in metrics[last] and row.get(name) is not None:
            assert metrics[last][name]["value"] == pytest.approx(row[name], rel=1e-5, abs=1e-6), name
    rows = [line.get("calibrated", line) for line in lines]
    assert ("calibrated" in lines[0]) == ("--calibrator" in after)
    if kind in ("images", "texts"):
        expected = [number for line in rows for number in (line["confidence"], line["uncertainty"])]
        answers = check_everywhere_else(kind, folder, expected)
        assert [answer["label"] for answer in answers] == [line["prediction_name"] for line in rows]
    else:
        columns = ("mean", "std", "std", "low_95", "high_95")
        expected = [line[name] for line in rows for name in columns]
        check_everywhere_else(kind, folder, expected)


EVERYTHING = {
    "images": [*ENSEMBLE, "--calibrator", "temperature", *DEUP],
    "texts": ["--calibrator", "isotonic", *DEUP],
    "table": [*ENSEMBLE, "--calibrator", "quantile", *DEUP],
}


@pytest.mark.parametrize(("kind", "method"), [("images", "lac"), ("texts", "aps"), ("table", "scaled")])
def test_prediction_sets_and_intervals(here, kind, method):
    """On top of members, a calibrator and an error predictor, everywhere the same."""
    folder = Path(f"{kind}-conformal")
    shutil.copytree(trained(kind, EVERYTHING[kind])[0], folder, dirs_exist_ok=True)
    assert main(["calibrate", str(folder), *data_of(kind), "--conformal", method, "--coverage", "0.8"]) == 0
    stored = json.loads((folder / "uncertainty.json").read_text())["conformal"]
    assert (stored["name"], stored["coverage"], stored["n"]) == (method, 0.8, 20)
    metrics, lines = evaluated(kind, folder)
    assert list(metrics["conformal"]) == ["calibrated"]  # what they were fitted for
    rows = [line["calibrated"] for line in lines]
    assert not {"prediction_set", "conformal_low"} & lines[0].keys()
    answers = pipeline(str(folder), device="cpu")(inputs_of(kind), batch_size=16)
    if kind == "table":
        for row, answer in zip(rows, answers, strict=True):
            half = stored["quantile"] * answer["std"]
            assert answer["interval"] == pytest.approx([answer["mean"] - half, answer["mean"] + half])
            assert answer["interval"] == pytest.approx([row["conformal_low"], row["conformal_high"]], rel=1e-6)
        asked = pipeline(str(folder), device="cpu")(inputs_of(kind)[0], level=0.95)
        assert asked["interval"] == pytest.approx([rows[0]["low_95"], rows[0]["high_95"]], rel=1e-5)
        shares = [
            row["conformal_low"] <= line["target"] <= row["conformal_high"]
            for row, line in zip(rows, lines, strict=True)
        ]
        written = [answer["interval"] for answer in predicted(kind, folder)]
        assert np.array(written) == pytest.approx(np.array([answer["interval"] for answer in answers]), rel=1e-6)
    else:
        for row, answer in zip(rows, answers, strict=True):
            assert answer["prediction_set"] == row["prediction_set"]
            assert answer["prediction_set"][0] == answer["label"]
        shares = [line["label_name"] in row["prediction_set"] for row, line in zip(rows, lines, strict=True)]
        sets = [answer["prediction_set"] for answer in answers]
        assert [answer["prediction_set"] for answer in predicted(kind, folder)] == sets
        sizes = metrics["conformal"]["calibrated"]["all"]["prediction_set_size"]
        assert sizes["value"] == pytest.approx(np.mean([len(names) for names in sets]))
    assert metrics["conformal"]["calibrated"]["all"]["conformal_coverage"]["value"] == pytest.approx(np.mean(shares))
    # calibrated again without, there are none
    assert main(["calibrate", str(folder), *data_of(kind)]) == 0
    assert "prediction_set" not in pipeline(str(folder), device="cpu")(inputs_of(kind)[0])
    assert "conformal" not in evaluated(kind, folder)[0]


def test_a_calibrator_is_fitted_to_the_predicted_variance_on_rows_of_its_own(here):
    folder, _ = trained("table", ["--calibrator", "quantile", *DEUP])
    stored = json.loads((folder / "uncertainty.json").read_text())
    assert stored["calibrated_variance"] == "predicted"
    # of 20 validation rows, those that did not fit the predictor, by the variance that it predicts
    words = ["--test_file", file_of("table", "validation"), "--report_dir", "on-validation", "--resamples", "0"]
    assert main(["evaluate", str(folder), *words]) == 0
    lines = [json.loads(line) for line in Path("on-validation/predictions.jsonl").read_text().splitlines()]
    scores = np.array([(line["target"] - line["mean"]) / line["std"] for line in lines])
    assert stored["calibrator"]["scores"] == pytest.approx(sorted(scores[halves(20)[1]]), rel=1e-5)
    assert len({line["std"] for line in lines}) > 1


def test_a_model_is_used_as_it_was_trained(here):
    folder, _ = trained("seq2seq")
    stored = json.loads((folder / "uncertainty.json").read_text())["inputs"]
    assert stored == {
        "source_column": "pair.en",
        "target_column": "pair.fr",
        "source_prefix": "say : ",
        "max_source_length": 7,
        "max_target_length": 9,
    }
    settings = pipeline(str(folder), device="cpu").predictor.settings
    assert (settings["source_prefix"], settings["max_source_length"], settings["max_new_tokens"]) == ("say : ", 7, 9)
    other = pipeline(str(folder), device="cpu", source_prefix="", max_new_tokens=3).predictor.settings
    assert (other["source_prefix"], other["max_source_length"], other["max_new_tokens"]) == ("", 7, 3)


def test_other_columns_are_found_where_the_data_has_not_those_of_the_training(here):
    folder, _ = trained("texts")
    rows = [json.loads(line) for line in Path("texts-test.jsonl").read_text().splitlines()]
    plain = [{"text": row["review"]["text"], "label": row["verdict"]} for row in rows]
    Path("plain.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain))
    assert (
        main(["evaluate", str(folder), "--test_file", "plain.jsonl", "--report_dir", "plain", "--resamples", "0"]) == 0
    )
    lines = [json.loads(line) for line in Path("plain/predictions.jsonl").read_text().splitlines()]
    _, expected = evaluated("texts", folder)
    assert [line["probabilities"] for line in lines] == [line["probabilities"] for line in expected]


@pytest.mark.parametrize(("kind", "after", "message"), [
    ("seq2seq", ["--calibrator", "temperature"], "calibrator is not supported for language models"),
    ("causal", ["--ensemble", "2"], "ensemble is not supported for language models"),
    ("images", ["--calibrator", "quantile"], "'quantile' is not supported for models that predict classes"),
    ("table", ["--calibrator", "isotonic"], "'isotonic' is not supported for models that predict numbers"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_at_the_start(here, kind, after, message, capsys):
    assert main(["train", *KINDS[kind], *data_of(kind), *COMMON, *after, "--output_dir", "refused"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("refused").exists()
    if kind in ("images", "table"):
        folder, _ = trained(kind)
        assert main(["evaluate", str(folder), *data_of(kind), *after]) == 2
        assert message in capsys.readouterr().err


def test_no_calibrator_is_fitted_where_the_error_predictor_was(here, capsys):
    folder, _ = trained("table", DEUP)
    assert main(["evaluate", str(folder), *data_of("table"), "--calibrator", "quantile"]) == 2
    assert "was fitted on the validation data" in capsys.readouterr().err
