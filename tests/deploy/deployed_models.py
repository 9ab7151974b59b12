"""Folders with tiny models of every kind, as people would have them, and inputs for each."""

import torch
from class_models import TEXTS, make_bert
from classifiers import image_rows, make_processor, make_vit
from helpers import SENTENCES, make_model, make_tokenizer
from peft import LoraConfig, get_peft_model
from transformers import BertForSequenceClassification

from clue_hf.data.embedded.diabetes import load_diabetes_splits
from clue_hf.data.targets import TargetScale
from clue_hf.inputs.table_preprocessor import TablePreprocessor
from clue_hf.models.tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression
from clue_hf.models.uncertainty_file import write_uncertainty
from clue_hf.posthoc import ErrorNormalizer, QuantileCalibrator, TemperatureCalibrator


TARGET = "progression"
KINDS = ("t5", "gpt2", "lora", "image", "image ensemble", "image deup", "text classes", "table", "table ensemble",
         "table deup", "text numbers")  # fmt: skip


def save(folder, model, processing_class):
    model.save_pretrained(folder)
    processing_class.save_pretrained(folder)


def make_table_model(preprocessor, seed=0, **settings):
    torch.manual_seed(seed)
    sizes = {"num_numeric": preprocessor.num_numeric, "category_sizes": preprocessor.category_sizes}
    small = {"hidden_size": 12, "num_blocks": 1, "dropout": 0.2}
    return CLUETabularResNetForRegression(CLUETabularResNetConfig(**{**sizes, **small, **settings})).eval()


def table_rows(count=7):
    rows = load_diabetes_splits()["test"].select(range(count)).to_list()
    return [{name: value for name, value in row.items() if name != TARGET} for row in rows]


def make_image_folder(folder, ensemble=False, deup=False):
    save(folder, make_vit(), make_processor())
    if ensemble:
        make_vit(seed=1).save_pretrained(folder / "members/1")
        write_uncertainty(folder, members=["members/1"], mc_samples=0)
    if deup:
        second = make_vit(seed=2, names=["error"], sharpness=0.5)
        second.config.problem_type = "regression"
        TargetScale(1.5, 0.5).store(second.config)
        second.save_pretrained(folder / "error_predictor")
        write_uncertainty(
            folder,
            calibrator=TemperatureCalibrator(2.0).to_dict(),
            error_predictor={"folder": "error_predictor", "normalizer": ErrorNormalizer(1.0, 2.0).to_dict()},
        )


def make_table_folder(folder, ensemble=False, deup=False):
    preprocessor = TablePreprocessor.fit(load_diabetes_splits()["train"], TARGET, categorical_columns=["sex"])
    save(folder, make_table_model(preprocessor, variance_head=not deup), preprocessor)
    write_uncertainty(folder, mc_samples=0)
    if ensemble:
        make_table_model(preprocessor, 1, variance_head=True).save_pretrained(folder / "members/1")
        write_uncertainty(folder, members=["members/1"])
    if deup:
        second = make_table_model(preprocessor, 2)
        TargetScale(1.0, 0.3).store(second.config)
        second.save_pretrained(folder / "error_predictor")
        calibrator = QuantileCalibrator([-1.0, 0.5, 2.0], [0.2, 0.5, 0.9])
        stored = {"error_predictor": {"folder": "error_predictor"}, "calibrated_variance": "predicted"}
        write_uncertainty(folder, calibrator=calibrator.to_dict(), **stored)


def make_number_texts(folder):
    model, tokenizer = make_bert()
    config = model.config
    config.num_labels, config.problem_type = 1, "regression"
    TargetScale(10.0, 2.0).store(config)
    torch.manual_seed(3)
    save(folder, BertForSequenceClassification(config), tokenizer)
    write_uncertainty(folder, mc_samples=0)


def make_lora_folder(folder):
    save(folder / "base", make_model("t5"), make_tokenizer())
    base = make_model("t5")
    base.config._name_or_path = base.name_or_path = str(folder / "base")
    model = get_peft_model(base, LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, target_modules=["q", "v", "wo"]))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=2.0)
    save(folder / "adapter", model, make_tokenizer())
    return model


def make_folder(folder, kind):
    """A folder with a model of a kind; where it is."""
    if kind in ("t5", "gpt2"):
        save(folder, make_model(kind), make_tokenizer(kind == "t5"))
    elif kind == "lora":
        make_lora_folder(folder)
        return folder / "adapter"
    elif kind == "text classes":
        make_bert(folder)
        write_uncertainty(folder, mc_samples=0)
    elif kind == "text numbers":
        make_number_texts(folder)
    else:
        make = make_image_folder if kind.startswith("image") else make_table_folder
        make(folder, kind.endswith("ensemble"), kind.endswith("deup"))
    return folder


def inputs_for(kind):
    """Seven inputs."""
    if kind.startswith("image"):
        return list(image_rows(7)[0])
    if kind.startswith("table"):
        return table_rows()
    return [*SENTENCES[:6], "a ."] if kind in ("t5", "gpt2", "lora") else TEXTS[:7]
