"""Judges from elsewhere: metrics of `evaluate`, functions of modules, columns."""

import textwrap

import pytest

from clue_hf.errors import UserError
from clue_hf.metrics import find_quality, metric_info, quality_names, quality_signature, sentence_quality
from clue_hf.metrics.judges import find_judge


METRIC = """
    import datasets
    import evaluate

    class Own(evaluate.Metric):
        def _info(self):
            text = datasets.Value("string")
            features = datasets.Features({{"predictions": text, "references": text}})
            return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

        def _compute(self, predictions, references):
            same = [float(a == b) for a, b in zip(predictions, references, strict=True)]
            return {values}
"""


@pytest.fixture
def metric(tmp_path):
    """Writes the folder of a metric that computes some values; returns its name as a quality."""

    def write(name, values):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(textwrap.dedent(METRIC).format(values=values))
        return f"evaluate:{folder}"

    return write


PREDICTIONS, REFERENCES = ["a", "b", "", "c"], [["a"], ["x", "b"], ["d"], ["x"]]


@pytest.mark.parametrize("values", ['{"mean_same": sum(same) / len(same)}', '{"own_same": same}'])
def test_a_metric_of_evaluate_judges_each_text_and_the_best_reference_counts(metric, values):
    name = metric("own_" + ("list" if "own" in values else "mean"), values)
    assert sentence_quality(name, PREDICTIONS, REFERENCES).tolist() == [1, 1, 0, 0]
    assert sentence_quality(name, ["a"], ["a"]).tolist() == [1]
    assert sentence_quality(name, ["", ""], ["a", "b"]).tolist() == [0, 0]
    assert "best of the references" in quality_signature(name, None)
    assert metric_info(name, "text").heading.startswith("evaluate:own_")  # and no folder


def test_of_several_values_one_is_named(metric):
    name = metric("several", '{"first": sum(same) / len(same), "second": 1 - sum(same) / len(same)}')
    with pytest.raises(UserError, match="computes first, second: name one of them, as in .*several:first"):
        sentence_quality(name, PREDICTIONS, REFERENCES)
    assert sentence_quality(f"{name}:second", ["a", "b"], ["a", "c"]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ('{"score": 100 * sum(same)}', r"is 100 for prediction 0 \(counted from 0\), but must lie between 0 and 1"),
        ('{"score": float("nan")}', "is nan for prediction 0"),
        ('{"score": sum(same) / 0}', "cannot judge a text against a text: float division by zero"),
    ],
)
def test_what_a_metric_of_evaluate_gets_wrong_is_said(metric, values, message):
    name = metric(f"wrong{abs(hash(values))}", values)
    with pytest.raises(UserError, match=message):
        sentence_quality(name, ["a", "b"], ["a", "b"])


def test_a_metric_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="cannot be loaded"):
        find_quality(f"evaluate:{tmp_path / 'nowhere'}")


def test_a_function_of_a_module_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere", *__import__("sys").path])
    (tmp_path / "own_judge.py").write_text(
        "def same(texts, references):\n    '''1 where they are the same.'''\n"
        "    return [a == b for a, b in zip(texts, references)]\n\ndef short(texts, references):\n    return [1.0]\n"
    )
    assert sentence_quality("own_judge:same", PREDICTIONS, REFERENCES).tolist() == [1, 1, 0, 0]
    assert quality_signature("own_judge:same") == "1 where they are the same."
    assert quality_names("bleu,own_judge:same") == ["bleu", "own_judge:same"]
    with pytest.raises(UserError, match="gave 1 values for 4 texts"):
        sentence_quality("own_judge:short", PREDICTIONS, REFERENCES)
    with pytest.raises(UserError, match="has no function 'sane'. Did you mean 'same'"):
        find_judge("own_judge:sane")
    with pytest.raises(UserError, match="not_there:judge cannot be imported: No module named 'not_there'"):
        find_judge("not_there:judge")


def test_a_column_judges_no_other_texts():
    with pytest.raises(UserError, match="is in a column of the data"):
        sentence_quality("column:right", ["a"], ["b"])
    assert quality_signature("column:right") == "column 'right' of the data"
    with pytest.raises(ValueError, match="`quality` must be among bleu"):
        quality_names("blue")
