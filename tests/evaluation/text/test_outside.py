"""Texts that were generated elsewhere: the same numbers as from the model that wrote them, and hostile files."""

import gzip
import json
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learned_scores import linear_score
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from clue_hf import EvaluationReport, UncertaintyEvaluator
from clue_hf.cli.main import main
from clue_hf.data.bad_rows import BadRows
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.errors import UserError
from clue_hf.metrics import sentence_quality
from clue_hf.models.uncertainty_file import read_uncertainty
from clue_hf.posthoc.calibration_file import UncertaintyCalibration
from clue_hf.posthoc.learned import TOKEN_FEATURES, LearnedScore, token_features
from clue_hf.scorers import SCORERS


pytestmark = pytest.mark.usefixtures("without_pictures")
PICTURES = "clue_hf.evaluation.text.plots"
MODEL = Path(__file__).parents[2] / "fixtures/lm_polygraph/model"
TOKENS = ("msp", "perplexity", "mean_token_entropy")
SAMPLED = ("mc_sequence_entropy", "mc_normalized_sequence_entropy")


def outside_row(number, tokens=4):
    """A row with everything, of some numbers of its own."""
    rng = np.random.default_rng(number)
    log_probabilities = -rng.exponential(0.5, tokens)
    return {
        "source": f"source {number}",
        "output": f"word {number % 7} end",
        "references": [f"word {number % 3} end", f"word {number % 2}"],
        "tokens": [f"▁t{place}" for place in range(tokens)],
        "token_log_probabilities": log_probabilities.tolist(),
        "token_entropies": rng.uniform(0, 2, tokens).tolist(),
        "samples": [
            {"text": f"sample {place}", "token_log_probabilities": (-rng.exponential(1, 3)).tolist()}
            for place in range(2)
        ],
        "right": number % 3 == 0,
    }


ROWS = [outside_row(number) for number in range(30)]


def evaluate(rows=ROWS, bad_rows=None, folder=None, **settings):
    evaluator = UncertaintyEvaluator(**{"resamples": 10, "quality": "chrf", **settings})
    return evaluator.evaluate_outputs(rows, bad_rows=bad_rows, folder=folder)


@pytest.fixture(scope="module")
def of_model():
    model = AutoModelForSeq2SeqLM.from_pretrained(MODEL, dtype="float32")
    parts = (model, AutoTokenizer.from_pretrained(MODEL))
    evaluator = UncertaintyEvaluator(*parts, scorers=TOKENS, quality=["bleu", "chrf"], max_new_tokens=16, resamples=20)
    return evaluator.evaluate(phrase_rows("test", 25))


def test_the_report_is_that_of_the_model_that_wrote_the_texts(of_model):
    report = evaluate(of_model.examples, scorers=TOKENS, quality=["bleu", "chrf"], resamples=20)
    assert report.quality().tolist() == of_model.quality().tolist()
    for name in TOKENS:
        assert report.uncertainty(name) == pytest.approx(of_model.uncertainty(name), abs=1e-4)
        for metric, expected in of_model.metrics["scorers"][name].items():
            assert report.metrics["scorers"][name][metric].value == pytest.approx(expected.value, abs=1e-4)
            assert report.metrics["scorers"][name][metric].low == pytest.approx(expected.low, abs=1e-4)
    for name, entries in of_model.metrics["quality"].items():
        assert report.metrics["quality"][name]["corpus"].value == entries["corpus"].value
    assert report.metrics["outputs"]["exp_perplexity"] == pytest.approx(of_model.metrics["outputs"]["exp_perplexity"])
    assert "references" not in report.metrics


def test_scores_of_samples_and_what_cannot_be_computed(tmp_path):
    report = evaluate()
    assert report.scorers == [*TOKENS, *SAMPLED]
    for row, example in zip(ROWS, report.examples, strict=True):
        sums = [sum(sample["token_log_probabilities"]) for sample in row["samples"]]
        assert example["scores"]["mc_sequence_entropy"] == pytest.approx(-np.mean(sums))
        assert example["scores"]["mc_normalized_sequence_entropy"] == pytest.approx(-np.mean(sums) / 3)
        assert example["quality"] == sentence_quality("chrf", [row["output"]], [row["references"]])[0]
        assert example["tokens"] == row["tokens"]
    assert list(report.unavailable) == ["pmi", "cpmi"]
    report.save(tmp_path)
    for text in (report.summary(), (tmp_path / "report.html").read_text()):
        assert "which only the model can give" in text
        assert "cpmi" in text
    assert report.table().splitlines()[-1].replace(" ", "").startswith("|cpmi|-|-|")
    loaded = EvaluationReport.load(tmp_path)
    assert loaded.unavailable == report.unavailable
    assert loaded.table() == report.table()


def test_all_scores_that_can_be_computed():
    report = evaluate(scorers=["all"])
    assert set(report.metrics["scorers"]) | set(report.unavailable) == set(SCORERS)
    assert set(report.unavailable) == {
        "pmi", "cpmi", "self_certainty", "renyi_divergence", "fisher_rao", "p_true", "mahalanobis",
        "relative_mahalanobis", "rde", "learned",
    }  # fmt: skip
    example = report.examples[4]
    scores, row = example["scores"], ROWS[4]
    alike = 0.5  # the two samples of a row share one of their two words
    assert scores["lexical_similarity"] == pytest.approx(-alike)
    assert scores["max_token_entropy"] == pytest.approx(max(row["token_entropies"]))
    assert scores["cocoa_msp"] == pytest.approx(scores["msp"])  # the output shares no word with them
    assert scores["semantic_entropy"] == pytest.approx(scores["mc_sequence_entropy"])  # all samples are different
    one, two = ["sample", "0"], ["sample", "1"]
    jaccard = len({*one} & {*two}) / len({*one, *two})
    assert scores["degree_matrix"] == pytest.approx(1 - (2 + 2 * jaccard) / 4)
    others = evaluate(scorers=["degree_matrix"], similarity="exact").examples[4]["scores"]
    assert others["degree_matrix"] == pytest.approx(0.5)


def test_entropies_over_what_is_given():
    rows = [dict(row) for row in ROWS]
    for number, row in enumerate(rows):
        del row["token_entropies"], row["samples"]
        top = [math.log(0.5), math.log(0.25), -math.inf]
        row["top_log_probabilities"] = [top, dict(zip("abc", top, strict=True)), [-0.1], top][:4]
        row["source"] = f"{number}"
    report = evaluate(rows, scorers=["mean_token_entropy", *SAMPLED])
    entropy = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert report.uncertainty("mean_token_entropy") == pytest.approx(np.full(30, 3 * entropy / 4))
    assert report.unavailable == dict.fromkeys(
        SAMPLED, "it needs samples with token_log_probabilities, and no row has them"
    )
    assert "Entropies are over the 1-3 log-probabilities given for each token, renormalised." in report.summary()


def test_texts_of_samples_alone_have_no_probabilities():
    rows = [{**row, "samples": ["one", "two"]} for row in ROWS]
    report = evaluate(rows)
    assert report.scorers == list(TOKENS)
    assert set(report.unavailable) == {*SAMPLED, "pmi", "cpmi"}
    with pytest.raises(UserError, match="no score can be computed. mc_sequence_entropy: it needs samples with token"):
        evaluate(rows, scorers=SAMPLED)
    with pytest.raises(UserError, match="'learned' cannot run: it has not been fitted for these texts"):
        evaluate(rows, scorers=["learned"])


def test_a_column_of_verdicts_needs_no_references():
    rows = [{name: value for name, value in row.items() if name != "references"} for row in ROWS]
    report = evaluate(rows, quality="column:right", scorers=["msp"])
    assert report.quality().tolist() == [float(row["right"]) for row in ROWS]
    assert "auroc" in report.metrics["scorers"]["msp"]
    assert "references" not in evaluate(quality="column:right", scorers=["msp"]).description
    assert "against 2 references each (60 in all).\n" in evaluate(scorers=["msp"]).summary()
    with pytest.raises(
        UserError, match=r"The outputs: row 0 \(counted from 0\) has no text in 'reference', but empty"
    ):
        evaluate(rows)


BAD = {
    "token_log_probabilities": [
        ([-1.0], "has 4 tokens, 1 token_log_probabilities, 4 token_entropies, which must match"),
        ([-1, -1, math.nan, -1], r"has nan at place 2 \(counted from 0\) of 'token_log_probabilities', not a finite"),
        ([-1, 0.5, -1, -1], r"has 0.5 at place 1 .*: a log-probability is not positive"),
        ([-1, None, -1, -1], r"has nothing \(null\) at place 1"),
        ([-1, True, -1, -1], "has True at place 1"),
        ([-(10**400), 0, 0, 0], "at place 0 .*, not a finite number"),
        ("-1", "has a str: '-1' in 'token_log_probabilities', which must be a list"),
    ],
    "token_entropies": [([0, 0, 0, -1], "has -1 in 'token_entropies': an entropy is not negative")],
    "top_log_probabilities": [
        ([[-1], [], [-1], [-1]], r"has \[\] at place 1 .* where a list or map"),
        ([[-1], [0.0, 0.0], [-1], [-1]], "has probabilities that sum to 2 at place 1"),
        ([[-1], {"a": "b"}, [-1], [-1]], "has 'b' at place 1 .*, not a log-probability"),
        ([[-1], None, [-1], [-1]], r"has nothing \(null\) at place 1"),
        ([[-1]], "1 top_log_probabilities, which must match"),
    ],
    "samples": [
        ([1, "b"], r"has no text at place 0 \(counted from 0\) of 'samples', but a int: '1'"),
        ("text", "in 'samples', which must be a list"),
        ([{"text": "a", "token_log_probabilities": [1.0]}], "is not positive, at place 0 .* of 'samples'"),
        (None, "has no samples, where most rows have them"),
    ],
    "output": [(None, "has no text in 'output', but empty"), (3, "but a int: '3'")],
    "references": [([], "has an empty list in 'references'"), (["a", 1], "at place 1 .* of its list in 'references'")],
    "ended": [("yes", "has a str: 'yes' in 'ended', which must be true or false")],
    "tokens": [([1, 2, 3, 4], "other than texts in 'tokens'")],
    "source": [({"a": 1}, "has no text in 'source', but a dict")],
}


@pytest.mark.parametrize(
    ("field", "value", "message"), [(name, *case) for name, cases in BAD.items() for case in cases]
)
def test_a_bad_row_is_named_or_skipped_and_counted(field, value, message):
    rows = [dict(row) for row in ROWS]
    rows[5][field] = value
    settings = {"scorers": ["msp", "mc_sequence_entropy"], "quality": "exact_match", "resamples": 0}
    with pytest.raises(UserError, match=rf"The outputs: row 5 \(counted from 0\) .*{message}"):
        evaluate(rows, **settings)
    bad_rows = BadRows("skip")
    report = evaluate(rows, bad_rows, **settings)
    assert bad_rows.summary("The outputs") == "1 of 30 rows skipped"
    assert report.metrics["n"] == 29
    assert [row["source"] for row in report.examples] == [row["source"] for row in ROWS if row is not ROWS[5]]


def test_a_file_is_read_with_its_bad_lines_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps(row) for row in ROWS]
    lines[3:3] = ["{not json", "[1]", json.dumps({**ROWS[0], "output": ""})]
    with gzip.open("outputs.jsonl.gz", "wt") as file:
        file.write("\n".join(lines))
    words = ["evaluate", "--outputs", "outputs.jsonl.gz", "--resamples", "5", "--report_dir", "report"]
    assert main(words) == 2
    assert "row 3 (counted from 0) on line 4 is not valid JSON" in capsys.readouterr().err
    assert main([*words, "--on_bad_row", "skip", "--quality", "exact_match,chrf"]) == 0
    printed = capsys.readouterr().out
    assert "Texts from elsewhere on outputs.jsonl.gz (2 of 33 rows skipped): 31 outputs (1 empty)" in printed
    assert "pmi could not be computed: it needs the probabilities of the output without its source" in printed
    assert EvaluationReport.load("report").metrics["empty_outputs"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model", "--outputs", "outputs.jsonl"], "Give MODEL or --outputs, not both"),
        (["--outputs", "nowhere.jsonl"], "outputs 'nowhere.jsonl' does not exist"),
        (["--outputs", "empty.jsonl"], "outputs 'empty.jsonl' has no rows"),
        (["--outputs", "outputs.csv"], "must be a jsonl file"),
        (["--outputs", "outputs.jsonl", "--compare", "other"], "--compare needs a model"),
        ([], "Which model? MODEL is missing"),
    ],
)
def test_mistakes_are_explained(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    for name in ("outputs.jsonl", "outputs.csv"):
        Path(name).write_text(json.dumps(ROWS[0]))
    Path("empty.jsonl").write_text("\n")
    assert main(["evaluate", *words]) == 2
    assert message in capsys.readouterr().err


def test_calibrate_finds_what_their_uncertainty_means(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [outside_row(number) for number in range(300)]
    for row in rows:
        row["right"] = row["token_log_probabilities"][0] > -1
    Path("outputs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["calibrate", "--outputs", "outputs.jsonl", "--quality_column", "right", "--scorer", "msp"]
    assert main(words) == 2
    assert "Give --output_dir" in capsys.readouterr().err
    assert main([*words, "--output_dir", "means", "--token_calibrator", "temperature"]) == 2
    assert "--token_calibrator needs a model" in capsys.readouterr().err
    assert main([*words, "--output_dir", "means"]) == 0
    calibration = UncertaintyCalibration.read("means")
    msp = np.array([-sum(row["token_log_probabilities"]) for row in rows])
    right = np.array([row["right"] for row in rows], float)
    expected = UncertaintyCalibration.fit("msp", {}, msp, right, [0.3], test="hoeffding-bentkus")
    assert calibration.confidence.quality == pytest.approx(expected.confidence.quality)
    assert calibration.threshold(0.3, None).threshold == pytest.approx(expected.threshold(0.3, None).threshold)
    assert "column 'right' of the data" in calibration.definitions["quality"]
    assert "msp on 300 rows of outputs.jsonl" in capsys.readouterr().out


def learnable_rows(count, first=0):
    """Texts that are the better the longer they are: the sum of log-probabilities says the opposite."""
    rows = [outside_row(number, tokens=2 + number % 8) for number in range(first, first + count)]
    return [{**row, "quality": len(row["tokens"]) / 10} for row in rows]


def write_rows(name, rows):
    Path(name).write_text("\n".join(map(json.dumps, rows)))


def test_a_score_is_learned_from_them_and_used_for_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_rows("judged.jsonl", learnable_rows(400))
    write_rows("new.jsonl", new := learnable_rows(60, first=1000))
    judged = ["--quality_column", "quality"]
    learn = ["calibrate", "--outputs", "judged.jsonl", *judged, "--scorer", "learned", "--output_dir", "means"]
    assert main([*learn, "--risks", "0.3"]) == 0
    printed = capsys.readouterr().out
    learned = LearnedScore.from_checked_dict(read_uncertainty("means")["learned_score"])
    assert not learned.is_single
    assert not learned.reads_source_tokens
    assert f"Learned score: {learned.explanation}" in printed
    assert learned.explanation.endswith("It does not know the lengths of the sources.")
    calibration = UncertaintyCalibration.read("means")
    assert (calibration.scorer, calibration.data["rows"]) == ("learned", 400 - sum(learned.rows.values()))
    use = ["evaluate", "--outputs", "new.jsonl", *judged, "--scorers", "msp,learned", "--resamples", "50"]
    assert main([*use, "--calibration", "means", "--report_dir", "report"]) == 0
    report = EvaluationReport.load("report")
    expected = [
        learned(token_features(row["token_log_probabilities"], row["token_entropies"], 0, True), []) for row in new
    ]
    assert report.uncertainty("learned") == pytest.approx(expected, abs=1e-9)
    assert report.metrics["learned"]["prr_gain"].low > 0
    assert "PRR of learned minus that of" in capsys.readouterr().out
    assert main([*use, "--report_dir", "other"]) == 0
    assert "learned could not be computed: it has not been fitted for these texts" in capsys.readouterr().out


def test_a_score_is_not_learned_where_something_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{name: value for name, value in row.items() if name != "token_entropies"} for row in learnable_rows(60)]
    write_rows("judged.jsonl", rows)
    words = ["--outputs", "judged.jsonl", "--quality_column", "quality"]
    assert main(["calibrate", *words, "--scorer", "learned", "--output_dir", "means"]) == 2
    message = "there is no mean_token_entropy: it needs token_entropies or top_log_probabilities, and no row has them"
    assert message in capsys.readouterr().err
    assert main(["calibrate", *words, "--scorer", "msp", "--output_dir", "means"]) == 0
    assert main(["evaluate", *words, "--scorers", "learned", "--calibration", "means"]) == 2
    assert "There is no learned score in --calibration means" in capsys.readouterr().err
    assert main(["evaluate", "model", "--calibration", "means"]) == 2
    assert "--calibration goes with --outputs or --endpoint" in capsys.readouterr().err
    # fitted to the outputs of a model, it knows more than these texts tell
    of_model = linear_score({"tokens": 0.01})
    mean = [float(name == "source_tokens") for name in TOKEN_FEATURES]
    of_model = replace(of_model, regressor=replace(of_model.regressor, mean=mean))
    report = evaluate(scorers=["msp", "learned"], learned_score=of_model)
    assert "the number of tokens of each source" in report.unavailable["learned"]
    # one that is a single scorer needs what that needs
    single = linear_score({}, single="msp")
    report = evaluate(rows, scorers=["learned"], learned_score=single, quality="column:quality")
    assert report.uncertainty("learned").tolist() == report.uncertainty("msp").tolist()


def test_an_interrupted_evaluation_goes_on_and_notices_other_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("clue_hf.evaluation.text.evaluator.SHARD", 8)
    whole, judged = evaluate(), []

    def judge(texts, references):
        judged.extend(texts)
        if len(judged) == 16:
            raise KeyboardInterrupt
        return [1.0 for _ in texts]

    monkeypatch.setitem(__import__("clue_hf.metrics").metrics.QUALITIES, "own", judge)
    rows = [{**row, "references": row["references"][:1]} for row in ROWS]
    with pytest.raises(KeyboardInterrupt):
        evaluate(rows, folder=tmp_path, quality="own")
    evaluator = UncertaintyEvaluator(resamples=10, quality="own")
    with pytest.raises(UserError, match="another outputs"):
        evaluator.evaluate_outputs([*rows[:-1], {**rows[-1], "output": "other"}], folder=tmp_path, resume=True)
    report = evaluator.evaluate_outputs(rows, folder=tmp_path, resume=True)
    assert len(judged) == 16 + 22  # the first 8 were kept
    assert report.uncertainty("msp").tolist() == whole.uncertainty("msp").tolist()


def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("clue_hf.evaluation.text.evaluator.SHARD", 8)

    def peak(count):
        path = tmp_path / f"{count}.jsonl"
        path.write_text("\n".join(json.dumps(outside_row(number % 20, tokens=60)) for number in range(count)))
        evaluator = UncertaintyEvaluator(scorers=["msp"], quality="exact_match", resamples=0)
        tracemalloc.start()
        evaluator.evaluate_outputs(path, folder=tmp_path / f"report{count}")
        largest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return largest

    peak(10)
    assert peak(320) < 1.6 * peak(80)
