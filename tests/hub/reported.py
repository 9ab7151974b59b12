"""Small models with a report about each, for cards and pushes."""

from pathlib import Path

import torch
from class_models import make_bert, text_data
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from clue_hf import ClassificationEvaluator, UncertaintyEvaluator
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.files import write_json
from clue_hf.hub.card import REPORT


#: A T5 that has learned the phrases.
LEARNED = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"


def save_learned(folder, noise=0.0):
    """The T5, with noise on its embeddings, in a folder with its tokenizer."""
    model = AutoModelForSeq2SeqLM.from_pretrained(LEARNED, dtype="float32")
    torch.manual_seed(0)
    with torch.no_grad():
        model.shared.weight.add_(noise * torch.randn_like(model.shared.weight))
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(LEARNED)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def save_reported_texts(folder):
    """`clue` with a whole report in which it is compared with `ce`, beside it; drawing pictures takes seconds."""
    reports = {}
    for name, noise in (("ce", 0.02), ("clue", 0.0)):
        parts = save_learned(folder / name, noise)
        evaluator = UncertaintyEvaluator(*parts, ["msp", "perplexity"], resamples=20, max_new_tokens=24)
        told = {"model": f"/home/somebody/{name}", "data": "/home/somebody/data/pairs.jsonl (fr, test)"}
        reports[name] = evaluator.evaluate(phrase_rows("test", 16, seed=1), description=told)
    clue, ce = reports["clue"], reports["ce"]
    clue.save(folder / "clue" / REPORT, clue.compare(ce, 20), "/home/somebody/ce")
    save_numbers(ce, folder / "clue" / REPORT / "compared_with")


def save_reported_classes(folder):
    """A text classifier with the numbers of a report, raw and calibrated."""
    classifier, tokenizer = make_bert(folder)
    evaluator = ClassificationEvaluator(classifier, tokenizer, 0, "isotonic", resamples=20)
    told = {"model": "bert", "data": "owner/opinions (test)"}
    save_numbers(evaluator.evaluate(text_data(), validation=text_data(), description=told), folder / REPORT)


def save_numbers(report, folder):
    """A report without its examples, page and pictures."""
    folder.mkdir()
    write_json(folder / "report.json", {"metrics": report.metrics, "description": report.description})
    (folder / "summary.md").write_text(report.summary())
