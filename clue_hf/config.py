"""`CLUEConfig`: all settings of a training run, transformers' own ones included."""

from __future__ import annotations

import functools
import inspect
import os
import textwrap
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, fields
from typing import Any, TypeVar

import torch
from transformers import Seq2SeqTrainingArguments, TrainingArguments

from .functional import GRADIENTS, check_fraction
from .objectives import OBJECTIVES
from .settings import check_choice, check_minimum, check_trl_settings, setting


_Config = TypeVar("_Config")
TASKS = ("auto", "seq2seq", "causal", "classification", "regression", "token")


def _document_fields(config: type[_Config]) -> type[_Config]:
    """Adds the fields that a config declares itself to its docstring."""
    settings, lines = config.__dataclass_fields__, []  # type: ignore[attr-defined]
    for name, type_ in config.__annotations__.items():
        type_ = type_.type if isinstance(type_, InitVar) else type_
        default = "" if settings[name].default is None else f", defaults to `{settings[name].default!r}`"
        lines.append(f"    {name} (`{type_.removesuffix(' | None')}`, *optional*{default}):")
        lines += textwrap.wrap(settings[name].metadata["help"], 110, initial_indent=" " * 8, subsequent_indent=" " * 8)
    config.__doc__ = "\n".join([inspect.cleandoc(config.__doc__ or ""), "", "Args:", *lines, ""])
    return config


def _explain_trl_settings(config: type[_Config]) -> type[_Config]:
    """Makes a config say what to use instead of a setting of TRL that it does not have."""
    init = config.__init__

    @functools.wraps(init)
    def explained_init(self: Any, *args: Any, **settings: Any) -> None:
        check_trl_settings(settings)
        init(self, *args, **settings)

    config.__init__ = explained_init  # type: ignore[method-assign]
    return config


@dataclass(kw_only=True)
class ScriptSettings:
    """Settings that scripts written for transformers, such as run_translation.py, declare as options of their own."""

    source_prefix: str = setting("", "Text put before every source: 'summarize: '.")
    max_source_length: int = setting(512, "Maximum source length in tokens; longer sources are truncated and counted.")
    max_target_length: int = setting(128, "Maximum target length in tokens; longer targets are truncated and counted.")
    preprocessing_num_workers: int | None = setting(None, "Number of processes that tokenise the data.")


def _redeclare_script_settings(hidden: bool) -> Callable[[type[_Config]], type[_Config]]:
    """
    Declares [`ScriptSettings`] again in a class that becomes a dataclass. Hidden, they are arguments, but no fields:
    a HfArgumentParser leaves their options to the script that it parses for.
    """

    def redeclare(config: type[_Config]) -> type[_Config]:
        for declared in fields(ScriptSettings):
            of_type: Any = declared.type
            config.__annotations__[declared.name] = InitVar(of_type) if hidden else of_type
            redeclared = field(default=declared.default, metadata=declared.metadata, kw_only=True)
            setattr(config, declared.name, redeclared)
        return config

    return redeclare


@_explain_trl_settings
@_document_fields
@dataclass
@_redeclare_script_settings(hidden=True)
class CLUEConfig(Seq2SeqTrainingArguments, ScriptSettings):
    """
    Settings of [`CLUETrainer`]: those of [`~transformers.Seq2SeqTrainingArguments`], and the ones below.
    """

    # what to train with
    task: str = setting("auto", "seq2seq, causal, classification, regression, token; auto: by the model.")
    objective: str = setting("clue", f"Training objective: {', '.join(OBJECTIVES)}, or a registered one.")
    alpha: float = setting(0.9, "CLUE: weight of the error, from 0 to 1; 1 is plain training.")
    level: str = setting(
        "token", "CLUE: square the gap of each token (the paper) or of each sequence's means: token, sequence."
    )
    clue_gradient: str = setting(
        "both",
        "CLUE: what the square moves: both (the paper), uncertainty (the error is detached inside it) or error (the "
        "uncertainty is detached).",
    )
    plain_steps: int = setting(
        0, "Number of initial steps trained with cross-entropy. In regression with the squared error."
    )
    plain_epochs: float = setting(0, "Number of initial epochs trained with cross-entropy. Instead of plain_steps.")
    alpha_warmup_steps: int = setting(
        0, "CLUE: number of steps over which alpha falls linearly from 1 to its value, after plain_steps."
    )
    pe_weight: float = setting(1.0, "ce_pe, mse_pe: weight of the entropy.")
    focal_gamma: float = setting(2.0, "focal: exponent gamma.")
    cals_margin: float = setting(10.0, "cals: largest allowed difference between the largest logit and another one.")
    maxsup_weight: float = setting(0.1, "maxsup: weight of the distance from the mean logit to the largest one.")
    nll_beta: float = setting(
        0.5, "beta_nll: exponent of the variance that weighs each row, from 0 to 1; 0 is the objective nll."
    )
    mc_samples: int | None = setting(
        None,
        "Number of MC-dropout forward passes to average. In training and in evaluation; by default 5 for classes, 20 "
        "for numbers, 0 without dropout. 0 is one pass without dropout.",
    )
    plain_mc_samples: int | None = setting(
        None,
        "Number of MC-dropout passes in training where the loss is the error alone. "
        "By default mc_samples; concerns ce, mse and the initial plain steps, for which 1 is usual.",
    )
    variance_head: bool = setting(False, "Regression: also predict a variance (always with nll, beta_nll and crps).")
    min_variance: float = setting(1e-6, "Regression: smallest variance, in units of the standardised target.")
    fused_head: str = setting(
        "auto",
        "Compute loss and gradients of the output layer without storing the logits: auto, on, off. auto does so when "
        "the model supports it, on raises an error when it does not.",
    )
    max_nonfinite_steps: int = setting(
        10, "Stop after this many consecutive steps with non-finite gradients. Such steps are skipped."
    )
    allow_config_change: bool = setting(
        False,
        "Resume from a checkpoint that was trained with other settings. The change is recorded in "
        "training_settings.json.",
    )

    # the data
    source_column: str | None = setting(
        None, "Column of the source text or prompt; dots select nested columns: translation.en"
    )
    target_column: str | None = setting(None, "Column of the target text or completion, or of the number to predict.")
    max_length: int | None = setting(
        None,
        "Causal models: maximum length in tokens of prompt and completion together, instead of max_source_length and "
        "max_target_length. By default their sum, for texts and chats.",
    )
    packing: bool = setting(
        False,
        "Causal models: put several short sequences into one row of up to max_length tokens instead of padding. Each "
        "is read as if it were alone; models that cannot do so are refused.",
    )
    eval_packing: bool = setting(False, "Causal models: pack the evaluation data, too.")
    completion_only_loss: bool | None = setting(
        None, "Causal models: learn completions only (the default for prompt and completion), or prompts, too (False)."
    )
    assistant_only_loss: bool | None = setting(
        None, "Causal models: learn the assistant's turns of a chat only (the default), or every token (False)."
    )
    dataset_text_field: str = setting("text", "Causal models: column of plain texts.")
    chat_template_path: str | None = setting(
        None, "File (.jinja) of a chat template, or folder or Hub id of a tokenizer that has one."
    )
    eos_token: str | None = setting(None, "Token of the vocabulary that ends a text (default: the tokenizer's own).")
    pad_token: str | None = setting(None, "Token of the vocabulary for padding (default: the tokenizer's own).")
    model_init_kwargs: dict[str, Any] | str | None = setting(
        None,
        "In Python: settings of from_pretrained for a model given by name: dtype, attn_implementation, revision.",
    )
    label_column: str | None = setting(None, "Classification: column of the class.")
    image_column: str | None = setting(None, "Column of the image.")
    image_size: int | None = setting(None, "Height and width of the images in pixels (default: their own).")
    augment: str = setting("none", "Augmentation of images in training: none, crop, crop_flip (also mirrors them).")
    pad_to_multiple_of: int | None = setting(None, "Pad batches to a multiple of this length.")
    dataset_num_proc: int | None = setting(None, "The same as preprocessing_num_workers.")

    # another default than transformers': one line of progress every 50 steps instead of every 500
    logging_steps: float = setting(50, "Log every this many optimizer steps (below 1: a fraction of all steps).")

    # transformers reads these from JSON on a command line
    _VALID_DICT_FIELDS = [*Seq2SeqTrainingArguments._VALID_DICT_FIELDS, "model_init_kwargs"]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A subclass may have a `__post_init__` without arguments, as with any other dataclass."""
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("__post_init__")
        if own is not None:

            @functools.wraps(own)
            def post_init(self: CLUEConfig, *script_settings: Any) -> None:
                self._take_script_settings(script_settings)
                own(self)

            cls.__post_init__ = post_init  # type: ignore[method-assign]

    def _take_script_settings(self, values: tuple[Any, ...]) -> None:
        for declared, value in zip(fields(ScriptSettings), values, strict=False):
            setattr(self, declared.name, value)

    def __post_init__(self, *script_settings: Any) -> None:
        self._take_script_settings(script_settings)
        if not torch.accelerator.is_available():
            self.dataloader_pin_memory = False
            if self.bf16 or "LOCAL_RANK" in os.environ:
                # transformers requires it, of several processes too, though there is no other device
                self.use_cpu = True
        if self.ddp_find_unused_parameters is None:
            # the fused head uses the output weight outside the wrapped forward, where DDP's search does not look
            self.ddp_find_unused_parameters = False
        if self.load_best_model_at_end and self.metric_for_best_model is None and self.clue_gradient != "both":
            # its value is that of `both`, which flat models win, though its gradient is not: the error decides instead
            self.metric_for_best_model, self.greater_is_better = "error", False
        super().__post_init__()
        self.check_objective()
        self._check_unsupported()
        self._settle_lengths()
        self._check_packing()

    @classmethod
    def from_arguments(cls, arguments: TrainingArguments) -> CLUEConfig:
        """
        The settings of transformers' own arguments, completed by the defaults of a [`CLUEConfig`]. What a subclass of
        them has besides becomes attributes.
        """
        settings = {known.name: getattr(arguments, known.name) for known in fields(arguments) if known.init}
        defaults = {known.name: known.default for known in fields(arguments)}
        others = {name: value for name, value in settings.items() if name not in cls.__dataclass_fields__}
        check_trl_settings(name for name, value in others.items() if value != defaults[name])
        config = cls(**{name: value for name, value in settings.items() if name not in others})
        for name, value in others.items():
            setattr(config, name, value)
        return config

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), **{known.name: getattr(self, known.name) for known in fields(ScriptSettings)}}

    def check_objective(self) -> None:
        """Raises a `ValueError` that names the setting where one is wrong; settles what follows from the objective."""
        check_choice("task", self.task, TASKS)
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("level", self.level, ("token", "sequence"))
        check_choice("clue_gradient", self.clue_gradient, GRADIENTS)
        check_choice("augment", self.augment, ("none", "crop", "crop_flip"))
        check_choice("fused_head", self.fused_head, ("auto", "on", "off"))
        check_fraction("alpha", self.alpha)
        check_fraction("label_smoothing_factor", self.label_smoothing_factor)
        check_fraction("nll_beta", self.nll_beta)
        for name in ("plain_steps", "plain_epochs", "alpha_warmup_steps", "focal_gamma", "maxsup_weight"):
            check_minimum(0, **{name: getattr(self, name)})
        check_minimum(0, mc_samples=self.mc_samples or 0, plain_mc_samples=self.plain_mc_samples or 0)
        for name in ("max_source_length", "max_target_length", "max_nonfinite_steps"):
            check_minimum(1, **{name: getattr(self, name)})
        for name in ("cals_margin", "min_variance"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be above 0, but is {getattr(self, name)!r}.")
        if self.plain_steps and self.plain_epochs:
            raise ValueError("Set `plain_steps` or `plain_epochs`, not both.")
        if self.clue_gradient == "error" and self.variance_head and self.objective == "clue":
            raise ValueError(
                "`clue_gradient='error'` detaches the uncertainty, so that the variance head would learn nothing: use "
                "'both' or 'uncertainty', or leave out `variance_head`."
            )
        if self.objective == "label_smoothing" and self.label_smoothing_factor == 0:
            self.label_smoothing_factor = 0.1
        elif self.objective == "ce" and self.label_smoothing_factor > 0:
            self.objective = "label_smoothing"
        elif self.objective != "label_smoothing" and self.label_smoothing_factor > 0:
            raise ValueError(
                f"`label_smoothing_factor` is not supported by the objective {self.objective!r}, whose error is plain "
                "cross-entropy. Remove it, or set objective='label_smoothing'."
            )

    def _settle_lengths(self) -> None:
        """What has two names gets one value; raises where the two contradict each other."""
        if isinstance(self.model_init_kwargs, str):
            raise ValueError(f"`model_init_kwargs` must be a map, as in JSON, not {self.model_init_kwargs!r}.")
        if self.pad_to_multiple_of == "auto":  # as in TRL, where it is None except on one kind of device
            self.pad_to_multiple_of = None
        if self.dataset_num_proc is not None:
            if self.preprocessing_num_workers not in (None, self.dataset_num_proc):
                raise ValueError("Set `dataset_num_proc` or `preprocessing_num_workers`, not both.")
            self.preprocessing_num_workers = self.dataset_num_proc
        if self.max_length is None:
            return
        check_minimum(2, max_length=self.max_length)
        defaults = {name: getattr(CLUEConfig, name) for name in ("max_source_length", "max_target_length")}
        # what a saved model's prompts are cut to, and how long its outputs may be
        settled = {
            "max_source_length": self.max_length,
            "max_target_length": min(self.max_length, defaults["max_target_length"]),
        }
        for name, value in settled.items():
            if getattr(self, name) not in (defaults[name], value):
                raise ValueError(
                    f"Set `max_length`, for prompt and completion together, or `{name}`, not both. How many tokens "
                    "are generated is `generation_max_length`."
                )
            setattr(self, name, value)

    def _check_packing(self) -> None:
        if not (self.packing or self.eval_packing):
            return
        if OBJECTIVES[self.objective].from_config(self).has_sequence_loss:
            raise ValueError(
                "The means of whole sequences (level='sequence') are not defined for packed rows: use level='token', "
                "or leave out `packing`."
            )
        if getattr(self.parallelism_config, "cp_size", 1) > 1:
            raise ValueError("Context parallelism drops the mask that keeps packed sequences apart: leave out one.")

    def _check_unsupported(self) -> None:
        """Settings that would change or bypass the loss are refused, not ignored."""
        if self.use_liger_kernel:
            raise ValueError(
                "`use_liger_kernel` replaces the loss inside the model, which CLUE does not use. Remove it: the fused "
                "head (`fused_head`) already avoids holding the logits."
            )
        if self.sortish_sampler:
            raise ValueError(
                "`sortish_sampler` has no effect in transformers 5. Use train_sampling_strategy='group_by_length'."
            )


@dataclass
@_redeclare_script_settings(hidden=False)
class CommandConfig(CLUEConfig):
    """A [`CLUEConfig`] whose settings are all options: what the commands of this package parse."""
