"""Experiments with language models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from transformers import AutoConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from ..config import CLUEConfig
from ..data.columns import text_pairs
from ..deploy.token_calibration import (
    Parts,
    TokenCalibration,
    calibrate_tokens,
    fit_token_calibrators,
    token_parts,
)
from ..errors import UserError
from ..evaluation import EvaluationReport, UncertaintyEvaluator, token_statistics
from ..evaluation.text.measures import REFERENCE_VALUES, Columns, read_texts, reference_metrics
from ..inputs.text import has_text_pairs
from ..metrics import (
    Measured,
    corpus_quality,
    corpus_quality_interval,
    metric_definitions,
    rejection_reports,
)
from ..models.arguments import make_model
from ..models.kind import text_task
from ..models.loading import load_tokenizer
from ..models.tokenizer import train_tokenizer
from ..models.uncertainty_file import write_uncertainty
from ..posthoc.rules import check_posthoc
from ..predictors.loading import language_model
from ..predictors.text import TextPredictor
from ..scorers import Collected
from ..trainer import CLUETrainer
from .experiment import VALIDATION, Experiment, Outcome


logger = logging.get_logger(__name__)
#: Metrics on the reference tokens.
REFERENCE_COLUMNS = ("error", "uncertainty", "gap", "alignment_error", "token_ece")
#: What of each scorer a comparison measures.
REJECTION = ("prr", "rejection_area", "oracle_area", "mean_quality")
#: Gaps up to this share of the error need no calibration.
WELL_CALIBRATED = 0.05


class TextExperiment(Experiment):
    """Language models: quality of what they generate, calibration on the reference tokens."""

    definitions: ClassVar = metric_definitions(REFERENCE_COLUMNS, "text")
    family = "text"
    reading = (
        "Error and uncertainty are nats per reference token; gap = error - uncertainty (above 0: overconfident);\n"
        "alignment error and token ECE are 0 for a perfectly calibrated model."
    )
    task = "language models"
    timed = "step_cost"
    tradeoffs: ClassVar = (("error", "alignment_error"), ("quality", "token_ece"))

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.quality = self.arguments.quality
        self.columns = (*(() if self.quality == "none" else (self.quality,)), *REFERENCE_COLUMNS)
        self._check_posthoc()
        self.curve_label = f"Mean quality ({self.quality}) of the outputs kept"
        self.processing_class: PreTrainedTokenizerBase = self._make_tokenizer()

    def _check_posthoc(self) -> None:
        run, validation = self.arguments, self.splits.get(VALIDATION)
        fitted = (run.calibrator, run.error_predictor, run.ensemble, validation is not None, run.token_calibrator)
        check_posthoc("text", *fitted)
        pair = (self.config.source_column, self.config.target_column)
        if run.token_calibrator != "none" and not has_text_pairs(validation, *pair):
            raise UserError("token_calibrator needs validation rows with a source and a target text.")

    def make_model(self, config: CLUEConfig) -> Any:
        return make_model(self.model, self.lora, self.processing_class, config)

    def trainer_options(self, config: CLUEConfig) -> dict[str, Any]:
        evaluator, run = None, self.arguments
        if run.eval_uncertainty:
            scorers, max_rows = run.eval_uncertainty_scorers, run.eval_uncertainty_samples
            evaluator = self._evaluator(config, scorers=scorers, max_rows=max_rows)
        compute_metrics = self._quality_metrics if config.predict_with_generate else None
        return {"compute_metrics": compute_metrics, "evaluator": evaluator}

    def reports(self, trainer: CLUETrainer, config: CLUEConfig) -> Iterator[tuple[str, str, dict[str, Any]]]:
        tokens = self._calibrate_tokens(trainer, config)
        for split in self.report_splits:
            row, calibrated = self._report(trainer, split, tokens and tokens.calibrator)
            yield config.objective, split, row
            if tokens and calibrated:
                yield f"{config.objective} + {tokens.name}", split, calibrated

    def _calibrate_tokens(self, trainer: CLUETrainer, config: CLUEConfig) -> TokenCalibration | None:
        """Fits what calibrates the tokens to the validation data, where that is asked for, and saves it."""
        name = self.arguments.token_calibrator
        if name == "none":
            return None
        model = trainer.accelerator.unwrap_model(trainer.model)
        predictor = TextPredictor(model, self.processing_class, **self._settings(config))
        pairs = self.pairs(VALIDATION)
        try:
            tokens = calibrate_tokens(predictor, *pairs, Parts.split(pairs[0], config.seed), name)
        except UserError as error:  # the training and its report are not lost for it
            logger.warning(f"The probabilities of the tokens are not calibrated: {error}")
            return None
        if trainer.is_world_process_zero():
            write_uncertainty(str(config.output_dir), **token_parts(tokens))
            print(f"\n{tokens.summary()}", flush=True)
        return tokens

    def pairs(self, split: str) -> tuple[list[str], list[str]]:
        """The sources of a split, and the first reference of each."""
        sources, references = text_pairs(self.splits[split][:], self.config.source_column, self.config.target_column)
        return sources, [first for first, *_ in references]

    def _report(self, trainer: CLUETrainer, split: str, calibrator: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The numbers of a split, and those with calibrated tokens, where there are any."""
        config = trainer.args
        if self.quality != "none" and has_text_pairs(self.splits[split], config.source_column, config.target_column):
            return self._evaluated(trainer, split, calibrator)
        data = trainer.task.prepare(self.splits[split], config, split)
        row: dict[str, Any] = {}
        if self.quality != "none":
            trainer.args.predict_with_generate = True
            trainer.compute_metrics = self._quality_metrics
            metrics = trainer.predict(data, metric_key_prefix=split).metrics or {}
            row[self.quality] = metrics[f"{split}_{self.quality}"]
        return {**row, **token_statistics(trainer, data, f"Scoring {split} references").summary()}, {}

    def _evaluated(self, trainer: CLUETrainer, split: str, calibrator: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The outputs, their quality and the references, as `clue-hf evaluate` finds them."""
        report = self._evaluate(trainer, split, scorers=["perplexity"], token_calibrator=calibrator)
        metrics = report.metrics
        correct = sum(sum(example["reference_correct"]) for example in report.examples)  # on the main process

        def row(references: dict[str, Any]) -> dict[str, Any]:
            names = ("error", "uncertainty", "alignment_error", "token_ece")
            values = {name: references[name].value for name in names}
            return {
                self.quality: metrics["quality"][self.quality]["corpus"].value,
                **values,
                "gap": values["error"] - values["uncertainty"],
                "token_accuracy": correct / max(references["tokens"], 1),
                "tokens": references["tokens"],
            }

        if calibrator is None:
            return row(metrics["references"]), {}
        return row(metrics["uncalibrated_references"]), row(metrics["references"])

    def _evaluate(self, trainer: CLUETrainer, split: str, **options: Any) -> EvaluationReport:
        config = trainer.args
        evaluator = self._evaluator(config, **options)
        evaluator.model, evaluator.tokenizer = trainer.accelerator.unwrap_model(trainer.model), self.processing_class
        return evaluator.evaluate(self.splits[split], config.source_column, config.target_column)

    def _evaluator(self, config: CLUEConfig, **options: Any) -> UncertaintyEvaluator:
        return UncertaintyEvaluator(quality=self.quality, resamples=0, **self._settings(config), **options)

    @staticmethod
    def _settings(config: CLUEConfig) -> dict[str, Any]:
        """How texts are read and generated."""
        return {
            "max_new_tokens": config.max_target_length,
            "max_source_length": config.max_source_length,
            "source_prefix": config.source_prefix,
            "batch_size": config.per_device_eval_batch_size,
            "generation": {"num_beams": config.generation_num_beams or 1},
        }

    def advice(self, rows: list[dict[str, Any]]) -> str:
        """What the gap of the last model on the first split means, and what to do about it."""
        row = [row for row in rows if row["split"] == rows[0]["split"]][-1]
        gap, error = row["gap"], row["error"]
        subject = f"{row['objective']} on {row['split']}"
        if abs(gap) <= WELL_CALIBRATED * error:
            return f"{subject}: error and uncertainty agree to {abs(gap):.3f} nats. There is nothing to calibrate."
        direction = "overconfident" if gap > 0 else "underconfident"
        meaning = f"{subject}: {direction} by {abs(gap):.3f} nats per token, {abs(gap) / error:.0%} of its error."
        if "+" in row["objective"]:
            return f"{meaning} A token calibrator was fitted on the validation data, which differs from this split."
        temperature = (
            "A temperature fitted after training corrects this without changing any output: "
            "--token_calibrator auto here, or clue-hf calibrate."
        )
        if gap > 0 and row["objective"] != "clue":
            return f"{meaning} {temperature} Training with CLUE also reduces it, but may cost some quality."
        return f"{meaning} {temperature}" + ("" if gap > 0 else " More weight on the squared gap would increase it.")

    def _quality_metrics(self, prediction: Any) -> dict[str, float]:
        texts = [self._decode(tokens) for tokens in (prediction.predictions, prediction.label_ids)]
        return {self.quality: corpus_quality(self.quality, *texts)} if self.quality != "none" else {}

    def _decode(self, tokens: np.ndarray) -> list[str]:
        tokens = np.where(tokens < 0, self.processing_class.pad_token_id, tokens)
        return [text.strip() for text in self.processing_class.batch_decode(tokens, skip_special_tokens=True)]

    def _make_tokenizer(self) -> PreTrainedTokenizerBase:
        if not self.model.tokenizer_vocab_size:
            return load_tokenizer(str(self.model.tokenizer_name or self.model.model_name_or_path))
        train = self.splits["train"]
        sources, references = text_pairs(train[:], self.config.source_column, self.config.target_column)
        texts = sources + [first for first, *_ in references]
        ends = text_task(AutoConfig.for_model(str(self.model.model_type))) == "seq2seq"
        return train_tokenizer(texts, self.model.tokenizer_vocab_size, ends)

    # ---- comparisons ----

    def check_comparison(self, arguments: Any) -> None:
        super().check_comparison(arguments)
        if self.quality == "none":
            raise UserError("A comparison needs a `quality` to judge the outputs by.")
        self.scorers, self.num_samples = arguments.scorers, arguments.num_samples
        if arguments.token_calibrators(self.plain_objective) and VALIDATION not in self.splits:
            raise UserError("Token calibrators are fitted on validation data: give a split or file.")

    def views(self, trainer: CLUETrainer) -> Iterator[tuple[str, Outcome]]:
        """
        What the model writes for each split, and how it is judged: `outputs`, `quality` and `scores` of each example,
        all `references` with the number of them in each example (`reference_counts`, where it is not 1), the tokens of
        all outputs and the values of all (first) reference tokens, with the number of them in each example
        (`output_lengths`, `lengths`).
        """
        for split in self.report_splits:
            report = self._evaluate(trainer, split, scorers=self.scorers, num_samples=self.num_samples)
            columns = Columns(report.examples, self.scorers, [self.quality])
            outputs, references = read_texts(report.examples)
            counts = [len(texts) for texts in references]
            tokens = [example["tokens"] for example in report.examples]
            ids = self.processing_class.convert_tokens_to_ids([token for text in tokens for token in text])
            yield (
                split,
                {
                    "outputs": np.array(outputs),
                    "references": np.array([text for texts in references for text in texts]),
                    **({"reference_counts": np.array(counts)} if max(counts, default=1) > 1 else {}),
                    "quality": columns.qualities[self.quality],
                    **{f"score_{name}": scores for name, scores in columns.scores.items()},
                    "output_tokens": np.array(ids, int),
                    "output_lengths": np.array([len(text) for text in tokens], int),
                    "lengths": columns.lengths,
                    **dict(zip(REFERENCE_VALUES, columns.tokens, strict=True)),
                },
            )

    def token_calibrated(
        self, name: str, model: Path, config: CLUEConfig, outcomes: Mapping[str, Outcome]
    ) -> Iterator[tuple[str, Outcome]]:
        """
        What was seen of a saved model (see [`views`]) with a token calibrator, fitted to the validation data: the same
        outputs, scored with other probabilities.
        """
        network, tokenizer = language_model(str(model))
        settings = {**self._settings(config), "num_samples": self.num_samples}
        predictor = TextPredictor(network.to(config.device), tokenizer, self.scorers, **settings)
        pairs = self.pairs(VALIDATION)
        fitted = fit_token_calibrators(predictor, *pairs, Parts.split(pairs[0], config.seed), name)
        predictor.token_calibrator = fitted.calibrators[fitted.chosen]
        for view, outcome in outcomes.items():
            sources, references = self.pairs(view)
            tokens = np.split(outcome["output_tokens"], np.cumsum(outcome["output_lengths"])[:-1])
            collected = predictor.collector.collect(sources, [part.tolist() for part in tokens], references)
            scores = [predictor.scores(entry, row) for row, entry in enumerate(collected)]
            yield (
                view,
                {
                    **outcome,
                    **{f"score_{name}": np.array([entry[name] for entry in scores]) for name in self.scorers},
                    **dict(zip(REFERENCE_VALUES, reference_columns(collected), strict=True)),
                },
            )

    def compared_columns(self, view: str) -> dict[str, dict[str, str]]:
        def every(prefix: str) -> dict[str, str]:
            return {f"{prefix}_{name}": name for name in self.scorers}

        return {
            "": {"quality": self.quality, **self.headings(REFERENCE_COLUMNS), "mean_quality": f"mean {self.quality}"},
            "PRR by scorer: 1 is as good as knowing the quality, 0 is useless": every("prr"),
            "Raw area under the rejection curve, which depends on the quality": every("rejection_area"),
            "Difference of the raw area from the baseline: the part due to ranking": every("area_ranking"),
            "Difference of the raw area from the baseline: the part due to quality": every("area_quality"),
        }

    def measure(self, view: str, outcomes: Callable[[str], Outcome], resamples: int) -> dict[str, Measured]:
        outcome = outcomes(view)
        outputs, references = outcome["outputs"].tolist(), _references(outcome)
        tokens = [outcome[name] for name in REFERENCE_VALUES]
        scores, quality = self.judged(outcome)
        rejection = rejection_reports(scores, quality, metrics=REJECTION, resamples=resamples)
        return {
            "quality": corpus_quality_interval(self.quality, outputs, references, resamples),
            **reference_metrics(tokens, outcome["lengths"], resamples),
            "mean_quality": rejection[self.scorers[0]]["mean_quality"],
            **{f"{name}_{scorer}": metrics[name] for scorer, metrics in rejection.items() for name in REJECTION[:3]},
        }

    def measure_difference(self, measured: dict[str, Measured], baseline: dict[str, Measured]) -> dict[str, Measured]:
        """Why the raw areas differ: see [`~clue_hf.metrics.split_of_area_gain`]."""
        more = {}
        for scorer in self.scorers:
            area, ratio = (
                [metrics[f"{name}_{scorer}"] for metrics in (measured, baseline)] for name in ("rejection_area", "prr")
            )
            room = [metrics[f"oracle_area_{scorer}"] - metrics["mean_quality"] for metrics in (measured, baseline)]
            ranking = _ranking(room, ratio)
            more[f"area_ranking_{scorer}"] = ranking
            more[f"area_quality_{scorer}"] = area[0] - area[1] - ranking
        return more

    def judged(self, outcome: Outcome) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return {name: outcome[f"score_{name}"] for name in self.scorers}, outcome["quality"]


def reference_columns(collected: Sequence[Collected]) -> list[np.ndarray]:
    """The [`REFERENCE_VALUES`] of all reference tokens, text by text."""
    references = [entry.reference for entry in collected if entry.reference is not None]
    columns = (
        [-text.log_probability for text in references],
        [text.entropy for text in references],
        [text.confidence for text in references],
        [text.correct for text in references],
    )
    return [np.concatenate(column) for column in columns]


def _references(outcome: Outcome) -> list[list[str]]:
    """The references of each example."""
    texts = outcome["references"]
    ends = np.cumsum(outcome.get("reference_counts", np.ones(len(texts), int)))
    return [part.tolist() for part in np.split(texts, ends[:-1])]


def _ranking(room: list[Measured], ratio: list[Measured]) -> Measured:
    """`mean(D) * (PRR_a - PRR_b)`, on all examples and on each resample."""
    difference, mean_room = ratio[0] - ratio[1], (room[0].value + room[1].value) / 2
    values = (room[0].resampled + room[1].resampled) / 2 * difference.resampled
    return Measured.from_resamples(mean_room * difference.value, values, difference.n, difference.reason)
