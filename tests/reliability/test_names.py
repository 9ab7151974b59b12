"""Cards of classifiers and of models of numbers, whose classes, columns and data have names that are meant to harm."""

import datasets
import pytest
from class_models import make_bert, text_data
from hub.reported import save_numbers
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from number_models import make_tabular

from clue_hf import ClassificationEvaluator, RegressionEvaluator
from clue_hf.hub.card import REPORT, write_card
from clue_hf.inputs.table_preprocessor import TablePreprocessor


EVIL = "x|`a`<script>alert(1)</script>[l](javascript:1)\n---\nlicense: evil\n# Evil *b*"
MARKDOWN = MarkdownIt("commonmark").enable("table")


def classifier(folder):
    model, tokenizer = make_bert()
    names = {0: EVIL, 1: "negative"}
    model.config.id2label, model.config.label2id = names, {name: number for number, name in names.items()}
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    data = text_data().map(lambda row: {"label": EVIL if row["label"] == "positive" else "negative"})
    evaluator = ClassificationEvaluator(model, tokenizer, 0, resamples=5)
    return evaluator.evaluate(data, description={"model": EVIL, "data": f"{EVIL} (test)"})


def regressor(folder):
    data = datasets.Dataset.from_dict({"x": [0.0, 1.0, 2.0, 3.0] * 4, EVIL: [1.0, 2.5, 3.0, 4.0] * 4})
    preprocessor = TablePreprocessor.fit(data, EVIL)
    model = make_tabular(preprocessor, variance_head=True)
    model.save_pretrained(folder)
    preprocessor.save_pretrained(folder)
    evaluator = RegressionEvaluator(model, preprocessor, resamples=5)
    return evaluator.evaluate(data, description={"model": EVIL, "data": f"{EVIL} (test)"})


@pytest.mark.parametrize("make", [classifier, regressor])
def test_names_cannot_become_yaml_or_html_of_a_card(make, tmp_path):
    report = make(tmp_path)
    save_numbers(report, tmp_path / REPORT)
    text = write_card(tmp_path).read_text()
    data = ModelCard(text).data
    assert data.license is None
    assert data.eval_results
    body = text.split("\n---\n", 1)[1]
    assert "\n# Evil" not in body
    tokens = MARKDOWN.parse(body)
    assert [token.content for token in tokens if token.type == "html_block" and "script" in token.content] == []
    inline = [child for token in tokens for child in token.children or ()]
    assert not {"html_inline", "link_open"} & {child.type for child in inline}
    assert [token.tag for token in tokens if token.type == "heading_open"].count("h1") == 1
