"""Options of an experiment beside those of the trainer, the model and the data."""

from __future__ import annotations

from dataclasses import dataclass

from ..data.corruptions import SEVERITIES
from ..metrics.quality import QUALITIES
from ..objectives import OBJECTIVES
from ..posthoc.error_predictor import ERROR_PREDICTORS
from ..posthoc.rules import EVERY_CALIBRATOR
from ..scorers import SCORERS
from ..settings import known_names, setting


@dataclass
class RunArguments:
    """What to run beside the training itself."""

    baseline: str | None = setting(None, "Also train this objective from the same start, and compare: ce.")
    quality: str = setting("bleu", f"How generated texts are judged: {', '.join(QUALITIES)}, or none.")
    num_processes: int = setting(1, "Number of processes (or use accelerate launch).")
    eval_uncertainty: bool = setting(
        False, "Log eval_prr_SCORER at every evaluation: how well the uncertainty ranks outputs."
    )
    eval_uncertainty_scorers: list[str] = setting(
        ["msp", "perplexity", "mean_token_entropy"], "Scorers of eval_uncertainty."
    )
    eval_uncertainty_samples: int = setting(200, "Number of validation rows used by eval_uncertainty.")
    accelerate_config: str | None = setting(None, "accelerate config file: configs/accelerate/*.yaml.")
    calibrator: str | None = setting(
        None,
        "Classes and numbers: fit on the validation data after training, and save with the model: "
        f"{', '.join(EVERY_CALIBRATOR)}.",
    )
    ensemble: int = setting(
        1, "Classes and numbers: number of models of an ensemble, trained with the seeds seed, seed + 1 ..."
    )
    error_predictor: str | None = setting(
        None,
        "Classes and numbers: deup trains a second model to predict the errors of the first, on the validation data.",
    )

    def __post_init__(self) -> None:
        if self.quality not in (*QUALITIES, "none"):
            raise ValueError(f"`quality` must be one of {', '.join(QUALITIES)} or none, not {self.quality!r}.")
        self.eval_uncertainty_scorers = known_names("eval_uncertainty_scorers", self.eval_uncertainty_scorers, SCORERS)
        if self.eval_uncertainty and self.quality == "none":
            raise ValueError("`eval_uncertainty` needs a `quality` to judge the outputs by.")
        if self.baseline is not None and self.baseline not in OBJECTIVES:
            raise ValueError(f"`baseline` must be one of {', '.join(OBJECTIVES)}, not {self.baseline!r}.")
        for name in ("num_processes", "ensemble"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}.")
        for name, known in (("calibrator", EVERY_CALIBRATOR), ("error_predictor", ERROR_PREDICTORS)):
            if getattr(self, name) is not None and getattr(self, name) not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}, not {getattr(self, name)!r}.")


def parse_severities(text: str) -> list[int]:
    """Severities from `3`, `1-5` or `1,3,5`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"`severity` must be like 3, 1-5 or 1,3,5, not {text!r}.")
        found += range(int(first), int(last or first) + 1)
    if not found or not set(found) <= set(SEVERITIES):
        raise ValueError(f"`severity` goes from {SEVERITIES[0]} to {SEVERITIES[-1]}, but is {text!r}.")
    return sorted(set(found))
