"""`clue-hf evaluate` and `calibrate` of texts that were generated elsewhere, or by a server: no model is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..data.columns import text_pairs
from ..data.loading import DataArguments
from ..errors import UserError
from ..evaluation import EvaluationReport, UncertaintyEvaluator
from ..inputs.base import InputSettings
from ..models.kind import ModelKind
from ..models.uncertainty_file import read_uncertainty
from ..posthoc.learned import LearnedScore
from ..posthoc.saved import stored_learned_score
from ..predictors.endpoint import Endpoint, EndpointArguments, write_outputs
from ..scorers import ALL, SCORERS
from .arguments import NO_WARPING, EvaluateArguments


#: The texts of a server, in the folder of the report.
OUTPUTS = "outputs.jsonl"
#: Longest output in tokens, as of models that say nothing else.
LONGEST = 128
#: Rows that are read together.
SHARD = 1024
#: Options that only a model has a use for.
MODEL_OPTIONS = (
    "compare", "compat", "mc_samples", "entropy_column", "calibrator", "conformal", "corruption", "ood_split",
    "ood_file", "num_processes", "token_calibrator", "density_split", "bake", "tolerance",
)  # fmt: skip


def check_outside_options(arguments: Any) -> None:
    """Raises where an option needs a model."""
    for field in fields(arguments):
        default = field.default_factory() if callable(field.default_factory) else field.default
        if field.name in MODEL_OPTIONS and getattr(arguments, field.name) != default:
            raise UserError(f"--{field.name} needs a model: leave it out for texts that were generated elsewhere.")


def evaluate_outside(
    arguments: EvaluateArguments, data: DataArguments, folder: Path, description: dict[str, Any]
) -> EvaluationReport:
    """The report on a file of outputs."""
    evaluator = UncertaintyEvaluator(
        scorers=arguments.scorers,
        quality=arguments.qualities,
        resamples=arguments.resamples,
        max_rows=data.max_eval_samples,
        learned_score=_learned_score(arguments.calibration),
        **arguments.similarity_options,
    )
    columns = (arguments.source_column, arguments.target_column)
    report = evaluator.evaluate_outputs(
        str(arguments.outputs), *columns, folder, arguments.resume, description, data.bad_rows
    )
    if skipped := data.bad_rows.summary("outputs"):
        report.description["data"] += f" ({skipped})"
    return report


def ask_endpoint(arguments: EvaluateArguments, data: DataArguments, server: EndpointArguments, folder: Path) -> str:
    """The file of the texts that a server wrote for the rows of a split."""
    for name, allowed in (("outputs", None), ("quality_column", None), ("generation_num_beams", 1)):
        if getattr(arguments, name) != allowed:
            raise UserError(f"--{name} is not for texts of a server: leave it out.")
    rows = arguments.load_data(ModelKind("causal", "text"), data, arguments.split, InputSettings())
    columns = (rows.columns["source_column"], rows.columns["target_column"])
    # names of their own are those of the data, not of the file that is made of it
    arguments.source_column = arguments.target_column = None
    limit, seed = {"max_tokens": arguments.max_target_length or LONGEST}, {"seed": arguments.seed}
    warping = {name: getattr(arguments, name) for name in NO_WARPING} if arguments.do_sample else {"temperature": 0.0}
    sampling = {name: getattr(arguments, f"sampling_{name}") for name in NO_WARPING}
    learned = _learned_score(arguments.calibration)
    names = [*(SCORERS if ALL in arguments.scorers else arguments.scorers), *(learned.used_scores if learned else ())]
    needs_samples = any("samples" in SCORERS[name].needs for name in names if name != "learned")
    endpoint = Endpoint(
        server,
        {**limit, **seed, **_without_defaults(warping)},
        {**limit, **seed, **_without_defaults(sampling)},
        arguments.num_samples if needs_samples else 0,
        arguments.source_prefix or "",
    )
    path = folder / OUTPUTS
    skip = data.bad_rows.policy == "skip"
    write_outputs(endpoint, _pairs(rows.test, *columns), len(rows.test), path, arguments.resume, skip)
    return str(path)


def _learned_score(folder: str | None) -> LearnedScore | None:
    """The learned score that was fitted to such texts."""
    if folder is None:
        return None
    learned = stored_learned_score(folder, read_uncertainty(folder))
    if learned is None:
        raise UserError(
            f"There is no learned score in --calibration {folder}: clue-hf calibrate --outputs FILE --scorer learned "
            "writes one."
        )
    return learned


def _without_defaults(warping: dict[str, Any]) -> dict[str, Any]:
    """Without a top-k and top-p that leave all tokens, which not every server knows."""
    return {name: value for name, value in warping.items() if name == "temperature" or value != NO_WARPING[name]}


def _pairs(dataset: Any, source: str | None, target: str | None) -> Iterator[dict[str, Any]]:
    for start in range(0, len(dataset), SHARD):
        pairs = text_pairs(dataset[start : start + SHARD], source, target, start)
        for text, references in zip(*pairs, strict=True):
            yield {"source": text, "references": references}
