"""Uploading a model with its uncertainty: only the files it is made of, no secrets, all of it or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id
from transformers.utils import logging

from ..errors import UserError
from ..models.safety import read_index
from ..models.uncertainty_file import DENSITY_FILE, UNCERTAINTY_FILE, read_uncertainty
from .card import CARD, CardOptions, is_ours, write_card
from .card_model import existing_folder, read_training
from .card_results import REPORT
from .escape import TOKEN, secrets, without_secrets


logger = logging.get_logger(__name__)

#: Files of a model, wherever it is: the model itself, members of an ensemble, a predictor of errors.
MODEL_FILES = (
    "config.json", "generation_config.json", "model.safetensors", "model-*-of-*.safetensors",
    "model.safetensors.index.json", "adapter_config.json", "adapter_model.safetensors",
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "source.spm", "target.spm",
    "chat_template.jinja", "preprocessor_config.json", "processor_config.json", "table_preprocessor.json",
)  # fmt: skip
#: Files beside it, in the model's own folder.
OTHER_FILES = (CARD, UNCERTAINTY_FILE, DENSITY_FILE, "calibrator.json", "LICENSE", "LICENSE.txt", "LICENSE.md")
#: Files of its report, and those that hold the user's data.
REPORT_FILES = ("report.json", "summary.md", "comparison.json", "calibrator.json", "*.png", "*.svg")
EXAMPLE_FILES = ("examples.jsonl", "predictions.jsonl", "report.html")
#: What makes a folder a model: a config and its weights.
WEIGHTS = {
    "config.json": ("model.safetensors", "model.safetensors.index.json"),
    "adapter_config.json": ("adapter_model.safetensors",),
}
RETRY = "Nothing is lost here; run the same command again."


@dataclass(frozen=True)
class Upload:
    """What a push would send."""

    #: Files by their paths in the repository.
    files: dict[str, Path]
    #: Names of what else is in the folder.
    left_out: list[str]

    def listing(self) -> str:
        """The files and their sizes as lines of text."""
        sizes = {name: path.stat().st_size for name, path in self.files.items()}
        lines = [f"  {_size(size):>9}  {name}" for name, size in sizes.items()]
        return "\n".join([*lines, f"  {_size(sum(sizes.values())):>9}  in {len(sizes)} files"])


def collect_files(folder: str | Path, include_examples: bool = False) -> Upload:
    """The files of a model's folder that belong on the Hub; raises where there is no whole model."""
    folder = existing_folder(folder)
    _check_model(folder)
    files = dict(_matching(folder, folder, (*MODEL_FILES, *OTHER_FILES)))
    for part in _parts(folder):
        _check_model(folder / part)
        files.update(_matching(folder, folder / part, MODEL_FILES))
    if (folder / REPORT / "report.json").is_file():
        patterns = (*REPORT_FILES, *(EXAMPLE_FILES if include_examples else ()))
        files.update(_matching(folder, folder / REPORT, patterns))
    top = {name.split("/")[0] for name in files}
    left_out = sorted(path.name for path in folder.iterdir() if path.name not in top)
    return Upload(files, left_out)


def _matching(root: Path, folder: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """The files of a folder whose names are allowed and which really are inside the root."""
    inside = root.resolve()
    for path in sorted(folder.iterdir()):
        allowed = any(fnmatch(path.name, pattern) for pattern in patterns) and not path.name.startswith(".")
        if not allowed or not path.is_file():
            continue
        if not path.resolve().is_relative_to(inside):
            logger.warning(f"{path} is a link out of the folder: it is not uploaded.")
            continue
        yield path.relative_to(root).as_posix(), path


def _parts(folder: Path) -> list[str]:
    """Folders of further models that `uncertainty.json` names."""
    if not (folder / UNCERTAINTY_FILE).is_file():
        return []
    content = read_uncertainty(str(folder))
    predictor = content.get("error_predictor") or {}
    names = [*(content.get("members") or []), *([predictor["folder"]] if "folder" in predictor else [])]
    for name in names:
        inside = isinstance(name, str) and (folder / name).resolve().is_relative_to(folder.resolve())
        if not inside or (folder / name).resolve() == folder.resolve():
            raise UserError(
                f"{folder / UNCERTAINTY_FILE} names {name!r}, which is not a folder inside that of the model."
            )
    return names


def _check_model(folder: Path) -> None:
    configs = [name for name in WEIGHTS if (folder / name).is_file()]
    if not configs:
        raise UserError(f"There is no model in {folder}: it holds neither config.json nor adapter_config.json.")
    if not any((folder / name).is_file() for config in configs for name in WEIGHTS[config]):
        raise UserError(
            f"There are no weights in {folder}: only safetensors are uploaded. Save them with save_pretrained."
        )
    index = folder / "model.safetensors.index.json"
    if index.is_file() and not (folder / "model.safetensors").is_file():
        for shard in sorted(map(str, read_index(index))):
            if not fnmatch(shard, "model-*-of-*.safetensors") or not (folder / shard).is_file():
                raise UserError(f"{index} names {shard!r}, which is not there: save the model again.")


def check_secrets(upload: Upload) -> None:
    """Raises where a file holds a token of the Hub."""
    known = [secret.encode() for secret in secrets()]
    pattern = re.compile(b"|".join([TOKEN.encode(), *map(re.escape, known)]))
    for path in upload.files.values():
        if path.suffix != ".png" and pattern.search(_readable_part(path)):
            raise UserError(
                f"{path} holds what looks like a token of the Hub: take it out. Nothing was uploaded. A token that "
                "others may have seen should be replaced."
            )


def _readable_part(path: Path) -> bytes:
    """The content of a file; of weights only the header, which is text."""
    if path.suffix != ".safetensors":
        return path.read_bytes()
    with open(path, "rb") as file:
        return file.read(min(int.from_bytes(file.read(8), "little"), 100_000_000))


def push_folder(
    folder: str | Path,
    repo_id: str,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    include_examples: bool = False,
    token: str | None = None,
    verbose: bool = False,
) -> CommitInfo:
    """
    Uploads a model with its uncertainty, its card and its report, in one commit: it arrives as a whole or not at all.

    Args:
        folder (`str`):
            The model's folder. A card that is missing is written first; one that somebody wrote or edited is kept.
        repo_id (`str`):
            `owner/name`; the repository is created if needed.
        private (`bool`, *optional*):
            Whether a new repository is private.
        revision (`str`, *optional*):
            Branch, created if needed; by default `main`.
        commit_message (`str`, *optional*):
            Of the commit.
        include_examples (`bool`, *optional*, defaults to `False`):
            Also upload the examples of the report, which hold the rows of the data.
        token (`str`, *optional*):
            By default that of `hf auth login` or `HF_TOKEN`.
        verbose (`bool`, *optional*, defaults to `False`):
            Print what is uploaded.
    """
    folder = Path(folder)
    check_target(repo_id, token)
    collect_files(folder)  # before anything is written into a folder that is no model's
    renew_card(folder, repo_id)
    upload = collect_files(folder, include_examples)
    check_secrets(upload)
    if verbose:
        rest = ", ".join(upload.left_out)
        print(f"To {constants.ENDPOINT}/{repo_id}:\n{upload.listing()}" + (f"\nNot uploaded: {rest}" if rest else ""))
    api = HfApi(token=token)
    repo_id = create_repo(repo_id, private, token)
    with hub_errors(repo_id):
        if private and not api.model_info(repo_id).private:
            raise UserError(f"{repo_id} already exists and is public: make it private on the Hub, or choose another.")
        if revision is not None and revision != constants.DEFAULT_REVISION:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        operations = [CommitOperationAdd(name, str(path)) for name, path in upload.files.items()]
        message = commit_message or f"Upload {folder.resolve().name} with its uncertainty"
        return api.create_commit(repo_id, operations, commit_message=message, revision=revision)


def renew_card(folder: Path, repo_id: str) -> None:
    """Writes the card where there is none, or only one that a program wrote."""
    path = folder / CARD
    if not path.exists():
        write_card(folder, options=CardOptions(model_id=repo_id))
    elif is_ours(path) and ((folder / REPORT / "report.json").is_file() or read_training(folder).is_known):
        write_card(folder, options=replace(CardOptions.read(path), model_id=repo_id))


def create_repo(repo_id: str, private: bool | None, token: str | None) -> str:
    """Creates a repository unless it exists; returns its full name."""
    check_target(repo_id, token)
    with hub_errors(repo_id):
        return HfApi(token=token).create_repo(repo_id, private=private, exist_ok=True).repo_id


def check_target(repo_id: str, token: str | None = None) -> None:
    """Raises where a name cannot be that of a model, or where there is no token, before anything is sent."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"{repo_id!r} is not a valid model name (owner/name): {_first_line(error)}") from error
    if (token or get_token()) is None:
        raise UserError("No Hugging Face token was found: log in with `hf auth login`, or set HF_TOKEN.")


@contextmanager
def hub_errors(repo_id: str) -> Iterator[None]:
    """Turns the many ways in which a push fails into one line that says what to do."""
    try:
        yield
    except UserError:
        raise
    except HfHubHTTPError as error:
        status = error.response.status_code
        failure = f"{status} from the Hub, and nothing was uploaded: {_one_line(error)}."
        raise UserError(f"{_reasons(repo_id).get(status, failure)} {RETRY}") from error
    except OfflineModeIsEnabled as error:
        raise UserError(f"{repo_id} was not uploaded: HF_HUB_OFFLINE is set. {RETRY}") from error
    except HTTPError as error:
        reason = _first_line(error)
        raise UserError(
            f"{repo_id} was not uploaded: the connection to {constants.ENDPOINT} failed ({reason}). {RETRY}"
        ) from error
    except ValueError as error:  # the client's own checks: the head of a card
        raise UserError(f"{repo_id} was not uploaded: {_one_line(error)}") from error


def _reasons(repo_id: str) -> dict[int, str]:
    return {
        401: f"The Hub does not accept the token for {repo_id}: log in with `hf auth login`, or correct HF_TOKEN.",
        403: f"The token has no right to write to {repo_id}: it needs write access there.",
        404: f"There is no model repository {repo_id}, or the token may not see it; a dataset or space of this name "
        "does not take a model.",
        412: f"Somebody else has written to {repo_id} at the same time.",
    }


def _one_line(error: Exception) -> str:
    """What went wrong, without the token that a server may repeat."""
    return without_secrets(" ".join(str(error).split())) or type(error).__name__


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return without_secrets(lines[0]) if lines else type(error).__name__


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def run_in_background(folder: Path, repo_id: str, **settings: Any) -> Any:
    """A push that the training does not wait for; one that fails is warned of."""
    job = HfApi().run_as_future(push_folder, folder, repo_id, **settings)

    def warn(job: Any) -> None:
        if not job.cancelled() and job.exception() is not None:
            logger.warning(f"The training continues, but what it saved was not uploaded: {job.exception()}")

    job.add_done_callback(warn)
    return job
