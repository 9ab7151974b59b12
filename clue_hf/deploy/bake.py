"""
A temperature baked into the weights: a plain transformers model whose own logits are the old ones divided by it, which
others load without clue_hf. What was written is loaded again and compared with the original before it is kept.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers.utils.logging import tqdm

from ..errors import UserError
from ..metrics.quality import corpus_quality_interval
from ..models.divided_logits import divide_logits
from ..models.kind import unwrap
from ..models.uncertainty_file import write_uncertainty
from ..posthoc.baked import BakedTemperature
from ..posthoc.calibration_file import UncertaintyCalibration
from ..posthoc.token_temperature import TokenTemperature
from ..predictors.loading import load_predictor
from ..predictors.text import TextPredictor
from .token_calibration import TokenCalibration


#: Largest difference of new logits times temperature from old ones, as a share of their range.
TOLERANCE = 1e-4
#: Number of held-out rows on which old and new model are compared.
ROWS = 100
#: Texts that run through a model together where all their logits are held.
LOGIT_BATCH = 4
#: Parts of `uncertainty.json` that are about probabilities before the temperature was in the weights.
REPLACED = ("version", "token_calibrator", "token_calibration", "baked")


def check_new_folder(folder: str, model: str) -> Path:
    """Where to write; raises where anything is there already."""
    path = Path(folder)
    if path.is_dir() and os.path.isdir(model) and path.samefile(model):
        raise UserError(f"--bake {folder!r} is the folder of the model itself: give a new one.")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"--bake {folder!r} is there already, and not an empty folder: give a new one.")
    return path


def bake(
    predictor: TextPredictor,
    calibration: UncertaintyCalibration,
    tokens: TokenCalibration,
    folder: Path,
    name: str,
    stored: dict[str, Any],
    quality: str,
) -> BakedTemperature:
    """
    Writes a model with a temperature in its weights.

    Args:
        predictor ([`~clue_hf.predictors.text.TextPredictor`]):
            The model.
        calibration ([`~clue_hf.posthoc.calibration_file.UncertaintyCalibration`]):
            What its uncertainty means, found with the temperature. Greedy outputs and their probabilities are those of
            the new model, so that it holds for that one.
        tokens ([`TokenCalibration`]):
            The temperature, with metrics before and after.
        folder (`Path`):
            A new or empty folder; nothing is written where the new model is not what it should be.
        name (`str`):
            Hub id or folder of the model.
        stored (`dict`):
            What stands in its `uncertainty.json`.
        quality (`str`):
            What judges texts that are not greedy, a name in [`~clue_hf.metrics.quality.QUALITIES`].
    """
    if not isinstance(tokens.calibrator, TokenTemperature):
        raise UserError("Only a single temperature can be baked into a model.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as place:
        unfinished = Path(place) / folder.name
        _save_divided(predictor, tokens.calibrator.temperature, unfinished)
        kept = {key: value for key, value in stored.items() if key not in REPLACED}
        write_uncertainty(unfinished, **{**kept, "inputs": _inputs(predictor)})
        new = load_predictor(str(unfinished), predictor.model.device, calibration=calibration)
        public = Path(name).resolve().name if Path(name).is_dir() else name
        baked = _compare(predictor, new, tokens, tokens.calibrator.temperature, public, quality)
        replace(calibration, weights=new.fingerprint()).write(unfinished)
        write_uncertainty(unfinished, baked=baked.to_dict())
        if folder.exists():
            folder.rmdir()  # empty
        os.replace(unfinished, folder)
    return baked


def _save_divided(predictor: TextPredictor, temperature: float, folder: Path) -> None:
    """Saves a copy of the model, an adapter merged into it, with divided logits, and its tokenizer."""
    model = copy.deepcopy(predictor.model)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    divide_logits(model, temperature)
    model.save_pretrained(folder)
    predictor.processing_class.save_pretrained(folder)


def _inputs(predictor: TextPredictor) -> dict[str, Any]:
    """Columns, prefix and lengths, as they were used."""
    used = predictor.collection
    return predictor.columns.overridden(
        source_prefix=used.source_prefix,
        max_source_length=used.max_source_length,
        max_target_length=used.max_new_tokens,
    ).to_dict()


def _compare(
    old: TextPredictor, new: TextPredictor, tokens: TokenCalibration, temperature: float, name: str, quality: str
) -> BakedTemperature:
    """Logits and texts of both models on held-out rows; raises where the logits are not those divided."""
    sources, references = ([pair[side] for pair in tokens.held_out[:ROWS]] for side in (0, 1))
    error = logit_error(old, new, sources, references, temperature)
    if not error <= TOLERANCE:
        raise UserError(
            f"Nothing was written: the logits of the model with T = {temperature:.4g} in its weights, times T, differ "
            f"from the model's own by {error:.1e} of their range, more than {TOLERANCE:g}."
        )
    greedy = [_texts(model, sources, {}) for model in (old, new)]
    generation = own_generation(unwrap(old.model).generation_config)
    texts = [_texts(model, sources, generation) for model in (old, new)] if generation else greedy
    before, after = (corpus_quality_interval(quality, part, references) for part in texts)
    judged = {"before": before, "after": after, "difference": after - before}
    return BakedTemperature(
        temperature=temperature,
        model=name,
        rows=len(sources),
        logit_error=error,
        same_greedy=_same(*greedy),
        generation=generation,
        same_generated=_same(*texts),
        quality={"name": quality, **{when: entry.to_dict() for when, entry in judged.items()}},
        tokens=tokens.to_dict(),
    )


def logit_error(
    old: TextPredictor, new: TextPredictor, sources: Sequence[str], references: Sequence[str], temperature: float
) -> float:
    """Largest |new logit * T - old logit| over the tokens of references, as a share of the range of the old ones."""
    largest, low, high = torch.tensor(0.0), torch.tensor(torch.inf), torch.tensor(-torch.inf)
    batches = old.collector.plan(sources, batch_size=LOGIT_BATCH)
    for batch in tqdm(batches, desc="Comparing logits", leave=False, disable=len(batches) < 3):
        texts = [references[row] for row in batch.rows]
        before, after = (model.collector.reference_logits(batch, texts).cpu() for model in (old, new))
        if before.numel():
            largest = torch.maximum(largest, (after * temperature - before).abs().max())  # nan stays nan
            low, high = torch.minimum(low, before.min()), torch.maximum(high, before.max())
    return float(largest / (high - low))


def own_generation(config: Any) -> dict[str, Any]:
    """The settings of beams and sampling in a generation config; empty where they are greedy."""
    names = ["num_beams"] if (config.num_beams or 1) > 1 else []
    if config.do_sample:
        names += ["do_sample", *(name for name in ("temperature", "top_k", "top_p") if getattr(config, name))]
    return {name: getattr(config, name) for name in names}


def _texts(predictor: TextPredictor, sources: Sequence[str], generation: dict[str, Any]) -> list[str]:
    settings = {**predictor.settings, "generation": generation}
    model = TextPredictor(predictor.model, predictor.processing_class, "perplexity", **settings)
    answers, _ = model.predict(list(sources), predictor.collection.batch_size)
    return [answer["generated_text"] for answer in answers]


def _same(first: Sequence[str], second: Sequence[str]) -> int:
    return sum(one == other for one, other in zip(first, second, strict=True))
