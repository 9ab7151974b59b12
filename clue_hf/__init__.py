"""clue_hf: a Hugging Face Trainer extension for models whose uncertainty matches their error."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any


__version__ = "0.1.0"

# name -> module; imported on first use, so that `import clue_hf` costs no more than `import torch`
_PUBLIC = {
    "CLUEConfig": "config",
    "CLUETrainer": "trainer",
    "ClassificationEvaluator": "evaluation",
    "ClassificationReport": "evaluation",
    "EvaluationReport": "evaluation",
    "RegressionEvaluator": "evaluation",
    "RegressionReport": "evaluation",
    "UncertaintyEvaluator": "evaluation",
    "UncertaintyPipeline": "deploy",
    "UserError": "errors",
    "calibrate": "deploy",
    "generate_with_uncertainty": "evaluation",
    "mc_predict": "models.mc_dropout",
    "pipeline": "deploy",
    "score_with_uncertainty": "evaluation",
    "stream_with_uncertainty": "evaluation",
}
_MODULES = {module.name for module in iter_modules(__path__)}

if TYPE_CHECKING:
    from .config import CLUEConfig as CLUEConfig
    from .deploy.calibrating import calibrate as calibrate
    from .deploy.pipeline import UncertaintyPipeline as UncertaintyPipeline
    from .deploy.pipeline import pipeline as pipeline
    from .errors import UserError as UserError
    from .evaluation import ClassificationEvaluator as ClassificationEvaluator
    from .evaluation import ClassificationReport as ClassificationReport
    from .evaluation import EvaluationReport as EvaluationReport
    from .evaluation import RegressionEvaluator as RegressionEvaluator
    from .evaluation import RegressionReport as RegressionReport
    from .evaluation import UncertaintyEvaluator as UncertaintyEvaluator
    from .evaluation import generate_with_uncertainty as generate_with_uncertainty
    from .evaluation import score_with_uncertainty as score_with_uncertainty
    from .evaluation import stream_with_uncertainty as stream_with_uncertainty
    from .models.mc_dropout import mc_predict as mc_predict
    from .trainer import CLUETrainer as CLUETrainer

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'clue_hf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
