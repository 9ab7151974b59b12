"""One experiment: the same start, one or two objectives, a table and what it takes to look closer."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import set_seed
from transformers.utils import logging

from .. import __version__
from ..config import CLUEConfig
from ..data.bad_rows import BadRows
from ..deploy.token_calibration import TOKEN_CALIBRATORS
from ..errors import UserError
from ..files import write_json, write_text
from ..metrics import Measured, format_metric, metric_info
from ..models.arguments import LoraArguments, ModelArguments
from ..models.uncertainty_file import UNCERTAINTY_FILE
from ..objectives import OBJECTIVES, check_suits
from ..posthoc.error_predictor import ERROR_PREDICTORS
from ..posthoc.rules import CALIBRATORS_BY_FAMILY, check_posthoc
from ..tables import markdown_table
from ..trainer import CLUETrainer
from ..training.checkpoints import checkpoints
from ..training.locks import alone
from ..training.saving import writing
from .arguments import RunArguments
from .costs import StepTimer, Times, reset_peak_memory


logger = logging.get_logger(__name__)


#: What a model predicts for some data, as arrays by name.
Outcome = dict[str, np.ndarray]
#: A method of a comparison: the baseline's seeds as one model.
ENSEMBLE = "ensemble"
#: The split that everything after training is fitted on.
VALIDATION = "validation"
#: Methods of a comparison of language models: what calibrates the tokens of a trained model.
TOKEN_METHODS = (*TOKEN_CALIBRATORS[1:], "auto")


class Experiment(ABC):
    """Trains one model per objective from the same start and reports on each."""

    #: What the models give (`text`, `classes` or `numbers`, also the kind of the metrics in their registry), and the
    #: metrics of the table.
    family: ClassVar[str]
    columns: Sequence[str]
    #: What the columns of the table mean, and how to read it in a sentence or two.
    definitions: ClassVar[dict[str, str]]
    reading: ClassVar[str]
    #: Whether the examples are images.
    images: bool = False
    #: What transformers calls the thing that turns raw examples into inputs: a tokenizer, an image processor.
    processing_class: Any

    def __init__(
        self,
        model: ModelArguments,
        lora: LoraArguments,
        config: CLUEConfig,
        splits: Any,
        run: RunArguments,
        report_splits: list[str],
        command: str,
    ) -> None:
        self.model, self.lora, self.config, self.splits, self.arguments = model, lora, config, splits, run
        self.report_splits, self.command = report_splits, command
        self.bad_rows = BadRows()  # what was left out of the data
        self.folder = Path(str(config.output_dir))

    @abstractmethod
    def make_model(self, config: CLUEConfig) -> Any:
        """The model at the start."""

    @abstractmethod
    def reports(self, trainer: CLUETrainer, config: CLUEConfig) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """
        The metrics of a trained model, and of what follows the training, on each split: the name of a row of the
        table, the split, and its numbers.
        """

    def table(self, rows: list[dict[str, Any]]) -> str:
        """The rows as a markdown table."""
        lines = [["objective", "split", *self.headings(self.columns).values(), "time/step"]]
        for row in rows:
            with_alpha = row["alpha"] is not None and row["objective"].split()[0] == "clue"
            cells = [row["objective"] + (f" (alpha {row['alpha']:g})" if with_alpha else ""), row["split"]]
            cells += [
                format_metric({"value": row.get(name)}, name, self.family, "+" if name == "gap" else "")
                for name in self.columns
            ]
            seconds = row["seconds_per_step"]
            lines.append([*cells, "-" if np.isnan(seconds) else f"{1000 * seconds:.0f} ms"])
        return markdown_table(lines)

    def advice(self, rows: list[dict[str, Any]]) -> str:
        """What the last row of the table means for its model, and what to do about it."""
        return ""

    def headings(self, names: Sequence[str]) -> dict[str, str]:
        """The headings of some metrics by their names."""
        return {name: metric_info(name, self.family).heading for name in names}

    def trainer_options(self, config: CLUEConfig) -> dict[str, Any]:
        """More arguments of the trainer."""
        return {}

    # ---- what `clue-hf compare` asks of an experiment ----

    #: What the models are for, as objectives know it.
    task: ClassVar[str]
    #: The objective of plain training.
    plain_objective: ClassVar[str] = "ce"
    #: Which of the [`Times`] a comparison reports.
    timed: ClassVar[str] = "epoch_cost"
    #: Pairs of metrics of which a method can have one at the cost of the other: those of error, and of calibration.
    tradeoffs: ClassVar[Sequence[tuple[str, str]]]
    #: What the rejection curves show.
    curve_label: str

    def check_comparison(self, arguments: Any) -> None:
        """Applies the options of a comparison; raises where they are not for models of this kind."""
        others = (*CALIBRATORS_BY_FAMILY[self.family], ENSEMBLE, *ERROR_PREDICTORS)
        known = TOKEN_METHODS if self.family == "text" else others
        after = [f"{method}+{name}" for method, name in arguments.after if self.family != "text"]
        for name in filter(None, (*arguments.fitted, *after, arguments.error_predictor)):
            if name not in known:
                raise UserError(
                    f"{name!r} is not supported for models that predict {self.family}: use {', '.join(known)}."
                )
        for method in arguments.trained:
            check_suits(method.objective, self.task)
        check_posthoc(self.family, conformal=arguments.conformal)
        if arguments.corruptions and not self.images:
            raise UserError("corruption is for images.")

    def start_name(self, config: CLUEConfig) -> str:
        """What a plain start is called: methods whose names agree share it."""
        return "plain"

    @abstractmethod
    def views(self, trainer: CLUETrainer) -> Iterator[tuple[str, Outcome]]:
        """What a trained model predicts, by the name of what it predicts it for: what a comparison keeps of it."""

    def compared_views(self) -> list[str]:
        """Which of these get a table."""
        return self.report_splits

    @property
    def higher(self) -> list[str]:
        """The metrics that are drawn of which higher is better."""
        names = (name for pair in self.tradeoffs for name in pair)
        return [name for name in names if metric_info(name, self.family).direction > 0]

    @abstractmethod
    def compared_columns(self, view: str) -> dict[str, dict[str, str]]:
        """The tables of a view by their titles, the main one first: metrics, with their headings."""

    @abstractmethod
    def measure(self, view: str, outcomes: Callable[[str], Outcome], resamples: int) -> dict[str, Measured]:
        """Every metric of a method for a view, on all examples and on each resample."""

    def measure_difference(self, measured: dict[str, Measured], baseline: dict[str, Measured]) -> dict[str, Measured]:
        """More metrics of a method, relative to the baseline with the same seed."""
        return {}

    @abstractmethod
    def judged(self, outcome: Outcome) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Every uncertainty of each output, by name, and its quality: what a rejection curve is made of."""

    # ---- what `clue-hf train` does ----

    def run(self, objectives: list[str]) -> list[dict[str, Any]]:
        """
        Trains with each objective and writes `results.json`; no other run writes there then. Returns the rows of the
        table.
        """
        rows: list[dict[str, Any]] = []
        histories: dict[str, list[dict[str, float]]] = {}
        with alone(self.folder, "training", "output_dir"):
            for objective in objectives:
                config = self.config_for(objective, alone=len(objectives) == 1)
                trainer, times = self.train(config)
                histories[objective] = trainer.state.log_history
                for name, split, metrics in self.reports(trainer, config):
                    row = {"objective": name, "alpha": trainer.training_objective.alpha, "split": split}
                    rows.append({**row, **metrics, "seconds_per_step": times.seconds_per_step})
                del trainer  # its model and optimizer must not stay beside the next one
            if self.config.process_index == 0:
                with writing(f"The results in {self.folder}"):
                    self._write(rows, histories)
                self._push(rows, len(objectives) == 1)
        return rows

    def _push(self, rows: list[dict[str, Any]], alone: bool) -> None:
        """Uploads the model of the objective that was asked for, not that of the baseline."""
        if not self.config.push_to_hub:
            return
        from ..hub.push import push_folder

        config = self.config_for(self.config.objective, alone)
        name = config.hub_model_id or Path(str(config.output_dir)).absolute().name
        private, revision, token = config.hub_private_repo, config.hub_revision, config.hub_token
        try:
            push_folder(str(config.output_dir), name, private, revision, "End of training", token=token, verbose=True)
        except UserError as error:
            print("\n" + self.table(rows))
            again = f"clue-hf push {config.output_dir} {name}"
            raise UserError(f"{error} The model is saved; to try again: {again}") from error

    def config_for(self, objective: str, alone: bool) -> CLUEConfig:
        """The settings of one of the trainings; the only one has the output folder for itself."""
        config = copy.copy(self.config)
        if objective != config.objective:
            config.objective, config.label_smoothing_factor = objective, 0.0
            config.check_objective()
            config.push_to_hub = False  # the repository is that of the model that was asked for
        if not alone:
            config.output_dir = str(self.folder / objective)
        return config

    def train(self, config: CLUEConfig, callbacks: Sequence[Any] = ()) -> tuple[CLUETrainer, Times]:
        """A trained and saved model, and how long its steps and epochs took."""
        if config.eval_strategy != "no" and "validation" not in self.splits:
            raise UserError("eval_strategy needs validation data: give a split or file, or set validation_fraction.")
        validates = config.eval_strategy != "no" or OBJECTIVES[config.objective].needs_validation
        set_seed(config.seed)
        trainer = CLUETrainer(
            self.make_model(config),
            config,
            train_dataset=self.splits["train"],
            eval_dataset=self.splits.get("validation") if validates else None,
            processing_class=self.processing_class,
            **self.trainer_options(config),
        )
        reset_peak_memory()
        timer = StepTimer()
        for callback in (timer, *(make() for make in callbacks)):  # after the trainer's own, whose time counts too
            callback.trainer = trainer
            trainer.add_callback(callback)
        if trainer.is_world_process_zero():
            size = trainer.model.num_parameters()
            print(
                f"\n{config.objective}: {size:,} parameters, {len(self.splits['train']):,} training rows", flush=True
            )
        trainer.train(resume_from_checkpoint=_checkpoint(config))
        if trainer.is_world_process_zero():  # what was fitted to another model that was here
            (Path(str(config.output_dir)) / UNCERTAINTY_FILE).unlink(missing_ok=True)
        trainer.save_model(_internal_call=True)  # what is uploaded comes with its results, at the end
        trainer.save_state()
        return trainer, timer.times()

    def _write(self, rows: list[dict[str, Any]], histories: dict[str, Any]) -> None:
        folder = self.folder
        settings = {"model": vars(self.model), "lora": vars(self.lora), "training": self.config.to_dict()}
        results = {
            "command": self.command,
            "rows": rows,
            "definitions": {**self.definitions, "seconds_per_step": "median over the optimizer steps"},
            "history": histories,
            "settings": settings,
            "skipped_rows": self.bad_rows.skipped,
            "versions": {"clue_hf": __version__, "torch": torch.__version__},
        }
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "results.json", results)
        write_text(folder / "results.md", "\n\n".join([self.table(rows), *self.bad_rows.summaries()]) + "\n")
        try:
            from .plots import plot_training_curves
        except ImportError:
            logger.info("Install the extra `plots` for a picture of the training curves.")
        else:
            plot_training_curves(histories, folder / "training_curves.png")


def needs_variance_head(config: CLUEConfig) -> bool:
    """Whether a regressor is to predict a variance itself."""
    return config.variance_head or OBJECTIVES[config.objective].needs_variance


def _checkpoint(config: CLUEConfig) -> str | bool | None:
    """What to resume from: a path, or `True` for the newest checkpoint in the output directory, where there is one."""
    checkpoint = config.resume_from_checkpoint
    if checkpoint is None or str(checkpoint).lower() == "false":
        return None
    if str(checkpoint).lower() != "true":
        return str(checkpoint)
    if checkpoints(str(config.output_dir)):
        return True
    logger.warning(f"There is no checkpoint in {config.output_dir!r} yet: training starts from the beginning.")
    return None
