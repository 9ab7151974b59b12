"""clue_hf: a Hugging Face Trainer extension for models whose uncertainty matches their error."""

from __future__ import annotations

from importlib import import_module
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
    "generate_with_uncertainty": "evaluation",
    "mc_predict": "models.mc_dropout",
    "pipeline": "deploy",
    "score_with_uncertainty": "evaluation",
}
_MODULES = (
    "data",
    "deploy",
    "evaluation",
    "experiments",
    "functional",
    "hub",
    "inputs",
    "kernels",
    "metrics",
    "models",
    "objectives",
    "posthoc",
    "predictors",
    "scorers",
    "tasks",
)

if TYPE_CHECKING:
    from .config import CLUEConfig
    from .deploy.pipeline import UncertaintyPipeline, pipeline
    from .errors import UserError
    from .evaluation import (
        ClassificationEvaluator,
        ClassificationReport,
        EvaluationReport,
        RegressionEvaluator,
        RegressionReport,
        UncertaintyEvaluator,
        generate_with_uncertainty,
        score_with_uncertainty,
    )
    from .models.mc_dropout import mc_predict
    from .trainer import CLUETrainer

__all__ = [
    "CLUEConfig",
    "CLUETrainer",
    "ClassificationEvaluator",
    "ClassificationReport",
    "EvaluationReport",
    "RegressionEvaluator",
    "RegressionReport",
    "UncertaintyEvaluator",
    "UncertaintyPipeline",
    "UserError",
    "__version__",
    "generate_with_uncertainty",
    "mc_predict",
    "pipeline",
    "score_with_uncertainty",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'clue_hf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
