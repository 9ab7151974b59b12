"""`CLUETrainer`: transformers' Seq2SeqTrainer around a task (what is an item) and an objective (what is its loss)."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import nn
from torch.utils.data import SequentialSampler
from transformers import PreTrainedModel, Seq2SeqTrainer, Trainer, TrainerCallback
from transformers.trainer_utils import has_length
from transformers.utils import SAFE_WEIGHTS_NAME, logging

from .config import CLUEConfig
from .inputs.processing import load_for_training, settle_tokenizer
from .models.loading import add_adapter
from .objectives import OBJECTIVES, Objective, Plain
from .settings import check_trl_settings, parse_settings
from .tasks import STATISTICS, Task, make_task, summarize
from .training.collect import ClassProbabilities, class_log_probabilities
from .training.guards import FiniteGuard, Termination
from .training.pushing import PushMixin
from .training.sampler import LengthGroupedSampler, token_lengths
from .training.saving import SavingMixin
from .training.tokens import TokenCounter


if TYPE_CHECKING:
    from peft import PeftConfig

    from .evaluation import UncertaintyEvaluator

logger = logging.get_logger(__name__)

#: Above this share of the largest possible entropy the model is close to guessing.
FLAT = 0.9


class CLUETrainer(SavingMixin, PushMixin, Seq2SeqTrainer):
    """
    Trains models whose uncertainty matches their error. A drop-in replacement for [`~transformers.Seq2SeqTrainer`]
    that also takes what TRL users are used to.

    The loss of an optimizer step is a sum over items (target tokens) divided by their number in the whole
    accumulation window and on all processes: it does not depend on how the batch is laid out.

    Args:
        model (`str`, [`~transformers.PreTrainedModel`] or PEFT model):
            The model, or its Hub id or folder.
        args ([`CLUEConfig`], *optional*):
            The settings.
        data_collator (`Callable`, *optional*):
            Makes batches; by default they are padded to their longest text.
        train_dataset, eval_dataset (`datasets.Dataset`, *optional*):
            Tokenised (`input_ids`, `labels`), or raw: source and target columns (`args.source_column` ...),
            `prompt`/`completion`, and for causal models also `messages` or `text`.
        processing_class ([`~transformers.PreTrainedTokenizerBase`], *optional*):
            The tokenizer; by default the one in the model's folder or repository.
        peft_config (`peft.PeftConfig`, *optional*):
            Train an adapter instead of the model.
        formatting_func (`Callable`, *optional*):
            Makes a text of each row of a raw dataset, for causal models.
        task ([`~clue_hf.tasks.Task`], *optional*):
            What an item is; by default chosen by `args.task` and the model.
        evaluator ([`UncertaintyEvaluator`], *optional*):
            Generates for the rows of `eval_dataset` (raw texts) at every evaluation and logs `eval_prr_SCORER`, how
            well each score ranks the outputs, and their mean quality. `metric_for_best_model` may be one of these. A
            model and tokenizer of its own are not needed.

    Example:

    ```python
    from clue_hf import CLUEConfig, CLUETrainer

    trainer = CLUETrainer("google-t5/t5-small", CLUEConfig("out", alpha=0.9), train_dataset=pairs)
    trainer.train()
    ```
    """

    args: CLUEConfig
    model: Any
    # the loss is divided by the items of the whole window: transformers must not divide it again
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: Any = None,
        args: CLUEConfig | None = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        *,
        peft_config: PeftConfig | None = None,
        formatting_func: Callable[[dict[str, Any]], str] | None = None,
        task: Task | None = None,
        evaluator: UncertaintyEvaluator | None = None,
        **kwargs: Any,
    ) -> None:
        check_trl_settings(kwargs)
        args = CLUEConfig("trainer_output") if args is None else args
        if not isinstance(args, CLUEConfig):
            raise TypeError(f"`args` must be a CLUEConfig, not {type(args).__name__}.")
        if kwargs.get("compute_loss_func") is not None:
            raise ValueError(
                "CLUETrainer has its own loss. Register an Objective in clue_hf.objectives.OBJECTIVES, or use a stock "
                "Trainer with compute_loss_func=clue_hf.functional.compute_loss_func(...)."
            )
        if isinstance(model, str):
            model, saved = load_for_training(model, args.task, args.model_init_kwargs)  # type: ignore[arg-type]
            processing_class = saved if processing_class is None else processing_class
        if peft_config is not None:
            model = add_adapter(model, peft_config, args.gradient_checkpointing)
        if model is None:
            raise ValueError(
                "CLUETrainer needs a `model`: an object, a Hub id or a folder. (`model_init` is not used.)"
            )

        settle_tokenizer(processing_class, model, args)
        if data_collator is not None and (args.packing or args.eval_packing):
            raise ValueError("Packed rows need a collator of their own: leave out `data_collator` or `packing`.")
        self.task = task or make_task(model, args, processing_class, formatting_func)
        self.objective: Objective = OBJECTIVES[args.objective].from_config(args)
        self.plain_objective: Objective = Plain()
        self.evaluator = evaluator
        self._evaluation_rows = eval_dataset if isinstance(eval_dataset, dict) else {"": eval_dataset}
        train_dataset = self.task.prepare(train_dataset, args, "train", training=True)
        if self.objective.needs_row and train_dataset is not None:
            train_dataset, args.remove_unused_columns = self.task.numbered(train_dataset), False
        eval_dataset = self.task.prepare(eval_dataset, args, "evaluation")
        self._train_collator = self.task.train_collator(args) if data_collator is None else None
        super().__init__(
            model=model,
            args=args,
            data_collator=self.task.collator(args) if data_collator is None else data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        if args.n_gpu > 1:
            raise ValueError(
                f"{args.n_gpu} GPUs in one process would use DataParallel, whose losses do not add up. Use "
                "`accelerate launch` (or `clue-hf train --num_processes`), or one GPU through CUDA_VISIBLE_DEVICES."
            )
        if hasattr(self.model, "add_model_tags"):
            self.model.add_model_tags(list(self._tag_names))
        self.finite_guard, self.termination = FiniteGuard(self, args.max_nonfinite_steps), Termination(self)
        for callback in (_ObjectiveCallback(self), self.finite_guard, self.termination, TokenCounter()):
            self.add_callback(callback)
        self._plain_until = args.plain_steps
        self._training_sums = self._evaluation_sums = self._no_sums()
        self._warned_of_flatness = False

    # ---- the two lines everything hangs on: task -> prediction, objective -> loss ----

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        training = model.training
        # evaluation always uses the final objective, so that its loss is comparable along the run
        objective = self.objective_at(self.state.global_step) if training else self.objective
        counts = self.task.count([inputs]) if num_items_in_batch is None else num_items_in_batch
        with self.accelerator.autocast():
            prediction = self.task.predict(model, inputs, objective, return_outputs)
            loss, statistics = prediction.reduce(objective, counts.clamp(min=1))
        if training:
            self._training_sums = self._training_sums + self._add_up(statistics)
        else:
            # gather_function leaves out the rows that were repeated to fill the last batch
            self._evaluation_sums = self._evaluation_sums + self._add_up(self.gather_function(statistics))
        if num_items_in_batch is not None and self.args.average_tokens_across_devices:
            loss = loss * (self.accelerator.num_processes // self.get_tp_size())  # DDP divides by it
        return (loss, {"logits": prediction.outputs}) if return_outputs else loss

    def objective_at(self, step: int) -> Objective:
        """The objective of a global step: plain during the plain phase, then the chosen one with its schedule."""
        if step < self._plain_until:
            return self.plain_objective
        return self.objective.at(step - self._plain_until)

    @property
    def in_plain_phase(self) -> bool:
        """Whether the next step is still one of plain training."""
        return self.state.global_step < self._plain_until

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> torch.Tensor | None:
        """The denominators of the loss (see [`Task.count`]) over the accumulation window and all processes."""
        if not batch_samples or batch_samples[0].get("labels") is None:
            return None
        counts, tokens = self.task.count(batch_samples).to(device), self.task.count_tokens(batch_samples)
        own = counts if tokens is None else torch.cat([counts, tokens.to(device).reshape(1)])
        totals = self.accelerator.reduce(own, "sum") if self.args.world_size > 1 else own
        copies = self.get_tp_size() * self.get_cp_size() * self.get_sp_size()
        if tokens is not None:
            self.token_counter.add(totals[-1] // copies)
        return (totals if self.args.average_tokens_across_devices else own)[: len(counts)] / copies

    @property
    def token_counter(self) -> TokenCounter:
        """Counts the tokens of the training; transformers may replace it by that of a checkpoint."""
        return next(callback for callback in self.callback_handler.callbacks if isinstance(callback, TokenCounter))

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Any:
        values = super().set_initial_training_values(args, dataloader)
        steps_per_epoch = values[1]
        self._plain_until = self.args.plain_steps or math.ceil(self.args.plain_epochs * steps_per_epoch)
        return values

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        self._load_renamed(resume_from_checkpoint, self.model if model is None else model)

    def _load_best_model(self) -> None:
        super()._load_best_model()
        if self.state.best_model_checkpoint is not None:
            self._load_renamed(self.state.best_model_checkpoint, self.model)

    @staticmethod
    def _load_renamed(folder: str, model: Any) -> None:
        """
        Some models are saved under former names of their layers (ViT), which the trainer would skip with a warning:
        their weights are read the way `from_pretrained` does.
        """
        path = Path(folder) / SAFE_WEIGHTS_NAME
        if not isinstance(model, PreTrainedModel) or not path.exists():
            return
        with safe_open(path, "pt") as file:
            known = set(file.keys()) <= set(model.state_dict())
        if not known:
            model.load_state_dict(type(model).from_pretrained(folder, dtype=model.dtype).state_dict())

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: Any, model: Any = None) -> tuple[Any, dict[str, Any]]:
        optimizer, settings = Trainer.get_optimizer_cls_and_kwargs(args, model)
        if args.optim == "adafactor" and args.optim_args:  # which transformers would ignore
            settings.update(parse_settings("optim_args", args.optim_args))
        return optimizer, settings

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        sampler = self.objective.train_sampler(self)
        if sampler is not None:
            return sampler
        columns = getattr(dataset, "column_names", None) or [] if has_length(dataset) else []
        if self.args.train_sampling_strategy != "group_by_length" or "input_ids" not in columns:
            return super()._get_train_sampler(train_dataset)
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        step_size = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        return LengthGroupedSampler(token_lengths(dataset), step_size, seed, lambda: int(self.state.epoch or 0))

    def get_train_dataloader(self) -> Any:
        """Training may make its batches in another way: examples are varied there."""
        collator = self.data_collator
        self.data_collator = collator if self._train_collator is None else self._train_collator
        try:
            return super().get_train_dataloader()
        finally:
            self.data_collator = collator

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        """Evaluation keeps the order of the data, so that predictions line up with it."""
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 and has_length(eval_dataset) else None

    # ---- evaluation: item-weighted, without duplicates, with and without generation ----

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        self.gather_function = self.accelerator.gather_for_metrics  # Seq2SeqTrainer would count repeated rows
        self._evaluation_sums = self._no_sums()
        output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        if output.metrics is not None and self._evaluation_sums[STATISTICS.index("items")] > 0:
            metrics = self._summary(self._evaluation_sums, self.objective)
            if self.evaluator is not None:
                metrics |= self._rejection_metrics(self.evaluator, metric_key_prefix)
            output.metrics.update({f"{metric_key_prefix}_{name}": value for name, value in metrics.items()})
        return output

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
        if inputs.get("labels") is None:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys, **gen_kwargs)
        inputs = self._prepare_inputs(inputs)
        generate = self.args.predict_with_generate and not prediction_loss_only
        with torch.no_grad():
            if not (prediction_loss_only or generate):
                loss, outputs = self.compute_loss(model, inputs, return_outputs=True)
                return loss, outputs["logits"], inputs["labels"]
            loss = self.compute_loss(model, inputs)
        if prediction_loss_only:
            return loss, None, None
        questions = self.task.generation_inputs(inputs)
        settings = {"use_cache": True, **(gen_kwargs or getattr(self, "_gen_kwargs", {}))}
        limit = settings.pop("max_length", None) or self.args.max_target_length
        settings.setdefault("max_new_tokens", limit)
        before = self.model.generation_config.max_length
        tokens: Any = super().prediction_step(model, questions, False, ignore_keys, **settings)[1]
        self.model.generation_config.max_length = before  # where transformers leaves its default, and then warns of it
        if not getattr(self.model.config, "is_encoder_decoder", False):
            tokens = tokens[:, questions["input_ids"].shape[1] :]  # a causal model repeats the prompt
        return loss, tokens, inputs["labels"]

    def class_probabilities(self, dataset: Any, description: str = "Predicting") -> ClassProbabilities:
        """What the model predicts for every row of a dataset, on all processes; objectives look at data with it."""
        return class_log_probabilities(self, dataset, description)

    # ---- logging: summed on the device, read once per log line ----

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            sums = self.accelerator.reduce(self._training_sums, "sum")
            self._training_sums = self._no_sums()
            # item-weighted like the rest of the line; transformers' own loss is a mean over the steps
            logs.update(self._summary(sums, self.objective_at(max(self.state.global_step - 1, 0))))
            logs.update(self.finite_guard.take())
            logs.update(self.token_counter.logged())
        super().log(logs, start_time)

    def _summary(self, sums: torch.Tensor, objective: Objective) -> dict[str, float]:
        summary = summarize(sums[: len(STATISTICS)], self.task.num_classes, self.task.accuracy)
        if objective.alpha is not None:
            summary["alpha"] = objective.alpha
        skipped = int(sums[-1])
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

    def _no_sums(self) -> torch.Tensor:
        """Zero for each of [`STATISTICS`], and for the batches without any item."""
        return torch.zeros(len(STATISTICS) + 1, dtype=torch.float64, device=self._sums_device())

    def _sums_device(self) -> torch.device:
        # float64 keeps counts of billions of tokens exact, but Apple's GPUs do not have it
        return torch.device("cpu") if self.args.device.type == "mps" else self.args.device

    def _add_up(self, statistics: torch.Tensor) -> torch.Tensor:
        sums = statistics.to(device=self._sums_device(), dtype=torch.float64).sum(0)
        sums = torch.where(sums.isfinite().all(), sums, 0)  # a step that is skipped must not spoil the log line
        return torch.cat([sums, (sums[STATISTICS.index("items")] == 0).to(sums.dtype).unsqueeze(0)])


class _ObjectiveCallback(TrainerCallback):
    """Tells the objective when training begins and an epoch ends."""

    def __init__(self, trainer: CLUETrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.objective.on_train_begin(self.trainer)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        collator: Any = self.trainer._train_collator
        if hasattr(collator, "set_epoch"):  # random crops are a function of the epoch
            collator.set_epoch(int(state.epoch or 0))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.objective.on_epoch_end(self.trainer)
