"""Running a language model without its output layer, where the layer is plain enough to be fused with the loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers.utils import ModelOutput

from ..kernels.fused_linear import compute_dtype
from ..models.kind import unwrap


@dataclass
class LinearHead:
    """The output layer as the fused kernel needs it: logits = hidden @ weight^T + bias."""

    weight: torch.Tensor
    bias: torch.Tensor | None


def read_head(base: Any) -> LinearHead:
    """Weight and bias of the model's output layer, BART's `final_logits_bias` included."""
    head = base.get_output_embeddings()
    extra = getattr(base, "final_logits_bias", None)
    extra = None if extra is None else extra.reshape(-1)
    if head.bias is not None and extra is not None:
        return LinearHead(head.weight, head.bias + extra)
    return LinearHead(head.weight, extra if head.bias is None else head.bias)


@contextmanager
def head_replaced(base: Any, replacement: nn.Module) -> Iterator[None]:
    """Puts `replacement` where the output layer is, for one forward: the model then returns what comes before it."""
    head = base.get_output_embeddings()
    extra = getattr(base, "final_logits_bias", None)
    replacement.register_parameter("bias", None)  # masked language models keep it beside the layer, too
    try:
        base.set_output_embeddings(replacement)
        if extra is not None:
            base.final_logits_bias = extra.new_zeros(1)
        yield
    finally:
        base.set_output_embeddings(head)
        if extra is not None:
            base.final_logits_bias = extra


def why_not_fusable(model: nn.Module, inputs: dict[str, Any]) -> str | None:
    """The reason why the output layer cannot be fused with the loss, or `None` if it can."""
    base = unwrap(model)
    head = base.get_output_embeddings() if hasattr(base, "get_output_embeddings") else None
    if head is None:
        return f"{type(base).__name__} has no output embeddings"
    if type(head) is not nn.Linear:
        return f"the output layer is wrapped or not linear ({type(head).__name__})"
    if any(isinstance(parameter, DTensor) for parameter in base.parameters()) or hasattr(head.weight, "ds_id"):
        return "the output weight is sharded"
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        return "the output weight is sharded"
    if not head.weight.is_floating_point() or head.weight.dim() != 2:
        return "the output weight is quantised"
    if compute_dtype(head.weight, head.weight) == torch.float16:
        return "float16 gradients must be scaled before they are made (bf16 works)"
    if head._forward_hooks or head._forward_pre_hooks or hasattr(head, "_hf_hook"):
        return "the output layer has hooks"
    parallel = isinstance(model, nn.parallel.DistributedDataParallel) and model.find_unused_parameters
    if parallel and head.weight.requires_grad:
        return "ddp_find_unused_parameters does not see the output weight outside the forward"
    if not _returns_what_the_head_gives(base, head, inputs):
        return f"{type(base).__name__} changes the logits after its output layer"
    return None


def _first_example(value: Any) -> Any:
    """The first row of a batch's value, also inside what an encoder returned."""
    if isinstance(value, ModelOutput):
        return type(value)(**{name: _first_example(part) for name, part in value.items()})
    return value[:1] if torch.is_tensor(value) and value.dim() > 0 else value


class _Constant(nn.Module):
    """Stands for the output layer and answers with given logits, repeated for every position."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.logits.to(hidden.dtype).expand(*hidden.shape[:-1], -1)


@torch.no_grad()
def _returns_what_the_head_gives(base: Any, head: nn.Linear, inputs: dict[str, Any]) -> bool:
    """
    Whether the model hands the head's output on as it is, or scaled. Soft-capping and the like would show here: the
    model is run once on one example with a stand-in head whose logits are large and known.
    """
    one = {name: _first_example(value) for name, value in inputs.items() if value is not None}
    known = torch.linspace(-64, 64, head.weight.shape[0], device=head.weight.device)
    modes = [(module, module.training) for module in base.modules()]
    try:
        base.eval()
        with head_replaced(base, _Constant(known)):
            returned = base(**one)["logits"].float()
    finally:
        for module, training in modes:
            module.training = training
    scale = returned[..., -1:] / known[-1]
    unscaled = head.bias is None or bool((scale == 1).all())
    return unscaled and torch.allclose(returned, scale * known.expand_as(returned), rtol=1e-2, atol=1e-2)
