"""Options of the commands that run a model on the rows of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..data.columns import check_column, dataset_values, verdict_problem
from ..data.loading import DataArguments
from ..errors import UserError
from ..inputs.base import InputSettings
from ..inputs.splits import COLUMNS, EvaluationData, load_evaluation_data
from ..metrics import QUALITIES, quality_names
from ..metrics.judges import COLUMN
from ..models.kind import ModelKind
from ..posthoc import CONFORMAL
from ..posthoc.conformal import COVERAGE, check_coverage
from ..posthoc.rules import CONFORMAL_BY_FAMILY
from ..predictors.loading import load_predictor
from ..processes import process_state
from ..scorers.similarity import WORD_SIMILARITIES
from ..settings import check_choice, check_minimum, setting


@dataclass
class ConformalArguments:
    """Prediction sets of classes and intervals of numbers, with a guarantee."""

    conformal: str | None = setting(
        None,
        f"Conformal prediction: {', '.join(CONFORMAL_BY_FAMILY['classes'])} (sets of classes), "
        f"{', '.join(CONFORMAL_BY_FAMILY['numbers'])} (intervals of numbers).",
    )
    coverage: float | None = setting(
        None, f"Probability that those sets or intervals hold the truth (default: {COVERAGE:g})."
    )

    def __post_init__(self) -> None:
        if self.conformal is not None:
            check_choice("conformal", self.conformal, CONFORMAL)
        if self.coverage is not None:
            check_coverage(self.coverage)
            if self.conformal is None:
                raise ValueError("`coverage` is that of conformal prediction: give `conformal` too.")

    @property
    def chosen_coverage(self) -> float:
        """The coverage asked for, or the usual one."""
        return COVERAGE if self.coverage is None else self.coverage


@dataclass
class InferenceArguments(ConformalArguments):
    """Columns, lengths and passes. What training shares has the same names and meanings there."""

    source_column: str | None = setting(None, "Column of the source text or prompt.")
    target_column: str | None = setting(
        None, "Column of the reference text (or a list of them), or of the number to predict."
    )
    outputs: str | None = setting(
        None, "Instead of MODEL: jsonl file (or .gz) of texts that were generated elsewhere, see docs/uncertainty.md."
    )
    quality: str | None = setting(
        None,
        f"Texts: how outputs are judged: {', '.join(QUALITIES)}, evaluate:NAME_OR_PATH, module:function (default: "
        "bleu). Of several (bleu,chrf) the first is the primary metric.",
    )
    quality_column: str | None = setting(
        None, "Texts: column with a verdict (true, false) or a quality from 0 to 1, which becomes the primary metric."
    )
    image_column: str | None = setting(None, "Classes and numbers: column of the image.")
    label_column: str | None = setting(None, "Classes: column of the class.")
    source_prefix: str | None = setting(None, "Text put before every source (default: as the model was trained).")
    max_source_length: int | None = setting(
        None, "Truncate sources to this many tokens (default: as trained, or 512)."
    )
    max_target_length: int | None = setting(
        None, "Maximum length of the output in tokens (default: as trained, or 128)."
    )
    generation_num_beams: int = setting(1, "Number of beams (1: greedy decoding).")
    num_samples: int = setting(10, "Number of samples per source, for the scorers that need them.")
    similarity: str | None = setting(
        None,
        f"How scorers compare samples: {', '.join(WORD_SIMILARITIES)}, or an embedding or NLI model by Hub id or "
        "folder (default: as calibrated, or each scorer's own).",
    )
    similarity_threshold: float | None = setting(
        None, "Similarity from which on semantic_entropy takes two samples for the same (default: 0.9)."
    )
    mc_samples: int | None = setting(
        None,
        "Number of MC-dropout forward passes to average (default: as trained, or 5 for "
        "classifiers and 20 for regressors with dropout, else 0, one plain pass).",
    )
    per_device_eval_batch_size: int = setting(16, "Number of inputs per batch.")
    seed: int = setting(42, "Seed of the samples.")
    dtype: str = setting("float32", "Precision of the model: float32, bfloat16, float16.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(1, per_device_eval_batch_size=self.per_device_eval_batch_size)
        columns = [COLUMN + self.quality_column] if self.quality_column else []
        self.qualities = [*columns, *quality_names(self.quality)] if self.quality else columns or ["bleu"]

    @property
    def similarity_options(self) -> dict[str, Any]:
        """How texts are compared, where anything is said about it."""
        names = ("similarity", "similarity_threshold")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def load_data(
        self, kind: ModelKind, data: DataArguments, split: str, trained: InputSettings, *ood: str | None
    ) -> EvaluationData:
        """The data for a model of a kind, with the columns of these options, or else those of its training."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        rows = load_evaluation_data(kind, data, split, columns, trained, *ood)
        if self.quality_column:
            if kind.family != "text":
                raise UserError(f"--quality_column is for language models, but this is {kind}.")
            check_column(rows.test.column_names, self.quality_column, "quality_column")
            values = dataset_values(rows.test, self.quality_column, "quality_column")
            problems = {row: f"has {text}" for row, value in enumerate(values) if (text := verdict_problem(value))}
            where = f"The {split} data, quality_column {self.quality_column!r}"
            rows.test = data.bad_rows.keep_good(rows.test, where, problems)
        return rows

    def load_predictor(self, name: str, kind: ModelKind, rows: EvaluationData, **options: Any) -> Any:
        """A model as it was trained, but for what these options say."""
        if kind.modality == "text":
            options.update(source_prefix=self.source_prefix, max_source_length=self.max_source_length)
        if kind.family == "text":
            options.update(num_samples=self.num_samples, max_new_tokens=self.max_target_length)
            options.update(similarity=self.similarity, similarity_threshold=self.similarity_threshold)
        return load_predictor(name, process_state().device, self.dtype, columns=rows.columns, **options)
