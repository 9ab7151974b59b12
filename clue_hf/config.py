"""`CLUEConfig`: all settings of a training run, transformers' own ones included."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from transformers import Seq2SeqTrainingArguments

from .functional import check_choice, check_fraction
from .objectives import OBJECTIVES


TASKS = ("auto", "seq2seq", "causal", "classification", "regression")


@dataclass
class CLUEConfig(Seq2SeqTrainingArguments):
    r"""
    Settings of [`CLUETrainer`]: everything of [`~transformers.Seq2SeqTrainingArguments`], and what CLUE adds.

    > Parameters that control the objective

    Args:
        task (`str`, *optional*, defaults to `"auto"`):
            `"seq2seq"`, `"causal"`, `"classification"` or `"regression"`; `"auto"` asks the model.
        objective (`str`, *optional*, defaults to `"clue"`):
            What to train with: a name in [`~clue_hf.objectives.OBJECTIVES`].
        alpha (`float`, *optional*, defaults to 0.9):
            Weight of the error in CLUE, from 0 to 1; 1 is plain training.
        level (`str`, *optional*, defaults to `"token"`):
            Whether CLUE squares the gap of each token or of each sequence's means.
        clue_gradient (`str`, *optional*, defaults to `"both"`):
            `"both"` is the paper; `"uncertainty"` detaches the error inside the square.
        plain_steps (`int`, *optional*, defaults to 0):
            Train with plain cross-entropy for so many optimizer steps first.
        plain_epochs (`float`, *optional*, defaults to 0):
            The same in epochs.
        alpha_warmup_steps (`int`, *optional*, defaults to 0):
            Let alpha fall linearly from 1 to its value over so many steps (after the plain ones).
        pe_weight (`float`, *optional*, defaults to 1.0):
            Weight of the entropy in the objectives `ce_pe` and `mse_pe`.
        focal_gamma (`float`, *optional*, defaults to 2.0):
            Exponent of the objective `focal`.
        cals_margin (`float`, *optional*, defaults to 10.0):
            How far a logit may lie below the largest, in the objective `cals`.
        mc_samples (`int`, *optional*):
            Classification and regression: error and uncertainty are those of the mean of so many passes with dropout,
            in training and in evaluation; 0 is one plain pass. By default 5 for classes and 20 for numbers, or 0 for a
            model without dropout.
        plain_mc_samples (`int`, *optional*):
            Another number of passes in training where the loss is the error alone (`ce`, `mse`, and plain training
            before another objective): 1 is how models with dropout are usually trained.
        variance_head (`bool`, *optional*, defaults to `False`):
            Regression: the model also predicts a variance; always so with the objective `nll`.
        min_variance (`float`, *optional*, defaults to 1e-6):
            Regression: the least variance, in units of the standardised target.
        fused_head (`str`, *optional*, defaults to `"auto"`):
            Compute loss and gradients of the output layer without holding the logits: `"auto"` when the model allows,
            `"on"` or an error, `"off"`.
        max_nonfinite_steps (`int`, *optional*, defaults to 10):
            Steps whose gradients are not finite are skipped; after so many in a row training gives up.
        allow_config_change (`bool`, *optional*, defaults to `False`):
            Resume from a checkpoint that was trained with another objective, alpha, batch size or the like; the change
            is recorded in `training_settings.json`.

    > Parameters that control the data

    Args:
        source_column (`str`, *optional*):
            Column of the source text (or prompt); dots reach into nested columns: `translation.en`.
        target_column (`str`, *optional*):
            Column of the target text (or completion), or of the number to predict.
        source_prefix (`str`, *optional*, defaults to `""`):
            Text put before every source, such as `"summarize: "`.
        max_source_length (`int`, *optional*, defaults to 512):
            Longer sources are truncated to so many tokens, and counted.
        max_target_length (`int`, *optional*, defaults to 128):
            Longer targets are truncated to so many tokens, and counted.
        label_column (`str`, *optional*):
            Classification: column of the class.
        image_column (`str`, *optional*):
            Column of the image.
        image_size (`int`, *optional*):
            Side of the images as the model sees them; by default their own.
        augment (`str`, *optional*, defaults to `"none"`):
            Vary images in training: `"crop"`, or `"crop_flip"`, which also mirrors them.
        pad_to_multiple_of (`int`, *optional*):
            Pad batches to a multiple of this length.
        preprocessing_num_workers (`int`, *optional*):
            Processes that tokenise the data.
    """

    task: str = field(
        default="auto", metadata={"help": "seq2seq, causal, classification or regression; auto asks the model."}
    )
    objective: str = field(
        default="clue", metadata={"help": f"What to train with: {', '.join(OBJECTIVES)}, or a registered one."}
    )
    alpha: float = field(
        default=0.9, metadata={"help": "CLUE: weight of the error, from 0 to 1; 1 is plain training."}
    )
    level: str = field(
        default="token",
        metadata={
            "help": "CLUE: square the gap of each token (the paper) or of each sequence's means: token, sequence."
        },
    )
    clue_gradient: str = field(
        default="both",
        metadata={"help": "CLUE: both (the paper), or uncertainty: the error is detached inside the square."},
    )
    plain_steps: int = field(default=0, metadata={"help": "Plain cross-entropy for so many optimizer steps first."})
    plain_epochs: float = field(default=0, metadata={"help": "Plain cross-entropy for so many epochs first."})
    alpha_warmup_steps: int = field(
        default=0, metadata={"help": "CLUE: steps over which alpha falls from 1 to its value, after the plain ones."}
    )
    pe_weight: float = field(default=1.0, metadata={"help": "ce_pe, mse_pe: weight of the entropy."})
    focal_gamma: float = field(default=2.0, metadata={"help": "focal: the exponent gamma."})
    cals_margin: float = field(default=10.0, metadata={"help": "cals: how far a logit may lie below the largest."})
    mc_samples: int | None = field(
        default=None,
        metadata={
            "help": "Passes with dropout, whose mean counts (default: 5 for classes, 20 for numbers, where there is "
            "dropout)."
        },
    )
    plain_mc_samples: int | None = field(
        default=None,
        metadata={"help": "Another number of passes in training where the loss is the error alone; 1 is usual."},
    )
    variance_head: bool = field(
        default=False, metadata={"help": "Regression: also predict a variance (always so with objective nll)."}
    )
    min_variance: float = field(
        default=1e-6, metadata={"help": "Regression: the least variance, in units of the standardised target."}
    )
    fused_head: str = field(
        default="auto",
        metadata={"help": "Loss and gradients of the output layer without holding the logits: auto, on, off."},
    )
    max_nonfinite_steps: int = field(
        default=10, metadata={"help": "Give up after so many steps in a row whose gradients are not finite."}
    )
    allow_config_change: bool = field(
        default=False, metadata={"help": "Resume from a checkpoint that was trained with other settings."}
    )
    source_column: str | None = field(
        default=None, metadata={"help": "Column of the source text or prompt; dots reach inside: translation.en"}
    )
    target_column: str | None = field(
        default=None, metadata={"help": "Column of the target text or completion, or of the number to predict."}
    )
    source_prefix: str = field(default="", metadata={"help": "Text put before every source: 'summarize: '."})
    max_source_length: int = field(
        default=512, metadata={"help": "Longer sources are truncated to so many tokens, and counted."}
    )
    max_target_length: int = field(
        default=128, metadata={"help": "Longer targets are truncated to so many tokens, and counted."}
    )
    label_column: str | None = field(default=None, metadata={"help": "Classification: column of the class."})
    image_column: str | None = field(default=None, metadata={"help": "Column of the image."})
    image_size: int | None = field(default=None, metadata={"help": "Side of the images (default: their own)."})
    augment: str = field(default="none", metadata={"help": "Vary images in training: none, crop, crop_flip."})
    pad_to_multiple_of: int | None = field(default=None, metadata={"help": "Pad batches to a multiple of this."})
    preprocessing_num_workers: int | None = field(default=None, metadata={"help": "Processes that tokenise the data."})

    # other defaults than transformers': one line of progress every 50 steps instead of every 500
    logging_steps: float = field(
        default=50, metadata={"help": "Log every so many optimizer steps (below 1: a share of all steps)."}
    )

    def __post_init__(self) -> None:
        if not torch.accelerator.is_available():
            self.dataloader_pin_memory = False
            if self.bf16:
                self.use_cpu = True  # transformers insists on hearing it, though nothing else is there
        if self.ddp_find_unused_parameters is None:
            # the fused head uses the output weight outside the wrapped forward, where DDP's search does not look
            self.ddp_find_unused_parameters = False
        if self.load_best_model_at_end and self.metric_for_best_model is None and self.clue_gradient == "uncertainty":
            # its value is that of `both`, which flat models win, though its gradient is not: the error decides instead
            self.metric_for_best_model, self.greater_is_better = "error", False
        super().__post_init__()
        self.check_objective()
        self._check_unsupported()

    def check_objective(self) -> None:
        """Raises a `ValueError` that names the setting where one is wrong; settles what follows from the objective."""
        check_choice("task", self.task, TASKS)
        check_choice("objective", self.objective, tuple(OBJECTIVES))
        check_choice("level", self.level, ("token", "sequence"))
        check_choice("clue_gradient", self.clue_gradient, ("both", "uncertainty"))
        check_choice("augment", self.augment, ("none", "crop", "crop_flip"))
        check_choice("fused_head", self.fused_head, ("auto", "on", "off"))
        check_fraction("alpha", self.alpha)
        check_fraction("label_smoothing_factor", self.label_smoothing_factor)
        for name in ("plain_steps", "plain_epochs", "alpha_warmup_steps", "focal_gamma"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` must not be negative, but is {getattr(self, name)!r}.")
        for name in ("max_source_length", "max_target_length", "max_nonfinite_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)!r}.")
        for name in ("mc_samples", "plain_mc_samples"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"`{name}` must not be negative, but is {getattr(self, name)!r}.")
        for name in ("cals_margin", "min_variance"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be above 0, but is {getattr(self, name)!r}.")
        if self.plain_steps and self.plain_epochs:
            raise ValueError("Set `plain_steps` or `plain_epochs`, not both.")
        if self.objective == "label_smoothing" and self.label_smoothing_factor == 0:
            self.label_smoothing_factor = 0.1
        elif self.objective == "ce" and self.label_smoothing_factor > 0:
            self.objective = "label_smoothing"
        elif self.objective != "label_smoothing" and self.label_smoothing_factor > 0:
            raise ValueError(
                f"`label_smoothing_factor` does not go with the objective {self.objective!r}, whose error is plain "
                "cross-entropy. Remove it, or set objective='label_smoothing'."
            )

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
