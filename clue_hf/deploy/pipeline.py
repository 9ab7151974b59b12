"""A model as people use it: something in, an answer out, with its uncertainty and what that means."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, Pipeline
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.utils import logging

from ..errors import UserError
from ..inputs.base import InputSettings
from ..models.uncertainty_file import read_uncertainty
from ..posthoc import AbstentionThreshold
from ..posthoc.calibration_file import UncertaintyCalibration
from ..predictors.base import Answer, Predictor
from ..predictors.loading import load_predictor, read_config, text_predictor
from ..predictors.numbers import check_levels
from ..predictors.text import TextPredictor
from ..settings import check_minimum


logger = logging.get_logger(__name__)
#: The name of [`TextUncertaintyPipeline`] for `transformers.pipeline`.
TASK = "text-uncertainty"
CALIBRATE = "clue-hf calibrate MODEL --config CONFIG.yaml"


class UncertaintyPipeline:
    """
    Answers of a model with their uncertainty: texts, classes of images and texts, numbers from tables, images and
    texts. Made by [`~UncertaintyPipeline.from_pretrained`].

    Args:
        predictor ([`~clue_hf.predictors.base.Predictor`]):
            The model.
        deployed ([`~clue_hf.posthoc.calibration_file.UncertaintyCalibration`], *optional*):
            What its uncertainty means, as `clue-hf calibrate` found. Without it answers have no confidence.
        batch_size (`int`, *optional*, defaults to 16):
            Inputs that run through the model together. Answers do not depend on it, but for rounding, and for dropout
            where there are passes with it.

    Example:

    ```python
    >>> from clue_hf import pipeline

    >>> translate = pipeline("out/quickstart/clue")
    >>> translate("the cat sleeps .", abstain_at_risk=0.4)
    {'generated_text': 'le chat dort .', 'uncertainty': 0.08, 'confidence': 0.91, 'percentile': 21.3, 'abstain': False}
    ```
    """

    def __init__(
        self, predictor: Predictor, deployed: UncertaintyCalibration | None = None, batch_size: int = 16
    ) -> None:
        check_minimum(1, batch_size=batch_size)
        self.predictor, self.batch_size = predictor, batch_size
        self.deployed = None if deployed is not None and deployed.scorer != predictor.scorer else deployed
        self._notice_differences(deployed)

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        device: Any = None,
        dtype: str = "float32",
        scorer: str | None = None,
        mc_samples: int | None = None,
        batch_size: int = 16,
        **generation: Any,
    ) -> UncertaintyPipeline:
        """
        A model of any kind, trained with CLUE or not, with what its `uncertainty.json` names: members of an ensemble,
        a calibrator, an error predictor, and what `clue-hf calibrate` found. The folder of an adapter (LoRA) brings
        its base model.

        Args:
            name (`str`):
                Hub id or folder.
            device (`str` or `torch.device`, *optional*):
                By default an accelerator where there is one.
            dtype (`str`, *optional*, defaults to `"float32"`):
                Precision of the model.
            scorer (`str`, *optional*):
                Texts: the uncertainty, a name in [`~clue_hf.scorers.SCORERS`]. By default the one that the model was
                calibrated with, or `"perplexity"`.
            mc_samples (`int`, *optional*):
                Number of MC-dropout forward passes to average; by default as it was calibrated or trained.
            batch_size (`int`, *optional*, defaults to 16):
                Inputs that run through the model together.
            generation:
                Texts: `max_new_tokens`, `source_prefix`, `max_source_length`, `num_samples` ..., and what `generate`
                takes, such as `num_beams`; by default as it was calibrated. Classifiers and regressors of texts:
                `source_prefix` and `max_source_length`.
        """
        if dtype not in ("float32", "bfloat16", "float16"):
            raise UserError(f"`dtype` must be one of float32, bfloat16, float16, not {dtype!r}.")
        if device is None:
            device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
        read_config(name)  # says where there is no such model
        deployed = _read(name)
        predictor = load_predictor(name, device, dtype, scorer, mc_samples, deployed, **generation)
        return cls(predictor, deployed, batch_size)

    def __call__(
        self,
        inputs: Any,
        *,
        abstain_at_risk: float | None = None,
        min_quality: float | None = None,
        level: float | None = None,
        return_tokens: bool = False,
        num_alternatives: int = 0,
        batch_size: int | None = None,
        first_row: int = 0,
    ) -> Any:
        """
        Answers.

        Args:
            inputs:
                A text; an image (path, Pillow image, array of pixels); a row of a table (dict). Or a list of them; for
                tables also a `DataFrame`.
            abstain_at_risk (`float`, *optional*), min_quality (`float`, *optional*):
                Say where not to answer: the expected loss of what is answered is then at most this risk (its quality
                at least this), with the probability that the calibration asked for. One of the stored risks.
            level (`float`, *optional*):
                Numbers: probability of the interval. By default the interval is the conformal one, at its coverage,
                where the model was calibrated with `--conformal`, else the one of 0.95.
            return_tokens (`bool`, *optional*, defaults to `False`):
                Texts: add `tokens`, each with its probability and the entropy (nats) of its distribution.
            num_alternatives (`int`, *optional*, defaults to 0):
                Texts: number of most probable tokens to add to each token.
            batch_size (`int`, *optional*):
                Another one than the pipeline's.
            first_row (`int`, *optional*, defaults to 0):
                The number of the first input where these are part of more: what is drawn at random depends on it.

        Returns:
            `dict` for one input, `list[dict]` for a list: `generated_text`, or `label` and `score`, or `mean`, `std`
            and `interval`; `prediction_set` (labels, the most probable first) where the model was calibrated with
            `--conformal`; then `uncertainty`, `confidence` (the expected quality, 0 to 1), `percentile` (the share of
            the calibration data that is more certain) and `abstain`, each `None` where it is not known.
        """
        threshold = self._threshold(abstain_at_risk, min_quality)
        if (return_tokens or num_alternatives) and not isinstance(self.predictor, TextPredictor):
            raise UserError("`return_tokens` and `num_alternatives` are for models that write texts.")
        check_minimum(0, num_alternatives=num_alternatives)
        check_levels([] if level is None else [level])
        batch_size = self.batch_size if batch_size is None else batch_size
        check_minimum(1, batch_size=batch_size)
        answers, single = self.predictor.predict(
            inputs, batch_size, first_row, level=level, return_tokens=return_tokens, num_alternatives=num_alternatives
        )
        answers = self._explained(answers, threshold)
        return answers[0] if single else answers

    def _threshold(self, max_risk: float | None, min_quality: float | None) -> AbstentionThreshold | None:
        if max_risk is None and min_quality is None:
            return None
        if max_risk is not None and min_quality is not None:
            raise UserError("Give either `abstain_at_risk` or `min_quality`, not both.")
        if self.deployed is None:
            raise UserError(f"To know when to abstain the model must be calibrated for this uncertainty: {CALIBRATE}")
        threshold = self.deployed.threshold(max_risk, min_quality)
        if threshold.threshold is None:
            logger.warning_once(f"All answers abstain at a risk of {threshold.max_risk:g}: {threshold.reason}")
        return threshold

    def _explained(self, answers: list[Answer], threshold: AbstentionThreshold | None) -> list[Answer]:
        """The answers with what their uncertainty means, tokens last."""
        uncertainty = np.array([answer["uncertainty"] for answer in answers])
        known = self.deployed if answers else None
        nothing = [None] * len(answers)
        confidence = nothing if known is None or known.confidence is None else known.confidence(uncertainty).tolist()
        percentile = nothing if known is None else known.reference_quantiles.percentile_of(uncertainty).tolist()
        abstain = nothing if threshold is None else threshold.abstains(uncertainty).tolist()
        for answer, *meaning in zip(answers, confidence, percentile, abstain, strict=True):
            tokens = answer.pop("tokens", None)
            answer.update(zip(("confidence", "percentile", "abstain"), meaning, strict=True))
            if tokens is not None:
                answer["tokens"] = tokens
        return answers

    def _notice_differences(self, deployed: UncertaintyCalibration | None) -> None:
        """Says where the calibration was made for something else."""
        if deployed is None:
            return
        if self.deployed is None:
            logger.warning(
                f"The model was calibrated for the uncertainty {deployed.scorer!r}, not for "
                f"{self.predictor.scorer!r}: there is no confidence."
            )
            return
        if deployed.weights not in (None, self.predictor.fingerprint()):
            logger.warning(
                "The model has been trained since it was calibrated, or has another precision now, so its confidence "
                f"may be off: {CALIBRATE}"
            )
        ours, theirs = self.predictor.settings, deployed.settings
        if other := [key for key in ours if key in theirs and ours[key] != theirs[key]]:
            changed = ", ".join(f"{key} {ours[key]!r} instead of {theirs[key]!r}" for key in other)
            logger.warning(f"The model was calibrated with other settings, so its confidence may be off: {changed}.")


def pipeline(name: str, **settings: Any) -> UncertaintyPipeline:
    """
    A model whose answers come with their uncertainty: [`UncertaintyPipeline.from_pretrained`].

    Example:

    ```python
    >>> from clue_hf import pipeline

    >>> pipeline("out/quickstart_digits/clue")("digit.png")
    {'label': '3', 'score': 0.98, 'uncertainty': 0.05, 'confidence': 0.99, 'percentile': 40.0, 'abstain': None}
    ```
    """
    return UncertaintyPipeline.from_pretrained(name, **settings)


class TextUncertaintyPipeline(Pipeline):
    """
    The same for language models as one of transformers' pipelines: `transformers.pipeline("text-uncertainty",
    model=...)` once `clue_hf.deploy` is imported.
    """

    _load_processor = False  # type: ignore[assignment]
    _load_image_processor = False  # type: ignore[assignment]
    _load_feature_extractor = False  # type: ignore[assignment]
    _load_tokenizer = True  # type: ignore[assignment]

    def __init__(
        self, model: Any, tokenizer: Any = None, scorer: str | None = None, batch_size: int = 16, **settings: Any
    ) -> None:
        known = {*inspect.signature(Pipeline.__init__).parameters, "dtype"}
        theirs = {name: settings.pop(name) for name in [*settings] if name in known}
        super().__init__(model, tokenizer=tokenizer, **theirs)
        name = model.name_or_path
        calibration, stored = (_read(name), read_uncertainty(name)) if name else (None, {})
        inputs = InputSettings.from_file(name, stored)
        predictor = text_predictor(self.model, self.tokenizer, scorer, calibration, name, stored, inputs, **settings)
        self.answers = UncertaintyPipeline(predictor, calibration, batch_size)

    def __call__(self, inputs: Any, *args: Any, batch_size: int | None = None, **options: Any) -> Any:
        """As of [`UncertaintyPipeline`]; a generator or a dataset of texts is answered as it is read."""
        if isinstance(inputs, (str, list, tuple)):
            return self.answers(inputs, batch_size=batch_size, **options)
        return self._stream(inputs, batch_size or self.answers.batch_size, options)

    def _stream(self, inputs: Iterable[str], size: int, options: dict[str, Any]) -> Iterator[Answer]:
        texts, row = iter(inputs), 0
        while batch := list(islice(texts, size)):
            yield from self.answers(batch, batch_size=size, first_row=row, **options)
            row += len(batch)

    # what the base class asks for; one text at a time

    def _sanitize_parameters(self, **options: Any) -> tuple[dict, dict, dict]:
        return {}, options, {}

    def preprocess(self, input_: str, **options: Any) -> dict[str, Any]:
        return {"text": input_}

    def _forward(self, input_tensors: dict[str, Any], **options: Any) -> Any:
        return self.answers(input_tensors["text"], **options)

    def postprocess(self, model_outputs: Any, **options: Any) -> Any:
        return model_outputs


MODELS: Any = (AutoModelForSeq2SeqLM, AutoModelForCausalLM)
PIPELINE_REGISTRY.register_pipeline(TASK, pipeline_class=TextUncertaintyPipeline, pt_model=MODELS, type="text")


def _read(name: str) -> UncertaintyCalibration | None:
    """What a model's uncertainty means; says how to find out where that is not known."""
    deployed = UncertaintyCalibration.read(name)
    if deployed is None:
        logger.warning(
            f"{name} has not been calibrated, so that its answers have an uncertainty but no confidence: "
            f"{CALIBRATE.replace('MODEL', name)}"
        )
    return deployed
