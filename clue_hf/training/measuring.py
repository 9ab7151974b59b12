"""What a trainer measures: item-weighted means in training and evaluation, predictions, generated texts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import Seq2SeqTrainer
from transformers.trainer_utils import default_compute_objective
from transformers.utils import logging

from ..objectives import Objective
from ..tasks import STATISTICS, Task, summarize
from .guards import FiniteGuard
from .log_state import LogState


if TYPE_CHECKING:
    from ..config import CLUEConfig
    from ..evaluation import UncertaintyEvaluator

logger = logging.get_logger(__name__)

#: Above this share of the largest possible entropy the model is close to guessing.
FLAT = 0.9


class MeasuringMixin(Seq2SeqTrainer):
    """
    The part of a trainer that logs, evaluates and predicts. Statistics of items are summed on the device and read once
    per line of the log.
    """

    args: CLUEConfig
    model: Any
    task: Task
    training_objective: Objective
    evaluator: UncertaintyEvaluator | None
    finite_guard: FiniteGuard
    #: Whether `compute_loss` is this package's: the loss of another one is logged as transformers does.
    measures_loss: bool
    _evaluation_rows: dict[str, Any]
    _evaluation_sums: torch.Tensor
    _warned_of_flatness = False
    #: Number of rows that were generated for last, and of sequences for each of them (num_return_sequences).
    _generated_shape = (0, 1)
    #: Names of what the last evaluation has besides the loss and the metrics of the user.
    _own_metrics: set[str] = set()

    def objective_at(self, step: int) -> Objective:
        """The objective of a global step."""
        return self.training_objective

    # ---- logging ----

    @property
    def log_state(self) -> LogState:
        """What the next line of the log is made of; transformers may replace it by that of a checkpoint."""
        return next(callback for callback in self.callback_handler.callbacks if isinstance(callback, LogState))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            sums, tokens = self._totals()
            self.log_state.sums = None
            # item-weighted like the rest of the line; transformers' own loss is a mean over the steps
            logs.update(self._summary(sums, self.objective_at(max(self.state.global_step - 1, 0))))
            logs.update(self.finite_guard.take())
            logs.update({} if tokens is None else {"num_tokens": tokens})
        super().log(logs, start_time)

    def _totals(self) -> tuple[torch.Tensor, int | None]:
        """The sums since the last line of the log and the number of tokens so far, of all processes."""
        state, nothing = self.log_state, self._no_sums()
        sums = nothing if state.sums is None else state.sums.to(nothing.device)
        tokens = nothing[:1] if state.tokens is None else state.tokens.to(nothing).reshape(1)
        totals = self.accelerator.reduce(torch.cat([sums, tokens]), "sum")
        return totals[:-1], int(totals[-1]) or None

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        sums, tokens = self._totals()
        self.log_state.saved = {"sums": sums.tolist(), "tokens": tokens}
        super()._save_checkpoint(model, trial)

    def _summary(self, sums: torch.Tensor, objective: Objective) -> dict[str, float]:
        """The means of added-up statistics; nothing where no item was seen, as with another `compute_loss`."""
        skipped = int(sums[-1])
        if sums[STATISTICS.index("items")] == 0 and not skipped:
            return {}
        summary = summarize(sums[: len(STATISTICS)], self.task.num_classes, self.task.accuracy)
        if not self.measures_loss:
            del summary["loss"]
        if objective.alpha is not None:
            summary["alpha"] = objective.alpha
        if skipped:
            summary["skipped_batches"] = skipped
        flat = summary.get("normalized_uncertainty", 0) > FLAT and objective.alpha != 1
        if flat and not self._warned_of_flatness:
            self._warned_of_flatness = True
            logger.warning(
                f"The mean uncertainty is {summary['normalized_uncertainty']:.0%} of its maximum: the model is close "
                "to guessing. If it does not fall, raise alpha, start with plain steps (plain_steps), or use "
                "clue_gradient='uncertainty'."
            )
        return summary

    def _add_statistics(self, statistics: torch.Tensor, training: bool) -> None:
        """Adds the statistics of a batch, a row for each example, to those of training or evaluation."""
        if training:
            # a step that is skipped must not spoil the line of the log
            self.log_state.add(self._add_up(statistics, only_finite=self.args.logging_nan_inf_filter))
        else:
            # without the rows that were repeated to fill the last batch
            self._evaluation_sums += self._add_up(self.accelerator.gather_for_metrics(statistics))

    def _no_sums(self) -> torch.Tensor:
        """Zero for each of [`STATISTICS`], and for the batches without any item."""
        return torch.zeros(len(STATISTICS) + 1, dtype=torch.float64, device=self._sums_device())

    def _sums_device(self) -> torch.device:
        # float64 keeps counts of billions of tokens exact, but Apple's GPUs do not have it
        return torch.device("cpu") if self.args.device.type == "mps" else self.args.device

    def _add_up(self, statistics: torch.Tensor, only_finite: bool = False) -> torch.Tensor:
        sums = statistics.to(device=self._sums_device(), dtype=torch.float64).sum(0)
        if only_finite:
            sums = torch.where(sums.isfinite().all(), sums, 0)
        return torch.cat([sums, (sums[STATISTICS.index("items")] == 0).to(sums.dtype).unsqueeze(0)])

    # ---- evaluation: without duplicates, with and without generation ----

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        return super().evaluate(self._prepared(eval_dataset), *args, **kwargs)

    def predict(self, test_dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return super().predict(self._prepared(test_dataset), *args, **kwargs)

    def _prepared(self, dataset: Any) -> Any:
        """Data that may be raw; the name of one of the evaluation datasets stays as it is."""
        return dataset if isinstance(dataset, str) else self.task.prepare(dataset, self.args, "evaluation")

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        self.gather_function = self._gather  # Seq2SeqTrainer would count repeated rows
        self._generated_shape = (0, 1)
        self._evaluation_sums = self._no_sums()
        output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        if output.metrics is not None and self._evaluation_sums[STATISTICS.index("items")] > 0:
            metrics = self._summary(self._evaluation_sums, self.training_objective)
            if self.evaluator is not None:
                metrics |= self._rejection_metrics(self.evaluator, metric_key_prefix)
            named = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
            output.metrics.update(named)
            self._own_metrics = {*named} - {f"{metric_key_prefix}_loss"}
        return output

    def _gather(self, data: Any) -> Any:
        """The data of all processes, without the rows that were repeated to fill the last batch."""
        gather = partial(self.accelerator.gather_for_metrics, use_gather_object=self.args.eval_use_gather_object)
        rows, sequences = self._generated_shape
        if sequences > 1 and torch.is_tensor(data) and data.ndim > 1 and len(data) == rows * sequences:
            return gather(data.unflatten(0, (rows, sequences))).flatten(0, 1)
        return gather(data)

    def hyperparameter_search(
        self, hp_space: Any = None, compute_objective: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """By default on the sum of the user's metrics, or without any on the loss, as in transformers."""

        def objective(metrics: dict[str, float]) -> float:
            own = self._own_metrics
            return default_compute_objective({name: value for name, value in metrics.items() if name not in own})

        return super().hyperparameter_search(hp_space, compute_objective or objective, *args, **kwargs)

    def _rejection_metrics(self, evaluator: UncertaintyEvaluator, prefix: str) -> dict[str, float]:
        """How well the uncertainty of generated texts ranks them; nothing for data other than `eval_dataset`."""
        rows = self._evaluation_rows.get(prefix.removeprefix("eval").removeprefix("_"))
        if rows is None or not prefix.startswith("eval"):
            return {}
        evaluator.model, evaluator.tokenizer = self.accelerator.unwrap_model(self.model), self.processing_class
        metrics = evaluator.evaluate(rows, self.args.source_column, self.args.target_column).metrics
        quality = {f"mean_{name}": entries["mean"] for name, entries in metrics["quality"].items()}
        ranking = {f"prr_{name}": entries["prr"] for name, entries in metrics["scorers"].items()}
        return {name: measured.value for name, measured in {**quality, **ranking}.items()}

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> Any:
        generate = self.args.predict_with_generate and not prediction_loss_only
        has_labels = inputs.get("labels") is not None
        if not (generate or (prediction_loss_only and has_labels and self.measures_loss)):
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        inputs, loss = self._prepare_inputs(inputs), None
        if has_labels:
            with torch.no_grad(), self.compute_loss_context_manager():
                # copied, as a loss of others may take the labels out; ours makes no logits here
                batch_loss: Any = self.compute_loss(model, dict(inputs))
                loss = batch_loss.detach().mean()
        if not generate:
            return loss, None, None
        return (loss, *self._generate(model, inputs, ignore_keys, gen_kwargs))

    def _generate(
        self, model: nn.Module, inputs: dict[str, Any], ignore_keys: list[str] | None, gen_kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        What is generated for a batch, and its labels padded as transformers does. The settings are those of the call,
        then of the training arguments, then of the model; if none gives a length, it is `max_target_length`.
        """
        questions, generation = self.task.generation_inputs(inputs), self.model.generation_config
        settings = {"use_cache": True, **(gen_kwargs or getattr(self, "_gen_kwargs", {}))}
        is_causal = not getattr(self.model.config, "is_encoder_decoder", False)
        if is_causal and settings.get("max_length") is not None:  # where transformers counts the prompt, too
            settings["max_new_tokens"] = settings.pop("max_length")
        known = [settings.get("generation_config") or generation]
        lengths = [getattr(config, name) for config in known for name in ("max_length", "max_new_tokens")]
        if all(value is None for value in (settings.get("max_length"), settings.get("max_new_tokens"), *lengths)):
            settings["max_new_tokens"] = self.args.max_target_length
        before = generation.max_length
        tokens: Any = super().prediction_step(model, questions, False, ignore_keys, **settings)[1]
        rows = len(next(value for value in questions.values() if torch.is_tensor(value)))
        self._generated_shape = (rows, len(tokens) // max(rows, 1))
        labels, padded = inputs.get("labels"), (generation.max_length, (generation.max_new_tokens or 0) + 1)
        generation.max_length = before  # where transformers leaves its default, and then warns of it
        if is_causal:
            return tokens[:, questions["input_ids"].shape[1] :], labels  # a causal model repeats the prompt
        width = next((width for width in padded if labels is not None and labels.shape[-1] < width), None)
        return tokens, labels if width is None else self._pad_tensors_to_max_len(labels, width)
