"""Options of the commands that are not those of the trainer, the model or the data."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..data.corruptions import CORRUPTIONS
from ..experiments.arguments import parse_severities
from ..metrics.quality import QUALITIES
from ..posthoc import CALIBRATORS
from ..posthoc.rules import EVERY_CALIBRATOR
from ..scorers import SCORERS
from ..settings import known_names


# where the data comes from: what the command line says replaces the other way in the file
DATA_ALTERNATIVES = (
    {"dataset_name", "dataset_config", "dataset_revision"},
    {"train_file", "validation_file", "test_file", "split_column"},
)


@dataclass
class EvaluateArguments:
    """What to evaluate and how. The options that training shares have the same names and meanings."""

    split: str = field(default="test", metadata={"help": "Split of the data to evaluate on."})
    compare: str | None = field(
        default=None, metadata={"help": "Another model, on the same data: adds the paired differences."}
    )
    scorers: list[str] = field(
        default_factory=lambda: list(SCORERS), metadata={"help": "Scorers, separated by spaces or commas."}
    )
    quality: str = field(
        default="bleu",
        metadata={"help": f"How outputs are judged: {', '.join(QUALITIES)}; of several (bleu,chrf) the first leads."},
    )
    source_column: str | None = field(default=None, metadata={"help": "Column of the source text or prompt."})
    target_column: str | None = field(
        default=None, metadata={"help": "Column of the reference text, or of the number to predict."}
    )
    entropy_column: str | None = field(
        default=None, metadata={"help": "Column with the true entropy of a row's targets, where it is known."}
    )
    source_prefix: str | None = field(
        default=None, metadata={"help": "Text put before every source (default: as the model was trained)."}
    )
    max_source_length: int | None = field(
        default=None, metadata={"help": "Truncate sources to this many tokens (default: as trained, or 512)."}
    )
    max_target_length: int | None = field(
        default=None, metadata={"help": "Maximum length of the output in tokens (default: as trained, or 128)."}
    )
    generation_num_beams: int = field(default=1, metadata={"help": "Beams of the output (1: greedy)."})
    do_sample: bool = field(default=False, metadata={"help": "Sample the output instead."})
    temperature: float = field(default=1.0, metadata={"help": "Temperature of a sampled output."})
    top_k: int = field(default=0, metadata={"help": "Sample the output from so many tokens (0: all)."})
    top_p: float = field(default=1.0, metadata={"help": "Sample the output from this mass of tokens."})
    num_samples: int = field(default=10, metadata={"help": "Samples per source, for the scorers that need them."})
    sampling_temperature: float = field(default=1.0, metadata={"help": "Temperature of those samples."})
    sampling_top_k: int = field(default=0, metadata={"help": "Draw those samples from so many tokens (0: all)."})
    sampling_top_p: float = field(default=1.0, metadata={"help": "Draw those samples from this mass of tokens."})
    pmi_source: str = field(default="empty", metadata={"help": "What pmi and cpmi compare with: empty, prefix."})
    mc_samples: int | None = field(
        default=None,
        metadata={
            "help": "Predictions from the mean of so many passes with dropout (default: as trained, or 5 for "
            "classifiers and 20 for regressors with dropout, else 0, one plain pass)."
        },
    )
    compat: str | None = field(
        default=None, metadata={"help": "lm-polygraph: the numbers of LM-Polygraph 0.7.0, for comparison with it."}
    )
    per_device_eval_batch_size: int = field(default=16, metadata={"help": "Sources per batch."})
    resamples: int = field(default=2000, metadata={"help": "Bootstrap resamples of the intervals; 0: none."})
    seed: int = field(default=42, metadata={"help": "Seed of the samples."})
    dtype: str = field(default="float32", metadata={"help": "Precision of the model: float32, bfloat16, float16."})
    num_processes: int = field(default=1, metadata={"help": "Run on so many processes (or use accelerate launch)."})
    report_dir: str | None = field(
        default=None, metadata={"help": "Folder of the report (default: uncertainty_report in the model's folder)."}
    )
    resume: bool = field(default=False, metadata={"help": "Continue the interrupted evaluation in that folder."})
    image_column: str | None = field(default=None, metadata={"help": "Classifiers, regressors: column of the image."})
    label_column: str | None = field(default=None, metadata={"help": "Classifiers: column of the class."})
    calibrator: str | None = field(
        default=None,
        metadata={
            "help": f"Fit on the validation split and report beside: {', '.join(CALIBRATORS)} for classifiers, "
            "quantile for regressors."
        },
    )
    corruption: str | None = field(
        default=None,
        metadata={"help": "Classifiers of images: also evaluate on corrupted images: gaussian_noise,fog."},
    )
    severity: str = field(default="1-5", metadata={"help": "Severities of the corruptions: 1-5, 3, or 1,3,5."})
    ood_split: str | None = field(
        default=None,
        metadata={"help": "Classifiers: split from out of distribution, to be told from the others by uncertainty."},
    )
    ood_file: str | None = field(default=None, metadata={"help": "The same from an npz file of images."})
    min_variance: float | None = field(
        default=None,
        metadata={"help": "Regressors: minimum variance of the standardised target (default: as trained, or 1e-6)."},
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
