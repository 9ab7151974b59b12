"""The command on classifiers, as users run it, mistakes included."""

import json
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from classifiers import NAMES, image_rows, make_processor, make_text_classifier, make_vit, text_rows
from PIL import Image
from safetensors.torch import load_file
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from clue_hf.cli.main import main
from clue_hf.evaluation.classes.report import ClassificationReport


pytestmark = pytest.mark.usefixtures("without_pictures")
ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "configs/quickstart/resnet_digits.yaml")
QUICK = {
    "max_steps": "2", "per_device_train_batch_size": "8", "use_cpu": "true", "disable_tqdm": "true",
    "save_strategy": "no", "logging_steps": "1", "output_dir": "out", "eval_strategy": "no",
}  # fmt: skip
RESNET = {
    "model_type": "clue_resnet", "model_preset": "resnet8", "dropout": "0.3", "train_file": "images.npz",
    "config_overrides": json.dumps({"depths": [1, 1], "widths": [4, 8], "stem_width": 4}), "test_fraction": "0.2",
}  # fmt: skip
VIT = {"model_name_or_path": "vit", "train_file": "images.npz", "test_fraction": "0.2"}
BERT = {"model_name_or_path": "bert", "train_file": "texts.jsonl", "label_column": "label", "test_fraction": "0.2"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with files of images and texts, and a model for each."""
    monkeypatch.chdir(tmp_path)
    images, labels = image_rows(60)
    np.savez("images.npz", images=images, labels=labels, classes=np.array(NAMES))
    np.savez("one.npz", images=images, labels=np.zeros(60, dtype=int), classes=np.array(NAMES))
    np.savez("unlabelled.npz", images=images)
    Path("texts.jsonl").write_text("\n".join(json.dumps(row) for row in text_rows(6)) + "\n")
    alike = [{**row, "label": "good"} for row in text_rows(6)]
    Path("alike.jsonl").write_text("\n".join(json.dumps(row) for row in alike) + "\n")
    make_vit().save_pretrained("vit")
    make_processor().save_pretrained("vit")
    model, tokenizer = make_text_classifier()
    model.save_pretrained("bert")
    tokenizer.save_pretrained("bert")
    return tmp_path


def words(*more, **settings):
    chosen = {name: value for name, value in {**QUICK, **settings}.items() if value is not None}
    return ["train", *more, *(word for name, value in chosen.items() for word in (f"--{name}", value))]


def results(folder="out"):
    return json.loads(Path(folder, "results.json").read_text())


@pytest.mark.pictures
def test_the_quickstart_compares_two_objectives_on_two_splits(here, capsys):
    assert main(words(QUICKSTART, mc_samples="2", eval_strategy="steps", eval_steps="2")) == 0
    shown = capsys.readouterr().out
    assert shown.count("| ce ") == 2
    assert shown.count("| clue (alpha 0.9)") == 2
    rows = results()["rows"]
    assert [(row["objective"], row["split"]) for row in rows] == [
        ("ce", "test"), ("ce", "shifted"), ("clue", "test"), ("clue", "shifted")
    ]  # fmt: skip
    for row in rows:
        assert 0 <= row["error"] <= 1
        assert row["nll"] > 0
        assert row["seconds_per_step"] > 0
    starts = [history[0]["error"] for history in results()["history"].values()]
    assert starts[0] == starts[1]
    assert {"error", "ece", "uncertainty_auc"} <= results()["definitions"].keys()
    for objective in ("ce", "clue"):
        assert Path("out", objective, "model.safetensors").exists()
        assert Path("out", objective, "preprocessor_config.json").exists()


def test_the_report_is_what_the_saved_model_gets_wrong(here):
    splits = {"x_train": image_rows(30)[0], "y_train": image_rows(30)[1],
              "x_test": image_rows(21, 7)[0], "y_test": image_rows(21, 7)[1]}  # fmt: skip
    np.savez("parts.npz", **splits)
    assert main(words(**{**RESNET, "train_file": "parts.npz", "mc_samples": "0"}, max_steps="12")) == 0
    model = AutoModelForImageClassification.from_pretrained("out").eval()
    processor = AutoImageProcessor.from_pretrained("out")
    images, labels = image_rows(21, 7)
    inputs = processor([Image.fromarray(image) for image in images], return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits
    [row] = results()["rows"]
    assert row["error"] == pytest.approx((logits.argmax(-1).numpy() != labels).mean())
    expected = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels)).item()
    assert row["nll"] == pytest.approx(expected, rel=1e-3)
    assert 0 < row["error"] < 1
    # the saved folder is a model to go on with, with its classes and its dropout
    assert model.config.dropout == 0.3
    more = {"train_file": "parts.npz", "model_name_or_path": "out", "output_dir": "more", "learning_rate": "0.0"}
    assert main(words(**more, mc_samples="0", plain_epochs="0.25", max_steps="3")) == 0
    before, after = (load_file(f"{folder}/model.safetensors") for folder in ("out", "more"))
    assert before.keys() == after.keys()
    learned = [name for name, _ in model.named_parameters()]  # BatchNorm's statistics move even so
    assert all(torch.equal(before[name], after[name]) for name in learned)
    assert [line["alpha"] for line in results("more")["history"]["clue"] if "alpha" in line] == [1.0, 0.9, 0.9]


@pytest.mark.parametrize("objective", ["euat", "cals", "focal", "label_smoothing", "ce_pe", "ce"])
def test_every_objective_by_its_name(here, objective, capsys):
    assert main(words(**RESNET, objective=objective, mc_samples="2", max_steps="9")) == 0  # more than an epoch
    [row] = results()["rows"]
    assert row["objective"] == objective
    assert row["error"] < 1
    assert f"| {objective} " in capsys.readouterr().out


def test_two_of_the_classes_and_one_against_the_rest(here):
    assert main(words(QUICKSTART, binary_task="3,5", report_splits="test", mc_samples="0")) == 0
    assert json.loads(Path("out/clue/config.json").read_text())["id2label"] == {"0": "5", "1": "3"}
    assert [row["split"] for row in results()["rows"]] == ["test", "test"]
    assert main(words(**RESNET, binary_task="bee", output_dir="rest")) == 0
    assert json.loads(Path("rest/config.json").read_text())["id2label"] == {"0": "not bee", "1": "bee"}


def test_dropout_for_a_pretrained_model(here):
    assert main(words(**VIT, dropout="0.3", max_steps="20", learning_rate="5e-3")) == 0
    config = json.loads(Path("out/config.json").read_text())
    assert config["classifier_dropout_rate"] == 0.3
    assert config["id2label"] == {str(number): name for number, name in enumerate(NAMES)}
    lines = [line for line in results()["history"]["clue"] if "loss" in line]
    assert lines[-1]["error"] < 0.8 * lines[0]["error"]
    # from there: dropout comes back by itself, so that there are five passes
    assert main(words(**{**VIT, "model_name_or_path": "out"}, mc_samples="5", output_dir="more")) == 0
    assert json.loads(Path("more/config.json").read_text())["classifier_dropout_rate"] == 0.3


def test_texts_and_their_labels_from_a_file(here):
    run = words(**BERT, mc_samples="2", max_steps="25", learning_rate="1e-2", per_device_train_batch_size="16")
    assert main(run) == 0
    [row] = results()["rows"]
    assert row["error"] < 0.3
    model = AutoModelForSequenceClassification.from_pretrained("out").eval()
    tokenizer = AutoTokenizer.from_pretrained("out")
    rows = text_rows(6)
    with torch.no_grad():
        logits = model(**tokenizer([row["sentence"] for row in rows], return_tensors="pt", padding=True)).logits
    names = [model.config.id2label[number] for number in logits.argmax(-1).tolist()]
    assert np.mean([name == row["label"] for name, row in zip(names, rows, strict=True)]) > 0.8


def test_a_folder_of_images_by_class_and_a_dataset_of_the_hub_saved_to_disk(here):
    images, labels = image_rows(30)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = Path("animals/train", NAMES[label])
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    resnet = {name: value for name, value in RESNET.items() if name != "train_file"}
    assert main(words(**resnet, dataset_name="animals", output_dir="first")) == 0
    features = datasets.Features(img=datasets.Image(), fine_label=datasets.ClassLabel(names=NAMES))
    rows = {"img": [Image.fromarray(image) for image in images], "fine_label": labels.tolist()}
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows, features)}).save_to_disk("saved")
    assert main(words(**resnet, dataset_name="saved", output_dir="second")) == 0
    for name in ("first", "second"):
        assert json.loads(Path(name, "config.json").read_text())["label2id"] == {"ant": 0, "bee": 1, "cat": 2}


def test_resuming_continues_exactly(here):
    run = {**RESNET, "save_strategy": "steps", "save_steps": "1", "max_steps": "4", "augment": "crop_flip"}
    assert main(words(**run)) == 0
    assert main(words(**run, resume_from_checkpoint="out/checkpoint-2", output_dir="again")) == 0
    rows = [results(name)["rows"][0] for name in ("out", "again")]
    assert {**rows[0], "seconds_per_step": 0} == {**rows[1], "seconds_per_step": 0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({**RESNET, "model_preset": "resnet9"}, "There is no network 'resnet9'"),
        ({**RESNET, "model_preset": None}, "needs a `model_preset`"),
        ({**RESNET, "dropout": "0", "mc_samples": "5"}, "mc_samples=5 needs dropout"),
        ({**RESNET, "dropout": "0", "mc_samples": "1"}, "mc_samples=1 needs dropout"),
        ({**RESNET, "dropout": "1.5"}, "`dropout` must lie in [0, 1)"),
        ({**VIT, "mc_samples": "5"}, "mc_samples=5 needs dropout"),
        ({**RESNET, "label_column": "lable"}, "label_column 'lable' is not in the data"),
        ({**RESNET, "image_column": "imgae"}, "image_column 'imgae' is not in the data"),
        ({**RESNET, "train_file": "unlabelled.npz"}, "call them x_train"),
        ({**RESNET, "train_file": "one.npz"}, "All training rows are of the class 'ant'"),
        ({**RESNET, "binary_task": "ant,dog"}, "binary_task 'ant,dog' must name one or two classes"),
        ({**RESNET, "predict_with_generate": "true"}, "predict_with_generate is for models that write texts"),
        ({**RESNET, "quality": "chrf"}, "quality is for models that write texts"),
        ({**RESNET, "eval_uncertainty": "true"}, "eval_uncertainty is for models that write texts"),
        ({**RESNET, "use_peft": "true"}, "use_peft is for models that write texts"),
        ({**RESNET, "augment": "flip"}, "`augment` must be one of none, crop, crop_flip"),
        ({**RESNET, "objective": "eaut"}, "`objective` must be one of"),
        ({**RESNET, "model_type": "vit", "model_preset": None, "tokenizer_name": "bert"}, "no classifier of images"),
        ({**VIT, "dropout": "0.3", "image_size": "16"}, "image_size 16 does not match"),
        ({**VIT, "model_name_or_path": "bert"}, "The image processor 'bert' cannot be loaded"),
        ({**BERT, "label_column": "lable"}, "label_column 'lable' is not in the data"),
        ({**BERT, "source_column": "text"}, "source_column 'text' is not in the data"),
        ({**BERT, "train_file": "alike.jsonl"}, "All training rows are of the class 'good'"),
        ({**BERT, "binary_task": "good,bad"}, "binary_task is for images"),
        ({**BERT, "model_name_or_path": "vit"}, "The tokenizer 'vit' cannot be loaded"),
        ({**BERT, "model_name_or_path": None, "model_type": "bert", "tokenizer_vocab_size": "80"}, "of texts is"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(here, settings, message, capsys):
    assert main(words(**settings)) == 2
    error = capsys.readouterr().err
    [line] = [line for line in error.splitlines() if line.startswith("clue-hf: error:")]
    assert message in line
    assert "Traceback" not in error
    assert not Path("out/model.safetensors").exists()


def test_what_follows_a_training_is_saved_and_loaded_with_the_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = ["--num_train_epochs", "2", "--max_train_samples", "256", "--max_eval_samples", "120",
                "--eval_strategy", "no", "--save_strategy", "no", "--disable_tqdm", "true"]  # fmt: skip
    after = ["--ensemble", "2", "--calibrator", "isotonic", "--error_predictor", "deup"]
    assert main(["train", QUICKSTART, *settings, *after, "--output_dir", "out"]) == 0
    rows = json.loads(Path("out/results.json").read_text())["rows"]
    names = [row["objective"] for row in rows if row["split"] == "test"]
    assert names[3:] == ["clue x 2", "clue x 2 + deup", "clue x 2 + deup + isotonic"]
    stored = json.loads(Path("out/clue/uncertainty.json").read_text())
    assert (stored["task"], stored["mc_samples"], stored["members"]) == ("classification", 5, ["members/1"])
    assert not list(Path("out").rglob("*.pkl"))

    model = AutoModelForImageClassification.from_pretrained("out/clue")  # the first member is a model like any other
    assert model.config.num_labels == 10
    capsys.readouterr()
    words = ["evaluate", "out/clue", "--config", QUICKSTART, "--max_eval_samples", "120", "--resamples", "0"]
    assert main([*words, "--report_dir", "report"]) == 0
    report = json.loads(Path("report/report.json").read_text())
    told = report["description"]["settings"]
    assert (told["mc_samples"], told["members"], told["calibrator"]) == (5, 2, "isotonic")
    assert told["error_predictor"] == "deup"
    # the same model, asked again: but for the size of the batches
    trained = {row["objective"]: row for row in rows if row["split"] == "test"}
    assert report["metrics"]["raw"]["nll"]["value"] == pytest.approx(trained["clue x 2"]["nll"], abs=1e-4)
    found = report["metrics"]["raw"]["uncertainty_auc"]["value"]
    assert found == pytest.approx(trained["clue x 2 + deup"]["uncertainty_auc"], abs=1e-4)
    again = ClassificationReport.load("report")
    assert again.raw.own_uncertainty is not None
    assert ((again.raw.uncertainty >= 0) & (again.raw.uncertainty <= 1)).all()


def test_a_calibrator_of_numbers_is_refused_for_classes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", QUICKSTART, "--calibrator", "quantile", "--output_dir", "out"]) == 2
    assert "'quantile' is not supported for models that predict classes" in capsys.readouterr().err


def test_the_classes_of_a_trained_model_keep_their_outputs(here, capsys):
    """Data that numbers the classes in another way is brought into the order of the model."""
    images, labels = image_rows(120)
    names = datasets.Features(
        {"image": datasets.Array3D((8, 8, 3), "uint8"), "label": datasets.ClassLabel(names=NAMES)}
    )
    turned = datasets.Features({**names, "label": datasets.ClassLabel(names=NAMES[::-1])})
    datasets.Dataset.from_dict({"image": images, "label": labels}, names).to_parquet("first.parquet")
    datasets.Dataset.from_dict({"image": images, "label": 2 - labels}, turned).to_parquet("turned.parquet")
    words = {**QUICK, "max_steps": "60", "learning_rate": "0.1", "plain_epochs": "0", "objective": "ce"}
    options = [
        word
        for name, value in {**RESNET, **words, "train_file": "first.parquet"}.items()
        for word in (f"--{name}", value)
    ]
    assert main(["train", *options]) == 0
    first = json.loads(Path("out/results.json").read_text())["rows"][0]["error"]
    assert first < 0.3
    more = {"model_name_or_path": "out", "train_file": "turned.parquet", "output_dir": "more", "learning_rate": "1e-9",
            "test_fraction": "0.2"}  # fmt: skip
    options = [word for name, value in {**words, **more}.items() for word in (f"--{name}", value)]
    assert main(["train", *options]) == 0
    again = json.loads(Path("more/results.json").read_text())["rows"][0]["error"]
    assert again < 0.4
