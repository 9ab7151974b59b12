"""`clue-hf predict`: answers for a file of inputs, each with its uncertainty; what is finished survives anything."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from transformers.utils.logging import tqdm

from ..data.columns import CLASSIFIED_TEXTS, KNOWN_IMAGES, KNOWN_PAIRS, check_column, column_values
from ..data.lines import SEPARATORS, file_kind, read_rows
from ..data.tables import NUMBER, check_header
from ..deploy.pipeline import UncertaintyPipeline
from ..errors import UserError
from ..files import ResumableLog
from ..inputs.image_rows import ImageInputs
from ..inputs.table_columns import TableColumn
from ..inputs.table_rows import TableInputs
from ..models.uncertainty_file import read_uncertainty
from ..predictors.loading import read_config
from ..settings import check_minimum, setting
from ..terminal import Result
from ..training.locks import alone
from .arguments import FILE_TYPES
from .parser import ConfigParser


FORMATS = ("jsonl", "csv", "tsv", "txt")
#: What texts are called in files of inputs, looked for in this order when no column is named.
KNOWN_SOURCES = tuple(dict.fromkeys((*(source for source, _ in KNOWN_PAIRS), *CLASSIFIED_TEXTS)))
#: Options that say how to run, not what is answered.
HOW_TO_RUN = ("input", "output", "batch_size", "resume")


@dataclass
class PredictArguments:
    """The file, its columns, and what to tell of each input."""

    input: str | None = setting(None, "jsonl, csv, tsv or txt file (gzipped too), an input per row.")
    output: str | None = setting(None, "jsonl file to write: an answer per row, in order.")
    text_column: str | None = setting(
        None, "Column of the text; dots for nested columns (default: a column with a usual name)."
    )
    image_column: str | None = setting(None, "Column with the path of the image, from the file's folder on.")
    abstain_at_risk: float | None = setting(
        None, "Abstain where needed to keep this risk (one of the calibrated ones)."
    )
    min_quality: float | None = setting(None, "Abstain where needed to keep this quality (1 - risk).")
    level: float | None = setting(
        None, "Numbers: probability of the interval (default: the conformal one where the model has one, or 0.95)."
    )
    return_tokens: bool = setting(False, "Texts: add each token's probability and entropy.")
    scorer: str | None = setting(None, "Texts: the uncertainty (default: as calibrated, or perplexity).")
    mc_samples: int | None = setting(
        None, "Number of MC-dropout forward passes to average (default: as calibrated or trained)."
    )
    max_new_tokens: int | None = setting(
        None, "Texts: maximum length of the output in tokens (default: as calibrated, or 128)."
    )
    dtype: str = setting("float32", "Precision of the model: float32, bfloat16, float16.")
    batch_size: int = setting(16, "Number of inputs per batch.")
    resume: bool = setting(False, "Continue an interrupted run.")

    def __post_init__(self) -> None:
        if not self.input or not self.output:
            raise ValueError("Give `input` and `output`: --input rows.jsonl --output answers.jsonl")
        check_minimum(1, batch_size=self.batch_size)


GROUPS = {
    "Options": ["input", "output", "resume", "batch_size", "dtype", "mc_samples"],
    "Answers": ["abstain_at_risk", "min_quality", "level", "return_tokens", "scorer", "max_new_tokens"],
    "Columns": ["text_column", "image_column"],
}  # fmt: skip

DESCRIPTION = """MODEL is a Hub id or a folder. Answers every row of a file: texts, paths of images, or rows of a
table, as the model takes them. The answers stand in --output, in the same order: generated_text (or label, score and
prediction_set; or mean, std and interval), uncertainty, and, once the model is calibrated, confidence, percentile and
abstain. Models that were calibrated with --conformal have prediction sets, or intervals of that coverage."""

EXAMPLES = """
clue-hf predict out/quickstart/clue --input sources.txt --output answers.jsonl
clue-hf predict out/quickstart/clue --input rows.jsonl --text_column source --output answers.jsonl --resume true
clue-hf predict out/quickstart_digits/clue --input images.csv --output answers.jsonl --abstain_at_risk 0.05"""


def command(argv: Sequence[str]) -> Result:
    """Runs `clue-hf predict`."""
    parser = ConfigParser("clue-hf predict MODEL", (PredictArguments,), DESCRIPTION, EXAMPLES, GROUPS, FILE_TYPES)
    model, arguments = parser.parse(argv)
    arguments.input = _check_input(arguments.input)
    count = sum(1 for _ in read_rows(arguments.input))  # mistakes in the file show before the model is loaded
    if count == 0:
        raise UserError(f"input {arguments.input!r} has no rows.")
    read_config(model)  # says where there is no such model
    output = Path(arguments.output)
    with alone(output, "prediction", "output", output.with_name(f".{output.name}.lock")):
        if output.is_dir():
            raise UserError(f"output {str(output)!r} is a folder.")
        unfinished = output.with_name(f"{output.name}.unfinished")
        if arguments.resume and output.exists() and not unfinished.exists():
            return Result(
                {"output": arguments.output, "rows": count}, f"{arguments.output} is finished: nothing to do."
            )
        try:
            with ResumableLog(output, unfinished, _signature(model, arguments), arguments.resume) as log:
                done = predict_file(model, arguments, log, count)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"finished rows are kept in {unfinished}; --resume true continues.") from None
    with open(output, encoding="utf-8") as file:
        abstained = sum(bool(json.loads(line).get("abstain")) for line in file)
    earlier = f" ({done:,} of them from an earlier run)" if done else ""
    return Result(
        {"output": arguments.output, "rows": count, "from_an_earlier_run": done, "abstained": abstained},
        f"{count:,} answers in {arguments.output}{earlier}.",
        meaning=f"The model abstains from {abstained:,} of them ({abstained / count:.0%})." if abstained else "",
    )


def predict_file(model: str, arguments: PredictArguments, log: ResumableLog, count: int) -> int:
    """Answers the rows that are not in the log, and finishes it; returns how many were."""
    length = {} if arguments.max_new_tokens is None else {"max_new_tokens": arguments.max_new_tokens}
    pipe = UncertaintyPipeline.from_pretrained(
        model, None, arguments.dtype, arguments.scorer, arguments.mc_samples, arguments.batch_size, **length
    )
    options = {name: getattr(arguments, name) for name in ("abstain_at_risk", "min_quality", "level", "return_tokens")}
    done = log.count
    if done > count:
        raise UserError(
            f"{log.path}: row {count} (counted from 0) of the input is gone since it was answered. Delete the file to "
            "start over."
        )
    rows = iter(read_rows(str(arguments.input)))
    for number, row in enumerate(islice(rows, done)):
        log.check(number, row)
    with tqdm(total=count, initial=done, desc="Predicting", unit=" rows") as bar:
        while batch := list(islice(rows, arguments.batch_size)):
            first = log.count
            answers = pipe(_inputs(pipe, batch, first, arguments), first_row=first, **options)
            log.add(batch, [{"row": number, **answer} for number, answer in enumerate(answers, first)])
            bar.update(len(batch))
    log.finish(count)
    return done


def _inputs(pipe: UncertaintyPipeline, rows: list[dict[str, Any]], first_row: int, arguments: PredictArguments) -> Any:
    inputs = getattr(pipe.predictor, "inputs", None)
    if isinstance(inputs, TableInputs):
        is_csv = file_kind(str(arguments.input)) in SEPARATORS
        return [_typed(row, inputs.processing_class.columns) for row in rows] if is_csv else rows
    images = isinstance(inputs, ImageInputs)
    named, option = (arguments.image_column, "image_column") if images else (arguments.text_column, "text_column")
    values = []
    for number, row in enumerate(rows, first_row):
        where = f"Row {number} (counted from 0)"
        column = named or next((name for name in (KNOWN_IMAGES if images else KNOWN_SOURCES) if name in row), None)
        if column is None:
            raise UserError(f"{where} has the columns {', '.join(row)}: cannot infer which to use. Set --{option}.")
        check_column(list(row), column, f"{where}: {option}")
        [value] = column_values({name: [value] for name, value in row.items()}, column, f"{where}: {option}")
        if images and isinstance(value, str):  # a path from the folder of the file on
            value = str(Path(str(arguments.input)).expanduser().parent / Path(value).expanduser())
        values.append(value)
    return values


def _typed(row: dict[str, str], columns: list[TableColumn]) -> dict[str, str]:
    """
    The texts of a csv row as where a whole column is read: true and false are 1 and 0, and a category that is not
    known as it is written (01, 1.0) may be known as a number.
    """
    typed = dict(row)
    for column in columns:
        text = row.get(column.name, "").strip()
        if column.kind == "numeric" and text.lower() in ("true", "false"):
            typed[column.name] = str(int(text.lower() == "true"))
        elif column.kind == "categorical" and text not in column.categories and re.match(NUMBER, text):
            number = float(text)
            typed[column.name] = str(int(number) if number.is_integer() else number)
    return typed


def _signature(model: str, arguments: PredictArguments) -> dict[str, Any]:
    """What the answers depend on."""
    settings = {name: value for name, value in asdict(arguments).items() if name not in HOW_TO_RUN}
    calibration = zlib.crc32(json.dumps(read_uncertainty(model), sort_keys=True).encode())
    return {"model": model, "calibration": calibration, **settings}


def _check_input(path: str) -> str:
    """The file of inputs; raises where there is none, or none that can be read row by row."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"input {path!r} does not exist.")
    if file_kind(file) not in FORMATS:
        raise UserError(f"input {path!r} must be one of {', '.join(FORMATS)} (or one of them with .gz).")
    check_header(str(file), "input")
    return str(file)
