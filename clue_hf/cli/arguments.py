"""Options of the commands that are not those of the trainer, the model or the data."""

from __future__ import annotations

from dataclasses import dataclass

from ..data.corruptions import CORRUPTIONS
from ..experiments.arguments import parse_severities
from ..metrics.quality import QUALITIES
from ..posthoc import CALIBRATORS
from ..posthoc.rules import EVERY_CALIBRATOR
from ..scorers import SCORERS
from ..settings import known_names, setting


# where the data comes from: what the command line says replaces the other way in the file
DATA_ALTERNATIVES = (
    {"dataset_name", "dataset_config", "dataset_revision"},
    {"train_file", "validation_file", "test_file", "split_column"},
)


@dataclass
class EvaluateArguments:
    """What to evaluate and how. The options that training shares have the same names and meanings."""

    split: str = setting("test", "Split of the data to evaluate on.")
    compare: str | None = setting(None, "Another model, on the same data: adds the paired differences.")
    scorers: list[str] = setting(list(SCORERS), "Scorers, separated by spaces or commas.")
    quality: str = setting(
        "bleu",
        f"How outputs are judged: {', '.join(QUALITIES)}; of several (bleu,chrf) the first is the primary metric.",
    )
    source_column: str | None = setting(None, "Column of the source text or prompt.")
    target_column: str | None = setting(None, "Column of the reference text, or of the number to predict.")
    entropy_column: str | None = setting(None, "Column with the true entropy of a row's targets, where it is known.")
    source_prefix: str | None = setting(None, "Text put before every source (default: as the model was trained).")
    max_source_length: int | None = setting(
        None, "Truncate sources to this many tokens (default: as trained, or 512)."
    )
    max_target_length: int | None = setting(
        None, "Maximum length of the output in tokens (default: as trained, or 128)."
    )
    generation_num_beams: int = setting(1, "Beams of the output (1: greedy).")
    do_sample: bool = setting(False, "Sample the output instead.")
    temperature: float = setting(1.0, "Temperature of a sampled output.")
    top_k: int = setting(0, "Sample the output from this many of the most probable tokens (0: all).")
    top_p: float = setting(1.0, "Sample the output from the tokens that hold this probability mass.")
    num_samples: int = setting(10, "Samples per source, for the scorers that need them.")
    sampling_temperature: float = setting(1.0, "Temperature of those samples.")
    sampling_top_k: int = setting(0, "Draw those samples from this many of the most probable tokens (0: all).")
    sampling_top_p: float = setting(1.0, "Draw those samples from the tokens that hold this probability mass.")
    pmi_source: str = setting("empty", "Source that pmi and cpmi compare with: empty, prefix.")
    mc_samples: int | None = setting(
        None,
        "Number of MC-dropout forward passes to average (default: as trained, or 5 for "
        "classifiers and 20 for regressors with dropout, else 0, one plain pass).",
    )
    compat: str | None = setting(None, "lm-polygraph: the numbers of LM-Polygraph 0.7.0, for comparison with it.")
    per_device_eval_batch_size: int = setting(16, "Sources per batch.")
    resamples: int = setting(2000, "Bootstrap resamples of the intervals; 0: none.")
    seed: int = setting(42, "Seed of the samples.")
    dtype: str = setting("float32", "Precision of the model: float32, bfloat16, float16.")
    num_processes: int = setting(1, "Number of processes (or use accelerate launch).")
    report_dir: str | None = setting(None, "Folder of the report (default: uncertainty_report in the model's folder).")
    resume: bool = setting(False, "Continue the interrupted evaluation in that folder.")
    image_column: str | None = setting(None, "Classifiers, regressors: column of the image.")
    label_column: str | None = setting(None, "Classifiers: column of the class.")
    calibrator: str | None = setting(
        None,
        f"Fit on the validation split and report beside: {', '.join(CALIBRATORS)} for classifiers, "
        "quantile for regressors.",
    )
    corruption: str | None = setting(
        None, "Classifiers of images: also evaluate on corrupted images: gaussian_noise,fog."
    )
    severity: str = setting("1-5", "Severities of the corruptions: 1-5, 3, or 1,3,5.")
    ood_split: str | None = setting(None, "Classifiers: out-of-distribution split, to be detected by its uncertainty.")
    ood_file: str | None = setting(None, "npz file of out-of-distribution images.")
    min_variance: float | None = setting(
        None, "Regressors: minimum variance of the standardised target (default: as trained, or 1e-6)."
    )

    def __post_init__(self) -> None:
        self.corruptions = known_names("corruption", [self.corruption], CORRUPTIONS) if self.corruption else []
        self.severities = parse_severities(self.severity)
        if self.calibrator is not None and self.calibrator not in EVERY_CALIBRATOR:
            raise ValueError(f"`calibrator` must be one of {', '.join(EVERY_CALIBRATOR)}, not {self.calibrator!r}.")
        if self.ood_split and self.ood_file:
            raise ValueError("Give `ood_split` or `ood_file`, not both.")
        self.scorers = known_names("scorers", self.scorers, SCORERS)
        self.qualities = known_names("quality", [self.quality], QUALITIES)
        if self.resamples < 0:
            raise ValueError(f"`resamples` must not be negative, but is {self.resamples}.")
        if self.num_processes < 1:
            raise ValueError(f"`num_processes` must be at least 1, but is {self.num_processes}.")
