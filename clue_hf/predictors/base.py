"""What a model answers and how uncertain it is of it: one class for texts, one for classes, one for numbers."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri

from ..data.targets import TargetScale
from ..errors import UserError
from ..evaluation.prediction_evaluator import batch_seed
from ..inputs.class_data import class_names_of
from ..inputs.given import Inputs, Items, as_texts
from ..metrics import normalized_entropy
from ..posthoc import Calibrator, ErrorPredictor, QuantileCalibrator
from ..scorers import Batch, Collected, make_scorers
from ..tasks import ClassificationTask, RegressionTask
from ..tasks.head import unwrap
from .generate import collection_settings


#: Seed of the masks of dropout.
SEED = 42

Answer = dict[str, Any]


class Predictor(ABC):
    """
    A model that answers with an `uncertainty`.

    Attributes:
        model, processing_class:
            The model, and what is saved with it to read its inputs.
        scorer (`str`):
            The name of the uncertainty.
        settings (`dict`):
            What else it depends on.
        definition (`str`):
            The uncertainty in words.
    """

    model: Any
    processing_class: Any
    scorer: str
    settings: dict[str, Any]
    definition: str

    @abstractmethod
    def predict(self, inputs: Any, batch_size: int, first_row: int = 0, **options: Any) -> tuple[list[Answer], bool]:
        """An answer for each input, and whether a single one was given, not a list."""

    def fingerprint(self) -> str:
        """A short text that changes when the model is trained further, or loaded in another precision."""
        found = 0
        for weight in self.model.parameters():
            found = zlib.crc32(weight.detach().flatten()[:16].float().cpu().numpy().tobytes(), found)
        return f"{found:08x}"

    def check_finite(self, answers: list[Answer], first_row: int) -> None:
        """Raises where an uncertainty is no number."""
        for row, answer in enumerate(answers, first_row):
            if not np.isfinite(answer["uncertainty"]):
                raise UserError(
                    f"The uncertainty ({self.scorer}) of row {row} (counted from 0) is {answer['uncertainty']}. Has "
                    "the training diverged, or does the model overflow in this precision (use float32)?"
                )


class TextPredictor(Predictor):
    """
    A language model: its text for each source.

    Args:
        model, tokenizer:
            A sequence-to-sequence or causal language model, and its tokenizer.
        scorer (`str`, *optional*, defaults to `"perplexity"`):
            A name in [`~clue_hf.scorers.SCORERS`].
        settings:
            As of [`~clue_hf.generate_with_uncertainty`].
    """

    def __init__(self, model: Any, tokenizer: Any, scorer: str = "perplexity", **settings: Any) -> None:
        self.model, self.processing_class, self.scorer = model.eval(), tokenizer, scorer
        chosen = collection_settings(settings)
        scorers, self.collector = make_scorers(model, tokenizer, [scorer], chosen)
        self._scorer = scorers[scorer]
        self.settings = {name: value for name, value in vars(chosen).items() if name != "batch_size"}
        self.definition = " ".join((type(self._scorer).__doc__ or "").split())

    def predict(
        self,
        inputs: Any,
        batch_size: int,
        first_row: int = 0,
        return_tokens: bool = False,
        num_alternatives: int = 0,
        **options: Any,
    ) -> tuple[list[Answer], bool]:
        texts, single = as_texts(inputs, first_row)
        self.collector.settings.batch_size = batch_size
        found: dict[int, Answer] = {}
        for batch in self.collector.plan(texts, first_row):
            for place, entry in enumerate(self.collector.collect_batch(batch)):
                answer = {"generated_text": entry.output.text, "uncertainty": self._scorer.score(entry)}
                if return_tokens or num_alternatives:
                    answer["tokens"] = self._tokens(batch, place, entry, num_alternatives)
                found[batch.rows[place]] = answer
        answers = [found[row] for row in range(first_row, first_row + len(texts))]
        self.check_finite(answers, first_row)
        return answers, single

    def _tokens(self, batch: Batch, place: int, entry: Collected, num_alternatives: int) -> list[Answer]:
        """Each token with its probability and the entropy (nats) of its distribution, and those it was chosen from."""
        output = entry.output
        columns = (
            self.processing_class.convert_ids_to_tokens(output.tokens),
            np.exp(output.log_probability).tolist(),
            output.entropy.tolist(),
        )
        names = ("token", "probability", "entropy")
        tokens = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        if num_alternatives:
            likely = self._alternatives(batch.prompts[place], output.tokens, num_alternatives)
            for token, alternatives in zip(tokens, likely, strict=True):
                token["alternatives"] = alternatives
        return tokens

    @torch.no_grad()
    def _alternatives(self, prompt: list[int], tokens: list[int], count: int) -> Iterator[list[Answer]]:
        """The most probable tokens at each position of a text, by a pass of its own."""
        if not tokens:
            return
        base, device = unwrap(self.model), self.model.device
        given = torch.tensor([prompt], device=device)
        if self.collector.is_seq2seq:
            start = base.generation_config.decoder_start_token_id
            start = base.config.decoder_start_token_id if start is None else start
            before = torch.tensor([[start, *tokens[:-1]]], device=device)
            logits = self.model(input_ids=given, decoder_input_ids=before).logits[0]
        else:
            whole = torch.tensor([[*prompt, *tokens[:-1]]], device=device)
            logits = self.model(input_ids=whole).logits[0, len(prompt) - 1 :]
        likely = logits.float().softmax(-1).topk(min(count, logits.shape[-1]), dim=-1)
        for ids, probabilities in zip(likely.indices.tolist(), likely.values.tolist(), strict=True):
            names = self.processing_class.convert_ids_to_tokens(ids)
            yield [{"token": name, "probability": p} for name, p in zip(names, probabilities, strict=True)]


class _BatchPredictor(Predictor):
    """A model that answers with one pass (or several at once) over each batch."""

    def __init__(self, model: Any, inputs: Inputs, task: Any) -> None:
        self.model, self.inputs, self.task = model.eval(), inputs, task
        self.processing_class = inputs.processing_class

    def predict(self, inputs: Any, batch_size: int, first_row: int = 0, **options: Any) -> tuple[list[Answer], bool]:
        items = self.inputs.read(inputs, first_row)
        answers = [answer for batch in self._batches(items, batch_size, first_row) for answer in batch]
        self.check_finite(answers, first_row)
        return answers, items.single

    @torch.no_grad()
    def _batches(self, items: Items, batch_size: int, first_row: int) -> Iterator[list[Answer]]:
        device = next(self.model.parameters()).device
        for start in range(0, items.count, batch_size):
            batch = items.batch(range(start, min(start + batch_size, items.count)))
            self.task.seed = batch_seed(SEED, first_row + start)
            yield self.answers({name: value.to(device) for name, value in batch.items()})

    @abstractmethod
    def answers(self, inputs: dict[str, torch.Tensor]) -> list[Answer]:
        """The answers to a batch."""


class ClassPredictor(_BatchPredictor):
    """
    A classifier of images or texts: the most probable class.

    Args:
        model:
            A classifier, or an [`~clue_hf.models.ensemble.Ensemble`] of some.
        inputs ([`Inputs`]):
            Images or texts.
        mc_samples (`int`):
            Passes with dropout, whose mean counts; 0 for one plain pass.
        calibrator ([`~clue_hf.posthoc.Calibrator`], *optional*):
            Of the probabilities.
        error_predictor ([`~clue_hf.posthoc.ErrorPredictor`], *optional*):
            Gives the uncertainty, instead of the entropy.
        settings:
            What else to tell of how answers were had.
    """

    def __init__(
        self,
        model: Any,
        inputs: Inputs,
        mc_samples: int = 0,
        calibrator: Calibrator | None = None,
        error_predictor: ErrorPredictor | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(model, inputs, ClassificationTask(model, mc_samples))
        self.calibrator, self.error_predictor = calibrator, error_predictor
        self.names = class_names_of(model)
        self.settings = {"mc_samples": mc_samples, **settings}
        self.scorer = "normalized_entropy" if error_predictor is None else "predicted_error"
        self.definition = (
            "entropy of the probabilities / ln(number of classes)"
            if error_predictor is None
            else "error predicted by a second model, between the bounds of the validation data"
        )

    def answers(self, inputs: dict[str, torch.Tensor]) -> list[Answer]:
        probabilities = self.task.log_probabilities(self.model, inputs).double().softmax(-1).cpu().numpy()
        bad = ~np.isfinite(probabilities).all(axis=1)
        probabilities[bad] = 1 / probabilities.shape[1]  # what follows takes numbers only
        if self.calibrator is not None:
            probabilities = self.calibrator(probabilities)
        if self.error_predictor is None:
            uncertainty = normalized_entropy(probabilities)
        else:
            uncertainty = self.error_predictor.uncertainty(inputs)
        uncertainty = np.where(bad, np.nan, uncertainty)
        best = probabilities.argmax(axis=1)
        return [
            {"label": self.names[number], "score": float(row[number]), "uncertainty": float(value)}
            for number, row, value in zip(best, probabilities, uncertainty, strict=True)
        ]


class NumberPredictor(_BatchPredictor):
    """
    A model that predicts a number, of tables, images or texts: mean and standard deviation in the target's own units.

    Args:
        model:
            A regressor, or an [`~clue_hf.models.ensemble.Ensemble`] of some.
        inputs ([`Inputs`]):
            Rows, images or texts.
        scale ([`~clue_hf.data.targets.TargetScale`]):
            From what the model predicts to the target's own units.
        mc_samples (`int`):
            Passes with dropout, whose mean and variance count; 0 for one plain pass.
        calibrator ([`~clue_hf.posthoc.QuantileCalibrator`], *optional*):
            Of the predicted distributions.
        error_predictor ([`~clue_hf.posthoc.ErrorPredictor`], *optional*):
            Its squared error is the variance.
        settings:
            What else to tell of how answers were had.
    """

    scorer = "std"
    definition = "standard deviation of the prediction, in units of the target"

    def __init__(
        self,
        model: Any,
        inputs: Inputs,
        scale: TargetScale,
        mc_samples: int = 0,
        calibrator: QuantileCalibrator | None = None,
        error_predictor: ErrorPredictor | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(model, inputs, RegressionTask(model, mc_samples))
        self.scale, self.calibrator, self.error_predictor = scale, calibrator, error_predictor
        self.settings, self.level = {"mc_samples": mc_samples, **settings}, 0.95

    def predict(
        self, inputs: Any, batch_size: int, first_row: int = 0, level: float = 0.95, **options: Any
    ) -> tuple[list[Answer], bool]:
        if not 0 < level < 1:
            raise UserError(f"`level` must lie between 0 and 1, but is {level!r}.")
        self.level = level
        return super().predict(inputs, batch_size, first_row)

    def answers(self, inputs: dict[str, torch.Tensor]) -> list[Answer]:
        moments = self.task.moments(self.model, inputs)
        mean, variance = (values.double().cpu().numpy() for values in moments)
        if self.error_predictor is not None:
            variance = np.maximum(self.error_predictor.errors(inputs), self.task.min_variance)
        mean, std = mean * self.scale.std + self.scale.mean, np.sqrt(variance) * self.scale.std
        bad = ~(np.isfinite(mean) & np.isfinite(std))
        mean, std = np.where(bad, 0, mean), np.where(bad, 1, std)
        if self.calibrator is None:
            reach = float(ndtri((1 + self.level) / 2))
            low, high = mean - reach * std, mean + reach * std
        else:
            low, high = self.calibrator.interval(mean, std, self.level)
            mean, std = self.calibrator.mean(mean, std), self.calibrator.std(mean, std)
        std = np.where(bad, np.nan, std)
        return [
            {"mean": m, "std": s, "interval": [lower, upper], "uncertainty": s}
            for m, s, lower, upper in zip(mean.tolist(), std.tolist(), low.tolist(), high.tolist(), strict=True)
        ]
