"""Options of `clue-hf evaluate`, and what several commands share of their options."""

from __future__ import annotations

from dataclasses import dataclass

from ..config import CommandConfig
from ..data.loading import DataArguments
from ..deploy.arguments import InferenceArguments
from ..experiments.arguments import CorruptionArguments, RunArguments
from ..models.arguments import LoraArguments, ModelArguments
from ..posthoc import CALIBRATORS
from ..posthoc.rules import EVERY_CALIBRATOR
from ..scorers import ALL, DEFAULT_SCORERS, SCORERS
from ..settings import check_choice, check_minimum, known_names, setting


@dataclass
class EvaluateArguments(InferenceArguments, CorruptionArguments):
    """What to evaluate and how."""

    split: str = setting("test", "Split of the data to evaluate on.")
    compare: str | None = setting(None, "Another model, on the same data: adds the paired differences.")
    scorers: list[str] = setting(
        list(DEFAULT_SCORERS), f"Scorers, separated by spaces or commas: {', '.join(SCORERS)}; all: all that can run."
    )
    entropy_column: str | None = setting(None, "Column with the true entropy of a row's targets, where it is known.")
    do_sample: bool = setting(False, "Sample the output instead of decoding with beams.")
    temperature: float = setting(1.0, "Temperature of a sampled output.")
    top_k: int = setting(0, "Sample the output from this many of the most probable tokens (0: all).")
    top_p: float = setting(1.0, "Sample the output from the tokens that hold this probability mass.")
    sampling_temperature: float = setting(1.0, "Temperature of the samples for scorers.")
    sampling_top_k: int = setting(0, "Draw those samples from this many of the most probable tokens (0: all).")
    sampling_top_p: float = setting(1.0, "Draw those samples from the tokens that hold this probability mass.")
    pmi_source: str = setting("empty", "Source that pmi and cpmi compare with: empty, prefix.")
    calibration: str | None = setting(
        None, "With --outputs or --endpoint: folder that `clue-hf calibrate --outputs` wrote, for the scorer learned."
    )
    compat: str | None = setting(None, "lm-polygraph: the numbers of LM-Polygraph 0.7.0, for comparison with it.")
    resamples: int = setting(2000, "Number of bootstrap resamples of the intervals; 0: none.")
    num_processes: int = setting(1, "Number of processes (or use accelerate launch).")
    report_dir: str | None = setting(None, "Folder of the report (default: uncertainty_report in the model's folder).")
    resume: bool = setting(False, "Continue the interrupted evaluation in that folder.")
    calibrator: str | None = setting(
        None,
        f"Fit on the validation split and report beside: {', '.join(CALIBRATORS)} for classifiers, "
        "quantile for regressors.",
    )
    ood_split: str | None = setting(None, "Classes: out-of-distribution split, to be detected by its uncertainty.")
    ood_file: str | None = setting(None, "Classes: npz file of out-of-distribution images.")
    min_variance: float | None = setting(
        None, "Numbers: minimum variance of the standardised target (default: as trained, or 1e-6)."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        CorruptionArguments.__post_init__(self)
        if self.calibrator is not None:
            check_choice("calibrator", self.calibrator, EVERY_CALIBRATOR)
        if self.ood_split and self.ood_file:
            raise ValueError("Give `ood_split` or `ood_file`, not both.")
        self.scorers = known_names("scorers", self.scorers, (*SCORERS, ALL))
        check_minimum(0, resamples=self.resamples)
        check_minimum(1, num_processes=self.num_processes)


#: Settings of a sampler that leave the distribution as it is.
NO_WARPING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
#: The options of a training, and those that its YAML file may hold for the other commands.
TRAINING_TYPES = (RunArguments, ModelArguments, LoraArguments, DataArguments, CommandConfig)
FILE_TYPES = (*TRAINING_TYPES, EvaluateArguments)
#: Options of the data that the helps of several commands show.
DATA_OPTIONS = (
    "dataset_name", "dataset_config", "dataset_revision", "train_file", "validation_file", "test_file",
    "source_column", "target_column", "image_column", "label_column", "source_prefix", "max_source_length",
)  # fmt: skip
SPLIT_OPTIONS = (
    "train_split", "validation_split", "test_split", "split_column", "validation_fraction", "test_fraction",
)  # fmt: skip
