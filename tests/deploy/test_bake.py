"""`clue-hf calibrate --bake`: a plain transformers model with the temperature in its weights."""

import contextlib
import json
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from deploy.deployed_models import make_folder, save
from helpers import CAUSAL, make_model, make_tokenizer
from huggingface_hub import ModelCard
from sacrebleu.metrics import CHRF
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig, utils

from clue_hf import UserError, pipeline
from clue_hf.cli.main import main
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.deploy import bake
from clue_hf.deploy.token_calibration import Parts
from clue_hf.hub.card import write_card
from clue_hf.hub.push import collect_files, renew_card
from clue_hf.metrics import sentence_quality
from clue_hf.models.uncertainty_file import read_uncertainty, write_uncertainty
from clue_hf.posthoc import AbstentionThresholds, reference_quantiles
from clue_hf.posthoc.baked import BakedTemperature
from clue_hf.posthoc.calibration_file import UncertaintyCalibration
from clue_hf.predictors.loading import language_model


MODEL = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"
ROWS = 130
DATA = ["--validation_file", "rows.jsonl", "--source_column", "source", "--target_column", "target"]
CALIBRATE = [*DATA, "--max_target_length", "16", "--quality", "chrf", "--risks", "0.4,0.7"]
PLAIN = """
import sys
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1], dtype=sys.argv[3])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
batch = tokenizer(["the cat sleeps ."], return_tensors="pt")
with torch.no_grad():
    logits = model(**batch, decoder_input_ids=torch.tensor([[0, 5, 6]])).logits
assert model.dtype == torch.float32 and "clue_hf" not in sys.modules
torch.save(logits, sys.argv[2])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that has learned something and decodes with beams, data, and the model with its temperature in it."""
    folder = tmp_path_factory.mktemp("bake")
    shutil.copytree(MODEL, folder / "model")
    GenerationConfig.from_pretrained(MODEL, num_beams=3).save_pretrained(folder / "model")
    write_uncertainty(folder / "model", inputs={"source_prefix": "", "max_target_length": 20})
    lines = [json.dumps(row) for row in phrase_rows("validation", ROWS)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def printed(folder):
    """Makes `baked` from `model`; what the command prints."""
    output = StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(output):
        files, names = ({path: path.read_bytes() for path in Path("model").iterdir()}, set(Path().iterdir()))
        assert main(["calibrate", "model", *CALIBRATE, "--bake", "baked"]) == 0
        assert {path: path.read_bytes() for path in Path("model").iterdir()} == files  # stays as it was
        assert set(Path().iterdir()) == names | {Path("baked")}
    return output.getvalue()


@pytest.fixture
def baked(here, printed):
    return BakedTemperature.from_checked_dict(read_uncertainty("baked")["baked"])


def test_plain_transformers_gets_the_divided_logits(baked):
    logits = []
    for name, dtype in (("model", "float32"), ("baked", "auto")):  # the first is saved in float16
        subprocess.run([sys.executable, "-c", PLAIN, name, f"{name}.pt", dtype], check=True)
        logits.append(torch.load(f"{name}.pt"))
    before, after = logits
    assert (after * baked.temperature - before).abs().max() < 1e-4 * (before.max() - before.min())
    assert abs(baked.temperature - 1) > 0.01
    assert json.loads(Path("baked/config.json").read_text())["dtype"] == "float32"


def test_outputs_of_both_are_told(baked, printed):
    assert f"divided by T = {baked.temperature:.4g}" in printed
    certify = Parts.split([row["source"] for row in phrase_rows("validation", ROWS)], 42).certify
    assert baked.rows == baked.certified_rows == len(certify) == baked.same_greedy
    assert baked.generation == {"num_beams": 3}
    assert f"with the model's own settings (num_beams=3) {baked.same_generated} of {baked.rows}" in printed
    # the same by transformers alone
    rows = [phrase_rows("validation", ROWS)[row] for row in certify]
    sources, targets = ([row[side] for row in rows] for side in ("source", "target"))
    tokenizer, texts = AutoTokenizer.from_pretrained("model"), {}
    for name in ("model", "baked"):
        model = AutoModelForSeq2SeqLM.from_pretrained(name, dtype="float32")
        tokens = model.generate(**tokenizer(sources, return_tensors="pt", padding=True), max_new_tokens=16)
        texts[name] = [text.strip() for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]
    same = [one == other for one, other in zip(*texts.values(), strict=True)]
    assert sum(same) == baked.same_generated
    for when, name in (("before", "model"), ("after", "baked")):
        score = CHRF().corpus_score(texts[name], [targets]).score
        assert baked.quality[when]["value"] == pytest.approx(score)


def test_confidence_and_thresholds_are_those_of_its_own_outputs(baked, caplog):
    rows = phrase_rows("validation", ROWS)
    parts = Parts.split([row["source"] for row in rows], 42)
    stored, calibration = read_uncertainty("baked"), UncertaintyCalibration.read("baked")
    assert "token_calibrator" not in stored
    assert "token_calibration" not in stored
    assert stored["inputs"]["max_target_length"] == 16
    assert (stored["inputs"]["source_column"], stored["inputs"]["target_column"]) == ("source", "target")
    utils.logging.enable_propagation()
    answers = pipeline("baked", device="cpu")([row["source"] for row in rows])
    utils.logging.disable_propagation()
    assert caplog.text == ""  # not another model than the one that was calibrated
    scores = np.array([answer["uncertainty"] for answer in answers])
    texts = [answer["generated_text"] for answer in answers]
    quality = sentence_quality("chrf", texts, [row["target"] for row in rows])
    certify = parts.certify
    np.testing.assert_allclose(
        calibration.reference_quantiles.quantiles, reference_quantiles(scores[certify]).quantiles, rtol=1e-4
    )
    expected = AbstentionThresholds.fit(
        scores[certify], 1 - quality[certify], (0.4, 0.7), 0.1, test="hoeffding-bentkus"
    )
    for one, other in zip(calibration.abstention.thresholds, expected.thresholds, strict=True):
        assert one.coverage == other.coverage
        assert one.threshold == (other.threshold and pytest.approx(other.threshold, rel=1e-4))
    # and those of the model with the temperature beside it
    beside = ["--token_calibrator", "temperature", "--output_dir", "beside"]
    assert main(["calibrate", "model", *CALIBRATE, *beside]) == 0
    other = pipeline("beside", device="cpu")([row["source"] for row in rows])
    assert [answer["generated_text"] for answer in other] == texts
    np.testing.assert_allclose([answer["uncertainty"] for answer in other], scores, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        [answer["confidence"] for answer in other], [answer["confidence"] for answer in answers], atol=1e-4
    )


def test_the_card_says_so(baked):
    renew_card(Path("baked"), "me/baked")
    text = Path("baked/README.md").read_text()
    assert f"divided by T = {baked.temperature:.4g}" in text
    assert f"on {baked.certified_rows} rows that were not used for fitting" in text
    before, after = (baked.metrics[when]["alignment_error"].value for when in ("before", "after"))
    line = next(line for line in text.splitlines() if line.startswith("| alignment error"))
    assert f" {before:.3f} [" in line
    assert f" {after:.3f} [" in line
    assert "Greedy outputs are the same" in text
    assert "Beam search and sampling see the new probabilities and may give other texts" in text
    assert ModelCard(text).data.base_model is None  # the model is a folder here
    assert {"README.md", "model.safetensors", "uncertainty.json", "generation_config.json", "tokenizer.json"} <= set(
        collect_files("baked").files
    )
    shutil.copytree("baked", "edited")
    content = read_uncertainty("edited")["baked"]
    write_uncertainty("edited", baked={**content, "model": "someone/model"})
    assert ModelCard(write_card("edited").read_text()).data.base_model == "someone/model"
    write_uncertainty("edited", baked={**content, "temperature": "hot"})
    with pytest.raises(UserError, match="'baked' in uncertainty.json of 'edited' is damaged"):
        write_card("edited")


@pytest.mark.parametrize("kind", ["marian", "bart", "gpt2", "llama", "lora"])
def test_models_of_all_forms(kind, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if kind == "lora":
        make_folder(tmp_path / "lora", kind)
        name = "lora/adapter"
    else:
        save(tmp_path / kind, make_model(kind), make_tokenizer(kind not in CAUSAL))
        name = kind
    words = ["calibrate", name, *DATA, "--max_target_length", "8", "--max_source_length", "32"]
    words += ["--max_eval_samples", "60", "--bake", "new/baked", "--token_calibrator", "auto"]
    shutil.copy(folder / "rows.jsonl", tmp_path)
    assert main(words) == 0
    baked = BakedTemperature.from_checked_dict(read_uncertainty("new/baked")["baked"])
    assert baked.logit_error < 1e-5
    assert baked.same_greedy == baked.rows > 0
    assert not Path("new/baked/adapter_config.json").exists()
    sources = [row["source"] for row in phrase_rows("validation", 20)]
    texts = []
    for place in (name, "new/baked"):
        model, tokenizer = language_model(place)
        tokenizer.padding_side = "left"
        batch = tokenizer(sources, return_tensors="pt", padding=True, truncation=True, max_length=32)
        texts.append(model.generate(**batch, max_new_tokens=8, do_sample=False, num_beams=1))
    assert torch.equal(*texts)


def test_a_model_that_is_not_what_it_should_be_is_not_written(here, monkeypatch, capsys):
    before = sorted(Path().rglob("*"))
    monkeypatch.setattr(bake, "TOLERANCE", 0.0)
    assert main(["calibrate", "model", *CALIBRATE, "--bake", "refused"]) == 2
    assert "Nothing was written: the logits of the model with T = " in capsys.readouterr().err
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(("words", "message"), [
    (["--bake", "model"], "is the folder of the model itself"),
    (["--bake", "other"], "is there already"),
    (["--bake", "rows.jsonl"], "is there already"),
    (["--bake", "new", "--token_calibrator", "temperature_head"], "temperature_head cannot"),
    (["--bake", "new", "--token_calibrator", "none"], "none cannot"),
    (["--bake", "new", "--output_dir", "x"], "Give either `bake` or `output_dir`"),
    (["--bake", "new", "--dtype", "bfloat16"], "`bake` writes float32"),
    (["--bake", "new", "--generation_num_beams", "2"], "`bake` goes with greedy decoding"),
])  # fmt: skip
def test_mistakes(here, words, message, capsys):
    if not Path("other").exists():
        shutil.copytree(MODEL, "other")
    assert main(["calibrate", "model", *CALIBRATE, *words]) == 2
    assert message in capsys.readouterr().err
    assert not Path("new").exists()


def test_models_that_cannot_hold_a_temperature(here, tmp_path, capsys):
    save(tmp_path / "gemma", make_model("gemma2"), make_tokenizer(False))
    assert main(["calibrate", str(tmp_path / "gemma"), *CALIBRATE, "--bake", "new"]) == 2
    assert "multiplies by 1 + weight" in capsys.readouterr().err
    make_folder(tmp_path / "classes", "text classes")
    assert main(["calibrate", str(tmp_path / "classes"), *DATA, "--bake", "new"]) == 2
    assert "--bake is for models that write texts" in capsys.readouterr().err
    assert not Path("new").exists()
