"""How a trainer keeps its checkpoints and finds the last whole one; alone in its folder."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import Trainer
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging

from ..errors import UserError
from ..files import write_json
from ..inputs.base import InputSettings
from ..models.uncertainty_file import write_uncertainty
from ..objectives import Objective
from ..processes import on_main_process
from ..tasks import Task
from .checkpoints import SETTINGS, damage, is_foreign, last_whole_checkpoint, remove, rotate, write_manifest
from .guards import TERMINATED, Termination
from .locks import alone


logger = logging.get_logger(__name__)

#: File of a checkpoint that holds what the objective has learned.
OBJECTIVE_STATE = "objective.safetensors"
#: Settings that must not change unnoticed between a checkpoint and what is trained from it.
FIXED = (
    "objective", "alpha", "level", "clue_gradient", "plain_steps", "plain_epochs", "alpha_warmup_steps", "pe_weight",
    "focal_gamma", "cals_margin", "maxsup_weight", "nll_beta", "mc_samples", "plain_mc_samples", "variance_head",
    "label_smoothing_factor",
    "per_device_train_batch_size", "gradient_accumulation_steps", "seed", "data_seed", "train_sampling_strategy",
    "packing",
)  # fmt: skip
#: What torch raises for a file that it does not load.
UNREADABLE = (pickle.UnpicklingError, RuntimeError, EOFError)


class SavingMixin(Trainer):
    """
    The part of a trainer that saves. A checkpoint counts when its manifest is there, which is written last; resuming
    takes the newest one that is whole. transformers' pickled `training_args.bin` is not kept; the settings are JSON.
    """

    args: Any
    model: Any
    training_objective: Objective
    task: Task
    termination: Termination

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        with alone(self.args.output_dir, "training", "output_dir"), self.termination.watching():
            resume = resume_from_checkpoint
            checkpoint = on_main_process(lambda: str(self._find(resume))) if resume else None
            self._changes = self._changed_settings(checkpoint) if checkpoint else []
            output = super().train(checkpoint, *args, **kwargs)
        if self.termination.ended:
            folder = self.args.output_dir
            logger.warning(f"Stopped by SIGTERM at step {self.state.global_step}; the checkpoint is in {folder}.")
            raise SystemExit(TERMINATED)
        return output

    # ---- finding ----

    def _find(self, resume: str | bool) -> Path:
        """The checkpoint to resume from."""
        if resume is True:
            newest = last_whole_checkpoint(self.args.output_dir)
            if newest is None:
                raise UserError(f"There is no checkpoint in {self.args.output_dir} to resume from.")
            return _noted(newest)
        folder = Path(str(resume))
        if not folder.is_dir():
            raise UserError(f"Can't find a valid checkpoint at {folder}: there is no such folder.")
        reason = damage(folder)
        if reason:
            raise UserError(
                f"The checkpoint {folder} cannot be used: {reason}. Give another one, or true for the last."
            )
        return _noted(folder)

    def _changed_settings(self, checkpoint: str) -> list[dict[str, Any]]:
        """The changes of settings up to now; raises an error on new ones unless they are allowed."""
        path = Path(checkpoint) / SETTINGS
        if not path.exists():
            return []
        before = json.loads(path.read_text(encoding="utf-8"))
        now = self._settings()
        new = [
            {"checkpoint": Path(checkpoint).name, "setting": name, "before": earlier, "now": now[name]}
            for name, earlier in before["fixed"].items()
            if name in now and now[name] != earlier
        ]
        if new and not self.args.allow_config_change:
            changed = ", ".join(f"{change['setting']} ({change['before']!r}, now {change['now']!r})" for change in new)
            raise UserError(
                f"{checkpoint} was trained with another {changed}. Resume with the same settings, or set "
                "allow_config_change to continue with the new ones; the change is recorded."
            )
        return [*before.get("changes", []), *new]

    def _settings(self) -> dict[str, Any]:
        fixed = {name: getattr(self.args, name) for name in FIXED}
        return json.loads(json.dumps({**fixed, "world_size": self.args.world_size}, default=str))

    # ---- saving ----

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        super()._save(output_dir, state_dict)
        folder = Path(output_dir or self.args.output_dir)
        if self.args.should_save:
            (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle, with the token in it
            changes = getattr(self, "_changes", [])
            content = {"fixed": self._settings(), "changes": changes, "all": self.args.to_dict()}
            write_json(folder / SETTINGS, content, indent=1)
            # what it takes to use the model again
            inputs = InputSettings.from_config(self.args).to_dict()
            write_uncertainty(folder, **self.task.saved_settings(), inputs=inputs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        limit, self.args.save_total_limit = self.args.save_total_limit, None  # nothing goes before this one is whole
        if self.args.should_save:
            remove(folder)  # what an interrupted run left there
        self.accelerator.wait_for_everyone()
        try:
            with writing(f"The checkpoint {folder}"):
                super()._save_checkpoint(model, trial)
                state = self.training_objective.state_dict()
                if state and self.args.should_save:
                    state = {name: value.contiguous().cpu() for name, value in state.items()}
                    save_file(state, folder / OBJECTIVE_STATE)
                self.accelerator.wait_for_everyone()
                if self.args.should_save:
                    write_manifest(folder)
        except UserError:
            remove(folder)
            raise
        finally:
            self.args.save_total_limit = limit
        if self.args.should_save:
            rotate(folder, limit, self.state.best_model_checkpoint)
        self.accelerator.wait_for_everyone()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        with writing(f"The model in {output_dir or self.args.output_dir}"):
            super().save_model(output_dir, _internal_call)

    def save_state(self) -> None:
        with writing(f"The state of the training in {self.args.output_dir}"):
            super().save_state()

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with _loading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)
        path = None if checkpoint is None else Path(checkpoint) / OBJECTIVE_STATE
        if path is not None and path.exists():
            self.training_objective.load_state_dict(load_file(path))

    def _load_scaler(self, checkpoint: str | None) -> None:
        with _loading(checkpoint):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        try:
            super()._load_rng_state(checkpoint)
        except (pickle.UnpicklingError, RuntimeError, ValueError, TypeError, KeyError) as error:
            reason = str(error).splitlines()[0]
            logger.warning(
                f"The state of the random numbers in {checkpoint} was not restored, so what follows is not the same "
                f"as without the interruption: {type(error).__name__}: {reason}"
            )


def _noted(checkpoint: Path) -> Path:
    """Says what cannot be checked of a checkpoint."""
    if is_foreign(checkpoint):
        logger.warning(
            f"{checkpoint} was saved by another trainer: neither its files nor its settings can be checked."
        )
    return checkpoint


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Turns a failed write, most often on a full disk, into an error that says what to do."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if not _is_about_files(error):
            raise
        raise UserError(
            f"{what} could not be saved: {error}. Earlier checkpoints are unchanged; free disk space and continue "
            "with resume_from_checkpoint=true."
        ) from error


@contextmanager
def _loading(checkpoint: str | None) -> Iterator[None]:
    """Where a file of a checkpoint holds more than tensors and numbers: an error that names it. Nothing is run."""
    try:
        yield
    except UNREADABLE as error:
        for path in sorted(Path(str(checkpoint)).glob("*.pt")):
            if not _is_plain(path):
                raise UserError(
                    f"{path} cannot be loaded: it is damaged, or holds more than tensors and numbers, and nothing "
                    "else is loaded. Give resume_from_checkpoint another checkpoint, or delete it and start over."
                ) from error
        raise


def _is_plain(path: Path) -> bool:
    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE:
        return False
    return True


def _is_about_files(error: Exception) -> bool:
    """Whether writing failed: torch and safetensors have no exception of their own for it."""
    texts = ("no space left", "i/o error", "ioerror", "file too large", "pytorchstreamwriter", "inline_container",
             "iostream error")  # fmt: skip
    return isinstance(error, OSError) or any(text in str(error).lower() for text in texts)
