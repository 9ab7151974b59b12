"""Cards: what they tell of a report, how the Hub reads it back, and what texts of others cannot do in them."""

import json
import shutil

import numpy as np
import pytest
from class_models import make_bert, text_data
from hub.reported import save_numbers, save_reported_classes, save_reported_texts
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from clue_hf import ClassificationEvaluator, UserError
from clue_hf.hub.card import REPORT, CardOptions, is_ours, make_card, write_card
from clue_hf.hub.card_model import read_training
from clue_hf.hub.escape import code_block, code_span, markdown_text, one_line, shareable_command, without_folders
from clue_hf.metrics import METRICS, metric_definitions, regression_report


MARKDOWN = MarkdownIt("commonmark").enable("table")
HOSTILE = (
    'x|y `a` ``b`` <script>alert(1)</script> [l](javascript:1) ![i](u) \n---\nlicense: evil\n# Evil *b* _c_ "q" \\'
)
TOKEN = "hf_" + "a1B2" * 8


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A T5 with a report and a baseline, and a text classifier with a calibrated one."""
    folder = tmp_path_factory.mktemp("models")
    save_reported_texts(folder)
    save_reported_classes(folder / "bert")
    return folder


def copy(source, target):
    return shutil.copytree(source, target)


def report_of(folder):
    return json.loads((folder / REPORT / "report.json").read_text())


def edit_report(folder, change):
    content = report_of(folder)
    change(content)
    (folder / REPORT / "report.json").write_text(json.dumps(content))


def results_of(text):
    """The model-index as the Hub's client reads it: (type, config) -> value."""
    return {
        (entry.metric_type, entry.metric_config): entry.metric_value for entry in ModelCard(text).data.eval_results
    }


def cells_of(text):
    """All tables of a card as a markdown parser sees them: lists of rows of texts."""
    rows, tokens = [], MARKDOWN.parse(body_of(text))
    for place, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        if token.type in ("td_open", "th_open"):
            rows[-1].append(text_of(tokens[place + 1]))
    return rows


def text_of(inline):
    return "".join(child.content for child in inline.children)


def body_of(text):
    return text.split("\n---\n", 1)[1]


def test_the_results_are_read_back_as_the_report_has_them(made):
    text = write_card(made / "clue", options=CardOptions("me/clue")).read_text()
    metrics, results = report_of(made / "clue")["metrics"], results_of(text)
    for scorer in ("msp", "perplexity"):
        assert results["prr", scorer] == metrics["scorers"][scorer]["prr"]["value"] is not None
    assert results["bleu", "whole corpus"] == metrics["quality"]["bleu"]["corpus"]["value"]
    assert results["bleu", "mean of the outputs"] == metrics["quality"]["bleu"]["mean"]["value"] > 0
    assert results["token_ece", None] == metrics["references"]["token_ece"]["value"]
    data = ModelCard(text).data
    assert (data.library_name, data.tags) == ("transformers", ["clue", "uncertainty", "calibration"])
    assert {(entry.dataset_name, entry.dataset_split) for entry in data.eval_results} == {("pairs.jsonl", "test")}
    assert (data.license, data.language, data.datasets, data.base_model) == (None,) * 4


def test_the_table_has_intervals_the_baseline_and_the_difference(made):
    folder = made / "clue"
    rows = {tuple(row[:2]): row[2:] for row in cells_of(write_card(folder).read_text())}
    assert rows["metric", "of"] == ["this model", "ce", "difference"]
    mine = report_of(folder)["metrics"]["scorers"]["msp"]["prr"]
    theirs = json.loads((folder / REPORT / "compared_with" / "report.json").read_text())["metrics"]["scorers"]["msp"][
        "prr"
    ]
    apart = json.loads((folder / REPORT / "comparison.json").read_text())["msp"]["prr"]
    shown = [f"{entry['value']:{sign}.3f} [{entry['low']:{sign}.3f}, {entry['high']:{sign}.3f}]"
             for entry, sign in ((mine, ""), (theirs, ""), (apart, "+"))]  # fmt: skip
    assert rows["PRR", "msp"] == [*shown[:2], f"{shown[2]}, p = {apart['p_value']:.3f}"]
    alone = cells_of(write_card(folder, baseline="none").read_text())
    assert all(len(row) == 3 for row in alone)


def test_the_card_of_a_classifier(made):
    text = write_card(made / "bert", options=CardOptions("me/bert", "mit", "en")).read_text()
    metrics, results, data = report_of(made / "bert")["metrics"], results_of(text), ModelCard(text).data
    for kind in ("raw", "calibrated"):
        for name in ("error", "ece", "prr", "uncertainty_auc"):
            assert results[name, kind] == metrics[kind][name]["value"]
    assert (data.license, data.language, data.datasets) == ("mit", "en", ["owner/opinions"])
    assert data.pipeline_tag == "text-classification"
    assert 'answer["label"], answer["score"], answer["uncertainty"], answer["confidence"]' in text
    assert "fitted on the validation data" in text


def test_the_card_of_a_regressor(tmp_path):
    """A third kind of report: the same tables, with the metrics of numbers."""
    generator = np.random.default_rng(0)
    mean, std = generator.normal(size=30) * 1000, generator.uniform(500, 900, 30)
    raw = regression_report(mean, std, mean + std * generator.normal(size=30), resamples=20)
    (tmp_path / REPORT).mkdir()
    description = {
        "data": "taxi.csv (test)",
        "metrics": metric_definitions(METRICS["numbers"], "numbers"),
        "notes": ["3 values were missing."],
    }
    content = {"metrics": {"n": 30, "raw": raw, "clamped": 2}, "description": description}
    (tmp_path / REPORT / "report.json").write_text(json.dumps(content))
    (tmp_path / "config.json").write_text('{"architectures": ["CLUETabularResNetForRegression"], "model_type": "t"}')
    text = write_card(tmp_path).read_text()
    assert results_of(text)["mse", "raw"] == raw["mse"]["value"]
    assert "30 rows" in text
    assert "3 values were missing" in text
    assert "2 variances were below the minimum" in text
    assert ModelCard(text).data.pipeline_tag == "tabular-regression"
    assert 'answer["mean"], answer["std"], answer["interval"]' in text


def test_every_metric_of_the_table_is_defined(made):
    for name in ("clue", "bert"):
        text = write_card(made / name).read_text()
        told = text.split("## Definitions")[1]
        headings = {row[0] for row in cells_of(text)} - {"metric"}
        assert len(headings) > 5
        assert [heading for heading in headings if f"**{heading}**: " not in told] == []


def test_the_pictures_are_there(made):
    folder = made / "clue"
    images = [child.attrs["src"] for token in MARKDOWN.parse(body_of(write_card(folder).read_text())) if token.children
              for child in token.children if child.type == "image"]  # fmt: skip
    assert len(images) >= 3
    assert all((folder / image).is_file() for image in images)


def test_the_usage_is_python(made):
    for name in ("clue", "bert"):
        tokens = MARKDOWN.parse(body_of(write_card(made / name, options=CardOptions('me/"odd')).read_text()))
        [code] = [token.content for token in tokens if token.type == "fence" and token.info == "python"]
        compile(code, "usage", "exec")
        assert 'pipeline("me/\\"odd")' in code


def test_the_same_report_gives_the_same_bytes_anywhere(made, tmp_path, monkeypatch):
    first = write_card(made / "clue", options=CardOptions("me/clue")).read_bytes()
    assert write_card(made / "clue", options=CardOptions("me/clue")).read_bytes() == first
    elsewhere = copy(made / "clue", tmp_path / "other")
    (elsewhere / "README.md").unlink()
    monkeypatch.chdir(tmp_path)
    assert write_card("other", options=CardOptions("me/clue")).read_bytes() == first
    assert b"/home/" not in first
    assert str(made).encode() not in first


def test_a_report_in_memory_gives_the_card_of_its_file(tmp_path):
    classifier, tokenizer = make_bert(tmp_path)
    evaluator = ClassificationEvaluator(classifier, tokenizer, 0, "isotonic", resamples=20)
    told = {"model": "bert", "data": "owner/opinions (test)"}
    report = evaluator.evaluate(text_data(), validation=text_data(), description=told)
    in_memory = write_card(tmp_path, report=report).read_text()
    assert results_of(in_memory)["ece", "calibrated"] == report.metrics["calibrated"]["ece"].value
    save_numbers(report, tmp_path / REPORT)
    assert write_card(tmp_path).read_text() == in_memory


def test_limits_are_those_of_the_report(made, tmp_path):
    folder = copy(made / "clue", tmp_path / "model")
    (folder / "uncertainty.json").write_text(json.dumps(
        {"version": 1, "members": ["members/1"], "confidence": {}, "data": {"name": "/home/x/v.csv", "rows": 77}}
    ))  # fmt: skip

    def change(content):
        content["metrics"]["outputs"]["cut"] = 5
        content["metrics"]["scorers"]["msp"]["prr"] = {"value": None, "reason": "all qualities are equal", "n": 8}

    edit_report(folder, change)
    text = write_card(folder).read_text()
    limits = text.split("## Limits")[1]
    assert "16 outputs." in limits
    assert "5 outputs were cut at 24 tokens" in limits
    assert "Not available (all qualities are equal): PRR (msp)." in limits
    assert "fitted on `v.csv` (77 rows)" in limits
    assert "ensemble of 2 models" in limits
    assert ("prr", "msp") not in results_of(text)


def test_hostile_names_stay_names(made, tmp_path):
    folder = copy(made / "clue", tmp_path / "model")

    def change(content):
        metrics, description = content["metrics"], content["description"]
        description.update(model=HOSTILE, data=f"{HOSTILE} (test)", interval=HOSTILE)
        metrics["scorers"][HOSTILE] = metrics["scorers"].pop("msp")
        description["metrics"]["prr"] = HOSTILE
        description["versions"]["torch"] = HOSTILE

    edit_report(folder, change)
    other = folder / REPORT / "compared_with" / "report.json"
    content = json.loads(other.read_text())
    content["description"]["model"] = HOSTILE
    other.write_text(json.dumps(content))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": HOSTILE}))
    results = {
        "command": f"python train.py --name {HOSTILE!r} ```", "rows": [{"objective": HOSTILE, "split": HOSTILE}],
        "history": {}, "definitions": {}, "settings": {"training": {"optim": HOSTILE}, "model": {}},
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results))
    text = write_card(folder, options=CardOptions(HOSTILE, HOSTILE, HOSTILE, [HOSTILE], [HOSTILE])).read_text()
    data = ModelCard(text).data
    assert data.license == data.language == data.tags[-1] == data.datasets[0] == one_line(HOSTILE)
    assert data.model_name == one_line(HOSTILE)
    assert results_of(text)["prr", one_line(HOSTILE)] is not None
    known = ["datasets", "language", "library_name", "license", "model-index", "pipeline_tag", "tags"]
    assert sorted(data.to_dict()) == known
    tokens = MARKDOWN.parse(body_of(text))
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1"] + ["h2"] * 5
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} <= {"text", "code_inline", "strong_open", "strong_close", "image",
                                                "softbreak"}  # fmt: skip
    assert [token.content.strip() for token in tokens if token.type == "html_block"] == [text.splitlines()[
        text.splitlines().index("---", 1) + 1]]  # fmt: skip
    sources = [child.attrs["src"] for child in inline if child.type == "image"]
    assert sources
    assert all(source.startswith(f"{REPORT}/") for source in sources)
    assert {len(row) for row in cells_of(text)} == {5}


texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("`|*_[]<>&\\#~$!\n\r -"), max_size=40)


@given(texts)
def test_a_text_shows_as_it_is(text):
    for place in ("a {} z", "- a {}", "# a {} z"):
        [inline] = [token for token in MARKDOWN.parse(place.format(markdown_text(text))) if token.type == "inline"]
        assert {child.type for child in inline.children} <= {"text", "text_special"}
        assert text_of(inline).split() == ["a", *one_line(text).split(), *(["z"] if place.endswith("z") else [])]


@given(texts)
def test_code_shows_as_it_is(text):
    [inline] = [token for token in MARKDOWN.parse(f"a {code_span(text)} z") if token.type == "inline"]
    [code] = [child for child in inline.children if child.type == "code_inline"]
    assert code.content.strip() == one_line(text).strip()
    [row] = [row for row in cells_of(f"\n---\n|a|b|\n|-|-|\n|{code_span(text, in_table=True)}|z|") if row[-1] == "z"]
    assert len(row) == 2
    assert row[0].strip() == one_line(text)
    block, *rest = MARKDOWN.parse(code_block(text))
    assert rest == []
    assert block.content.split() == one_line(text).split()


def test_commands_lose_secrets_and_folders(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "a-secret-of-mine")
    command = (
        f"/usr/bin/python /home/me/train.py configs/a.yaml --hub_token {TOKEN} --wandb_api_key=abc --alpha 0.9 "
        "--run_name a-secret-of-mine --train_file '/data/of me/x.csv' --output_dir=/scratch/me/out "
        """--config_overrides '{"a": "/home/me/b.json"}' --tokenizer_name owner/name --url https://host/a/b"""
    )
    assert shareable_command(command) == (
        "python train.py configs/a.yaml --alpha 0.9 --run_name *** --train_file x.csv --output_dir=out "
        """--config_overrides '{"a": "b.json"}' --tokenizer_name owner/name --url https://host/a/b"""
    )
    assert TOKEN not in shareable_command(f"python 'unclosed {TOKEN}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("/home/me/x", "x"), ("~/x/y", "y"), ("C:\\Users\\me\\x", "x"), ("a/b", "a/b"), ("https://a.b/c/d", "https://a.b/c/d"),
     ("owner/name", "owner/name"), ("see /home/me/x.csv.", "see x.csv."), ("/", "/")],
)  # fmt: skip
def test_folders_of_the_machine_are_left_out(text, expected):
    assert without_folders(text) == expected


def test_a_token_in_the_report_does_not_get_into_the_card(made, tmp_path):
    folder = copy(made / "bert", tmp_path / "model")
    edit_report(folder, lambda content: content["description"].update(model=TOKEN, data=f"{TOKEN} (test)"))
    assert TOKEN not in write_card(folder).read_text()


def test_training_is_told_from_the_results_beside_or_above(made, tmp_path):
    run = tmp_path / "run"
    results = {
        "command": "clue-hf train a.yaml --alpha 0.7",
        "rows": [{"objective": "ce", "alpha": None, "split": "test", "error": 1.5, "ece": 0.25},
                 {"objective": "clue", "alpha": 0.7, "split": "test", "error": 1.25, "ece": 0.125}],
        "history": {"ce": [], "clue": []}, "definitions": {"ece": "a | definition"},
        "settings": {"training": {"objective": "clue", "learning_rate": 0.01, "max_steps": 7, "num_train_epochs": 3.0,
                                  "hub_token": TOKEN}, "model": {"model_name_or_path": "google-t5/t5-small"}},
    }  # fmt: skip
    folder = copy(made / "ce", run / "clue")
    (run / "results.json").write_text(json.dumps(results))
    text = write_card(folder).read_text()
    assert "CLUE with alpha = 0.7" in text
    assert "clue-hf train a.yaml --alpha 0.7" in text
    assert ["clue", "test", "1.250", "0.125"] in cells_of(text)
    assert "**ece**: a \\| definition" in text
    assert "max\\_steps `7`" in text
    assert "num\\_train" not in text
    assert TOKEN not in text
    assert ModelCard(text).data.base_model == "google-t5/t5-small"
    assert read_training(copy(made / "ce", run / "another")).is_known is False
    (folder / "results.json").write_text("{}")
    with pytest.raises(UserError, match="was not written by clue-hf train"):
        write_card(folder)


def test_an_edited_card_is_kept(made, tmp_path):
    folder = copy(made / "bert", tmp_path / "model")
    path = write_card(folder)
    assert is_ours(path)
    path.write_text(path.read_text().replace("bert model", "fine bert model"))
    with pytest.raises(UserError, match="--overwrite"):
        write_card(folder)
    assert "fine bert model" in path.read_text()
    write_card(folder, overwrite=True)
    assert is_ours(path)
    path.write_text("---\nlibrary_name: peft\n---\n# Model Card for Model ID\n\n[More Information Needed]\n")
    assert is_ours(write_card(folder))  # nobody wrote that one


def test_a_report_from_elsewhere_comes_into_the_folder_without_its_examples(made, tmp_path):
    folder = copy(made / "ce", tmp_path / "model")
    with pytest.raises(UserError, match="There is no .*report.json"):
        write_card(folder, report=tmp_path)
    text = write_card(folder, report=made / "clue" / REPORT, options=CardOptions("me/clue")).read_text()
    names = {path.relative_to(folder / REPORT).as_posix() for path in (folder / REPORT).rglob("*") if path.is_file()}
    assert {"report.json", "comparison.json", "compared_with/report.json", "rejection_curves.png"} <= names
    assert not [name for name in names if name.endswith(("jsonl", "html"))]
    assert write_card(folder, options=CardOptions("me/clue")).read_text() == text  # the copy tells the same
    write_card(folder, report=made / "bert" / REPORT)  # a copy makes way
    assert "ECE" in (folder / "README.md").read_text()
    with pytest.raises(UserError, match="holds another report"):
        write_card(copy(made / "clue", tmp_path / "clue"), report=made / "bert" / REPORT)


@pytest.mark.parametrize("content", ["{", '{"metrics": {}, "description": {}}', '{"metrics": 1}', "[]"])
def test_a_damaged_report_is_named(made, tmp_path, content):
    folder = copy(made / "bert", tmp_path / "model")
    (folder / REPORT / "report.json").write_text(content)
    with pytest.raises(UserError, match="report.json"):
        make_card(folder, None, CardOptions())


def test_without_a_report_it_says_so(made):
    text = make_card(made / "ce", None, CardOptions())
    assert "Not evaluated yet" in text
    assert "has not been evaluated" in text
    assert ModelCard(text).data.eval_results is None
    with pytest.raises(UserError, match="does not exist"):
        write_card(made / "nothing")
