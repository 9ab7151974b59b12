"""How a trainer uploads: with our card, and only the files that a model is made of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from transformers import Trainer
from transformers.trainer_utils import HubStrategy, SaveStrategy
from transformers.utils import logging
from transformers.utils.hub import PushInProgress

from ..errors import UserError
from ..hub.card import CardOptions, is_ours, write_card
from ..hub.card_model import Training, named_settings, read_training
from ..hub.push import collect_files, create_repo, push_folder, run_in_background


logger = logging.get_logger(__name__)

CARD = "README.md"


class PushMixin(Trainer):
    """
    The part of a trainer that talks to the Hub. transformers would upload the whole folder: its `training_args.bin`,
    which holds the token, and the states of the optimizer.
    """

    args: Any
    model: Any
    push_in_progress: Any
    hub_model_id: Any
    _tag_names = ("clue", "uncertainty", "calibration")

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        path = Path(output_dir or self.args.output_dir) / CARD
        card = path.read_bytes() if self.args.should_save and path.is_file() else None
        super()._save(output_dir, state_dict)
        if card is not None:
            path.write_bytes(card)  # PEFT writes into the card that it finds

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        if not self.is_world_process_zero():
            return
        name = self.args.hub_model_id or Path(self.args.output_dir).absolute().name
        self.hub_model_id = create_repo(name, self._private(private), token or self.args.hub_token)
        self.push_in_progress = None

    def _private(self, private: bool | None) -> bool | None:
        return self.args.hub_private_repo if private is None else private

    def create_model_card(
        self,
        language: str | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
    ) -> None:
        """
        Writes the card of the model in `output_dir`: how to ask it for its uncertainty, how it was trained, and what
        a report there says. A card written by hand is kept. `tasks` and `dataset_args` come from the model itself.
        """
        path = Path(self.args.output_dir) / CARD
        if not self.is_world_process_zero() or (path.exists() and not is_ours(path)):
            return
        options = CardOptions(
            self.hub_model_id or model_name,
            license,
            language,
            tuple(_listed(dataset_tags or dataset)),
            tuple(_listed(tags)),
        )
        write_card(path.parent, options=options, training=self._known_training(finetuned_from))

    def _known_training(self, base_model: str | None) -> Any:
        """The training as the trainer knows it, if there is no `results.json`."""
        training = read_training(Path(self.args.output_dir))
        if training.is_known:
            return training
        lines = [line for line in self.state.log_history if "eval_loss" in line]
        last = {name.removeprefix("eval_"): value for name, value in lines[-1].items()} if lines else {}
        objective = self.args.objective
        return Training(
            objective=objective,
            alpha=self.args.alpha if objective == "clue" else None,
            base_model=base_model or getattr(self.model.config, "_name_or_path", None),
            settings=named_settings(self.args.to_dict()),
            rows=[{**last, "objective": objective, "split": "evaluation"}] if last else [],
        )

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Saves the model and uploads it with its card, its `uncertainty.json` and its report."""
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        token = token or self.args.hub_token
        if self.hub_model_id is None:
            self.init_hf_repo(token=token, private=private)
        self.save_model(_internal_call=True)  # on all processes
        if not self.is_world_process_zero():
            return None
        self.create_model_card(**kwargs)
        self._finish_current_push()
        settings: dict[str, Any] = {
            "revision": revision or self.args.hub_revision,
            "commit_message": commit_message,
            "private": self._private(private),
            "token": token,
        }
        folder, name = Path(self.args.output_dir), str(self.hub_model_id)
        if not blocking:
            return run_in_background(folder, name, **settings)
        try:
            return push_folder(folder, name, **settings)
        except UserError as error:
            raise UserError(f"{error} The model is saved; upload it with: clue-hf push {folder} {name}") from error

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Uploads the model of a checkpoint, without what only a resumed training needs."""
        if not self.is_world_process_zero() or self.args.hub_strategy == HubStrategy.END:
            return
        busy: Any = self.push_in_progress
        if not self.args.hub_always_push and busy is not None and not busy.is_done():
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        if self.args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            logger.warning_once(
                f"hub_strategy {self.args.hub_strategy.value!r} uploads the models of the checkpoints; the states of "
                "the optimizer are pickles, and are not uploaded."
            )
        folder = Path(self.args.output_dir)
        try:
            files = collect_files(checkpoint_folder).files
        except UserError as error:
            logger.warning(f"The checkpoint was not uploaded: {error}")
            return
        for name, path in files.items():  # a checkpoint may be deleted while it is uploaded
            if name != CARD:
                shutil.copyfile(path, folder / name)
        self.create_model_card()
        by_steps = self.args.save_strategy == SaveStrategy.STEPS
        when = f"step {self.state.global_step}" if by_steps else f"epoch {int(self.state.epoch or 0)}"
        job = run_in_background(
            folder,
            str(self.hub_model_id),
            revision=self.args.hub_revision,
            commit_message=f"Training in progress, {when}",
            private=self.args.hub_private_repo,
            token=self.args.hub_token,
        )
        if busy is None or busy.is_done():
            self.push_in_progress = PushInProgress([job])  # type: ignore[arg-type]
        else:
            busy.jobs.append(job)


def _listed(names: str | list[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or [])
