"""Options of an experiment beside those of the trainer, the model and the data."""

from __future__ import annotations

from dataclasses import dataclass

from ..data.corruptions import CORRUPTIONS, SEVERITIES
from ..deploy.token_calibration import TOKEN_CALIBRATORS
from ..metrics.quality import QUALITIES
from ..objectives import OBJECTIVES
from ..posthoc.error_predictor import ERROR_PREDICTORS
from ..posthoc.rules import EVERY_CALIBRATOR
from ..scorers import unfitted_names
from ..settings import check_choice, check_minimum, known_names, setting


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
    accelerate_config: str | None = setting(
        None, "accelerate config: a file, or accelerate/ddp, accelerate/fsdp, accelerate/deepspeed_zero2."
    )
    calibrator: str | None = setting(
        None,
        "Classes and numbers: fit on the validation data after training, and save with the model: "
        f"{', '.join(EVERY_CALIBRATOR)}.",
    )
    token_calibrator: str = setting(
        "none",
        f"Texts: calibrate the probabilities of the tokens: {', '.join(TOKEN_CALIBRATORS)}, auto. Fitted on the "
        "validation data after training, and saved with the model; outputs stay as they are.",
    )
    ensemble: int = setting(
        1, "Classes and numbers: number of models of an ensemble, trained with the seeds seed, seed + 1 ..."
    )
    error_predictor: str | None = setting(
        None,
        "Classes and numbers: deup trains a second model to predict the errors of the first, on the validation data.",
    )

    def __post_init__(self) -> None:
        check_choice("quality", self.quality, (*QUALITIES, "none"))
        names = known_names("eval_uncertainty_scorers", self.eval_uncertainty_scorers, unfitted_names())
        self.eval_uncertainty_scorers = names
        if self.eval_uncertainty and self.quality == "none":
            raise ValueError("`eval_uncertainty` needs a `quality` to judge the outputs by.")
        check_choice("token_calibrator", self.token_calibrator, (*TOKEN_CALIBRATORS, "auto"))
        check_minimum(1, num_processes=self.num_processes, ensemble=self.ensemble)
        choices = {"baseline": OBJECTIVES, "calibrator": EVERY_CALIBRATOR, "error_predictor": ERROR_PREDICTORS}
        for name, known in choices.items():
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), known)


@dataclass
class CorruptionArguments:
    """Corrupted copies of the images to evaluate on."""

    corruption: str | None = setting(None, "Images: also evaluate on corrupted images: gaussian_noise,fog.")
    severity: str = setting("1-5", "Severities of the corruptions: 1-5, 3, or 1,3,5.")

    def __post_init__(self) -> None:
        self.corruptions = known_names("corruption", [self.corruption], CORRUPTIONS) if self.corruption else []
        self.severities = parse_severities(self.severity)


def parse_severities(text: str) -> list[int]:
    """Severities from `3`, `1-5` or `1,3,5`."""
    severities: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"`severity` must be like 3, 1-5 or 1,3,5, not {text!r}.")
        severities.update(range(int(first), int(last or first) + 1))
    if not severities or not severities <= set(SEVERITIES):
        raise ValueError(f"`severity` goes from {SEVERITIES[0]} to {SEVERITIES[-1]}, but is {text!r}.")
    return sorted(severities)
