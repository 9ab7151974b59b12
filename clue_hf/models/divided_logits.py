"""
A language model whose own logits are divided by a temperature. Logits are linear in what the output layer reads, so
that scaling the last normalisation before it, and whatever is added to the logits, divides them; no layer is added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import UserError
from .kind import unwrap


#: By model types, the last normalisation, which nothing but the output layer reads. It must be of the form
#: `normalised(x) * weight + bias`.
LAST_NORMS: dict[tuple[str, ...], Callable[[Any], Any]] = {
    ("t5", "mt5"): lambda model: model.decoder.final_layer_norm,
    ("bart", "marian"): lambda model: model.model.decoder.layers[-1].final_layer_norm,  # post-norm: of the last layer
    ("mbart", "pegasus"): lambda model: model.model.decoder.layer_norm,
    ("gpt2",): lambda model: model.transformer.ln_f,
    ("llama", "mistral", "qwen2", "qwen3"): lambda model: model.model.norm,
}


def check_divisible(model_type: str) -> None:
    """Raises where it is not known how to divide the logits of models of a type."""
    if model_type.startswith("gemma"):
        raise UserError(
            f"The last normalisation of a {model_type} model multiplies by 1 + weight, which is not supported: a "
            "temperature cannot be baked into it."
        )
    if not any(model_type in types for types in LAST_NORMS):
        known = ", ".join(name for types in LAST_NORMS for name in types)
        raise UserError(
            f"It is not known which weights to scale in a {model_type} model: a temperature can be baked into {known}."
        )


@torch.no_grad()
def divide_logits(model: Any, temperature: float) -> None:
    """Divides the logits of a model by a temperature, in place."""
    base = unwrap(model)
    check_divisible(base.config.model_type)
    norm = next(find for types, find in LAST_NORMS.items() if base.config.model_type in types)(base)
    probe = torch.randn(2, norm.weight.shape[-1], generator=torch.Generator().manual_seed(0)).to(norm.weight)
    expected = norm(probe) / temperature
    added = (getattr(norm, "bias", None), base.get_output_embeddings().bias, getattr(base, "final_logits_bias", None))
    for weight in (norm.weight, *added):
        if weight is not None:
            weight.div_(temperature)
    if not torch.allclose(norm(probe), expected, rtol=1e-4, atol=1e-5):
        raise UserError(
            f"The last normalisation of the model ({type(norm).__name__}) is not of the form normalised(x) * weight + "
            "bias: a temperature cannot be baked into it."
        )
