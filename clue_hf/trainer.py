"""`CLUETrainer`: transformers' Seq2SeqTrainer around a task (what is an item) and an objective (what is its loss)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import nn
from torch.utils.data import SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import has_length
from transformers.utils import SAFE_WEIGHTS_NAME

from .config import CLUEConfig
from .inputs.processing import load_for_training, settle_tokenizer
from .models.loading import add_adapter
from .objectives import OBJECTIVES, Objective, Plain
from .settings import check_trl_settings, parse_settings
from .tasks import Task, make_task
from .tasks.base import with_loss
from .training.collect import ClassProbabilities, class_log_probabilities
from .training.guards import FiniteGuard, Termination
from .training.log_state import LogState
from .training.measuring import MeasuringMixin
from .training.pushing import PushMixin
from .training.sampler import LengthGroupedSampler, token_lengths
from .training.saving import SavingMixin


if TYPE_CHECKING:
    from peft import PeftConfig

    from .evaluation import UncertaintyEvaluator


class CLUETrainer(SavingMixin, PushMixin, MeasuringMixin):
    """
    Trains models whose uncertainty matches their error. A drop-in replacement for [`~transformers.Seq2SeqTrainer`]
    that also takes what TRL users are used to.

    The loss of an optimizer step is a sum over items (target tokens) divided by their number in the whole
    accumulation window and on all processes: it does not depend on how the batch is laid out.

    Args:
        model (`str`, [`~transformers.PreTrainedModel`] or PEFT model):
            The model, or its Hub id or folder.
        args ([`CLUEConfig`] or [`~transformers.TrainingArguments`], *optional*):
            The settings; transformers' own are completed by the defaults of a [`CLUEConfig`].
        data_collator (`Callable`, *optional*):
            Makes batches; by default they are padded to their longest text. With one of your own, tokenised rows are
            left as they are, and raw ones too if `args.remove_unused_columns` is off.
        train_dataset, eval_dataset (`datasets.Dataset`, *optional*):
            Tokenised (`input_ids`, `labels`), or raw: source and target columns (`args.source_column` ...),
            `prompt`/`completion`, and for causal models also `messages` or `text`.
        processing_class ([`~transformers.PreTrainedTokenizerBase`], *optional*):
            The tokenizer; by default the one in the model's folder or repository.
        peft_config (`peft.PeftConfig`, *optional*):
            Train an adapter instead of the model.
        formatting_func (`Callable`, *optional*):
            Makes a text of each row of a raw dataset, for causal models.
        model_init, compute_metrics, callbacks, optimizers, optimizer_cls_and_kwargs, preprocess_logits_for_metrics:
            See [`~transformers.Trainer`].
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
    #: The denominators of the loss (see [`Task.count`]) of the optimizer step at hand, and of the batch at hand.
    _step_counts: torch.Tensor | None = None
    _counts: torch.Tensor | None = None
    #: A model that `model_init` has made before transformers asks for it.
    _first_model: Any = None

    def __init__(
        self,
        model: Any = None,
        args: TrainingArguments | None = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        model_init: Callable[..., Any] | None = None,
        compute_loss_func: Callable | None = None,
        compute_metrics: Callable | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        preprocess_logits_for_metrics: Callable | None = None,
        *,
        peft_config: PeftConfig | None = None,
        formatting_func: Callable[[dict[str, Any]], str] | None = None,
        task: Task | None = None,
        evaluator: UncertaintyEvaluator | None = None,
        optimizer_cls_and_kwargs: tuple[Any, dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        check_trl_settings(kwargs)
        args = CLUEConfig("tmp_trainer") if args is None else args
        if not isinstance(args, CLUEConfig):
            args = CLUEConfig.from_arguments(args)
        self._peft_config = peft_config
        if isinstance(model, str):
            model, saved = load_for_training(model, args.task, args.model_init_kwargs)  # type: ignore[arg-type]
            processing_class = saved if processing_class is None else processing_class
        if model is not None:
            first = model = self._with_adapter(model, args)
        elif model_init is not None:
            set_seed(args.seed)
            self.args, self.model_init = args, model_init
            first = self._first_model = self._with_adapter(super().call_model_init(), args)
        else:
            raise ValueError("CLUETrainer needs a `model` (an object, a Hub id or a folder) or a `model_init`.")

        settle_tokenizer(processing_class, first, args)
        if data_collator is not None and (args.packing or args.eval_packing):
            raise ValueError("Packed rows need a collator of their own: leave out `data_collator` or `packing`.")
        self._make_task = partial(
            make_task, config=args, processing_class=processing_class, formatting_func=formatting_func
        )
        self.task, self._task_is_made = task or self._make_task(first), task is None
        self.task.has_own_collator = data_collator is not None
        self.training_objective: Objective = OBJECTIVES[args.objective].from_config(args)
        self.plain_objective: Objective = Plain()
        self.evaluator = evaluator
        self._evaluation_rows = eval_dataset if isinstance(eval_dataset, dict) else {"": eval_dataset}
        train_dataset = self.task.prepare(train_dataset, args, "train", training=True)
        if self.training_objective.needs_row and train_dataset is not None:
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
            model_init=model_init,
            compute_loss_func=compute_loss_func,
            compute_metrics=compute_metrics,
            callbacks=callbacks,
            optimizers=optimizers,
            preprocess_logits_for_metrics=preprocess_logits_for_metrics,
            **kwargs,
        )
        if args.n_gpu > 1:
            raise ValueError(
                f"{args.n_gpu} GPUs in one process would use DataParallel, whose losses do not add up. Use "
                "`accelerate launch` (or `clue-hf train --num_processes`), or one GPU through CUDA_VISIBLE_DEVICES."
            )
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs  # which Seq2SeqTrainer does not take
        if hasattr(self.model, "add_model_tags"):
            self.model.add_model_tags(list(self._tag_names))
        self.finite_guard, self.termination = FiniteGuard(self, args.max_nonfinite_steps), Termination(self)
        for callback in (_ObjectiveCallback(self), self.finite_guard, self.termination, LogState()):
            self.add_callback(callback)
        self._plain_until = args.plain_steps
        self._evaluation_sums = self._no_sums()
        self.measures_loss = type(self).compute_loss is CLUETrainer.compute_loss and compute_loss_func is None

    # ---- the model: given, or made anew by `model_init` for each training ----

    def _with_adapter(self, model: Any, args: CLUEConfig) -> Any:
        config = self._peft_config
        return model if config is None else add_adapter(model, config, args.gradient_checkpointing)

    def call_model_init(self, trial: Any = None) -> Any:
        if self._first_model is not None:
            model, self._first_model = self._first_model, None
            return model
        model = self._with_adapter(super().call_model_init(trial), self.args)
        settle_tokenizer(self.processing_class, model, self.args)
        self.task.settle_model(model)
        if self.args.generation_config is not None:
            model.generation_config = self.load_generation_config(self.args.generation_config)  # type: ignore[arg-type]
        return model

    def _hp_search_setup(self, trial: Any) -> None:
        """A trial of a hyperparameter search may change the objective and what the task does."""
        super()._hp_search_setup(trial)
        if trial is not None:
            self.args.check_objective()
            self.training_objective = OBJECTIVES[self.args.objective].from_config(self.args)
            if self._task_is_made:
                own_collator, self.task = self.task.has_own_collator, self._make_task(self.model)
                self.task.has_own_collator = own_collator

    # ---- the two lines everything hangs on: task -> prediction, objective -> loss ----

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if self.compute_loss_func is not None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        training = model.training
        # evaluation always uses the final objective, so that its loss is comparable along the run
        objective = self.objective_at(self.state.global_step) if training else self.training_objective
        with self.accelerator.autocast():
            prediction = self.task.predict(model, inputs, objective, return_outputs)
            counts, of_step = self._counts, self._counts is not None
            if counts is None:  # not in a step of `train`: the mean of the batch, unless the caller says otherwise
                counts = self.task.count([inputs])
                if training and num_items_in_batch is not None:
                    counts[0], of_step = num_items_in_batch, True
            loss, statistics = prediction.reduce(objective, counts.clamp(min=1))
        self._add_statistics(statistics, training)
        if self.loss_is_scaled_for_ga is None and self._counts is not None:
            self.loss_is_scaled_for_ga = True  # by the items of the whole window: transformers must not divide again
        if self.args.average_tokens_across_devices and of_step:
            loss = loss * (self.accelerator.num_processes // self.get_tp_size())  # DDP divides by it
        return (loss, with_loss(prediction.outputs, loss)) if return_outputs else loss

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        is_scaled, self._counts = self.loss_is_scaled_for_ga, self._step_counts
        try:
            return super().training_step(*args, **kwargs)
        finally:
            self.loss_is_scaled_for_ga, self._counts = is_scaled, None

    def objective_at(self, step: int) -> Objective:
        """The objective of a global step: plain during the plain phase, then the chosen one with its schedule."""
        if step < self._plain_until:
            return self.plain_objective
        return self.training_objective.at(step - self._plain_until)

    @property
    def in_plain_phase(self) -> bool:
        """Whether the next step is still one of plain training."""
        return self.state.global_step < self._plain_until

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The batches of an optimizer step; counts the denominators of its loss over all of them and all processes."""
        batches, items = super().get_batch_samples(*args, **kwargs)
        # processes that see the same batch
        copies = self.get_tp_size() * self.get_cp_size() * self.get_sp_size()
        self._step_counts = None
        if batches and batches[0].get("labels") is not None:
            counts = self.task.count(batches).to(self.args.device)
            if self.args.world_size > 1 and self.args.average_tokens_across_devices:
                counts = self.accelerator.reduce(counts, "sum")
            self._step_counts = counts / copies
        tokens = self.task.count_tokens(batches) if batches else None
        if tokens is not None:
            self.log_state.add_tokens(tokens.to(self.args.device) / copies)
        return batches, items

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
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        sampler = self.training_objective.train_sampler(self)
        if sampler is not None:
            return sampler
        columns = getattr(dataset, "column_names", None) or [] if has_length(dataset) else []
        if self.args.train_sampling_strategy != "group_by_length" or "input_ids" not in columns:
            return super()._get_train_sampler(train_dataset)
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        step_size = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        given = self.args.length_column_name
        lengths = list(dataset[given]) if given in columns else token_lengths(dataset)
        return LengthGroupedSampler(lengths, step_size, seed, lambda: int(self.state.epoch or 0))

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

    def class_probabilities(self, dataset: Any, description: str = "Predicting") -> ClassProbabilities:
        """What the model predicts for every row of a dataset, on all processes; objectives look at data with it."""
        return class_log_probabilities(self, dataset, description)


class _ObjectiveCallback(TrainerCallback):
    """Tells the objective when training begins and an epoch ends."""

    def __init__(self, trainer: CLUETrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.training_objective.on_train_begin(self.trainer)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        collator: Any = self.trainer._train_collator
        if hasattr(collator, "set_epoch"):  # random crops are a function of the epoch
            collator.set_epoch(int(state.epoch or 0))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.training_objective.on_epoch_end(self.trainer)
