"""Running a language model without its output layer, where the layer is plain enough to be fused with the loss."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers.utils import ModelOutput

from ..kernels.fused_linear import compute_dtype
from ..models.kind import unwrap


FLOAT16 = "float16 gradients must be scaled before they are made (bf16 works)"


@dataclass
class LowRank:
    """What a LoRA adapter adds to the logits: `scaling * up(down(dropout(hidden)))`."""

    down: nn.Linear
    up: nn.Linear
    dropout: nn.Module
    scaling: float


@dataclass
class LinearHead:
    """The output layer as the fused kernel needs it: logits = hidden @ weight^T + bias, and what adapters add."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    adapters: Sequence[LowRank] = ()

    def low_rank(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """What adapters add to the logits as a product of its own: rows of few features, and their weight."""
        if not self.adapters:
            return None
        rows = []
        for part in self.adapters:
            weight = part.down.weight.clone()  # for the backward, when a sharded one is no longer whole
            rows.append(part.scaling * nn.functional.linear(part.dropout(hidden.to(weight.dtype)), weight))
        return torch.cat(rows, -1), torch.cat([part.up.weight for part in self.adapters], 1)

    @torch.no_grad()
    def merged(self) -> LinearHead:
        """The same head as one weight, for use without gradients."""
        weight = self.weight
        for part in self.adapters:
            weight = weight + (part.scaling * part.up.weight @ part.down.weight).to(weight)
        return LinearHead(weight, self.bias)


def _class_of(module: nn.Module) -> type:
    """The class of a module before `fully_shard`, which puts a class of its own in front of it."""
    own = type(module)
    return own.__bases__[-1] if own.__bases__[0].__name__ == "FSDPModule" else own


def plain_layer(head: Any) -> tuple[nn.Linear | None, list[LowRank]]:
    """The linear layer inside an output layer, and the LoRA adapters on it; `None` where it is something else."""
    wrappers, lora = (sys.modules.get(name) for name in ("peft.utils.other", "peft.tuners.lora.layer"))
    if wrappers is not None and _class_of(head) is wrappers.ModulesToSaveWrapper:
        trained = [] if head.disable_adapters else [name for name in head.active_adapters if name in head._adapters]
        head = head.modules_to_save[trained[0]] if trained else head.original_module
    adapters = []
    if lora is not None and _class_of(head) is lora.Linear:
        active = [] if head.disable_adapters or head.merged else [n for n in head.active_adapters if n in head.lora_A]
        if any(name in head.lora_variant or head.lora_B[name].bias is not None for name in active):
            return None, []  # DoRA and the like
        parts = (head.lora_A, head.lora_B, head.lora_dropout, head.scaling)
        adapters = [LowRank(*(part[name] for part in parts)) for name in active]
        head = head.get_base_layer()
    return (head if _class_of(head) is nn.Linear else None), adapters


def read_head(base: Any) -> LinearHead:
    """
    Weight and bias of the model's output layer, BART's `final_logits_bias` included, with adapters merged into it. For
    use without gradients, where it is not sharded: see [`gathered_head`].
    """
    return _linear_head(base).merged()


def _linear_head(base: Any) -> LinearHead:
    layer, adapters = plain_layer(base.get_output_embeddings())
    extra = getattr(base, "final_logits_bias", None)
    extra = None if extra is None else extra.reshape(-1)
    if layer.bias is not None and extra is not None:  # type: ignore[union-attr]
        return LinearHead(layer.weight, layer.bias + extra, adapters)  # type: ignore[union-attr]
    return LinearHead(layer.weight, extra if layer.bias is None else layer.bias, adapters)  # type: ignore[union-attr]


def vocabulary_of(base: Any) -> int:
    """Number of outputs of the model's output layer, also where ZeRO 3 has left nothing of it on this process."""
    weight = plain_layer(base.get_output_embeddings())[0].weight  # type: ignore[union-attr]
    return getattr(weight, "ds_shape", weight.shape)[0]


def is_sharded(model: nn.Module) -> bool:
    """Whether parameters are divided over processes, so that all must run the model equally often."""
    return any(isinstance(parameter, DTensor) or hasattr(parameter, "ds_id") for parameter in model.parameters())


@contextmanager
def gathered_head(model: nn.Module) -> Iterator[LinearHead]:
    """
    The output layer outside of a forward of the model. Where it is sharded (torch's `fully_shard`, DeepSpeed's ZeRO
    3), its weight is whole for as long as this lasts; gradients find their way to the shards as from a forward.
    """
    base = unwrap(model)
    head = base.get_output_embeddings()
    parameters = list(head.parameters())
    with ExitStack() as stack:
        if partitioned := [parameter for parameter in parameters if hasattr(parameter, "ds_id")]:
            gather = import_module("deepspeed").zero.GatheredParameters(partitioned)
            stack.enter_context(_until_accumulated(gather, partitioned))
        if any(isinstance(parameter, DTensor) for parameter in parameters):
            for owner in _sharding_modules(model, head):
                owner.unshard()
                stack.callback(owner.reshard)
        yield _linear_head(base)


@contextmanager
def _until_accumulated(gather: Any, parameters: list[nn.Parameter]) -> Iterator[None]:
    """
    Enters a context that makes parameters whole, and leaves it when their gradients have come, if any will: autograd
    refuses gradients of another shape than their parameter has at that time.
    """
    waiting: dict[nn.Parameter, Any] = {}

    def accumulated(parameter: nn.Parameter) -> None:
        waiting.pop(parameter).remove()
        if not waiting:
            gather.__exit__(None, None, None)

    gather.__enter__()
    try:
        yield
        if torch.is_grad_enabled():
            trained = (parameter for parameter in parameters if parameter.requires_grad)
            waiting.update({part: part.register_post_accumulate_grad_hook(accumulated) for part in trained})
    finally:
        if not waiting:
            gather.__exit__(None, None, None)


def _sharding_modules(model: nn.Module, head: nn.Module) -> list[Any]:
    """The modules given to `fully_shard` that hold the parameters of the output layer: inside it, or nearest above."""
    from torch.distributed.fsdp import FSDPModule

    modules = dict(model.named_modules())
    path = next(name for name, module in modules.items() if module is head).split(".")
    above = [modules[".".join(path[:length])] for length in range(len(path) - 1, -1, -1)]
    nearest = [module for module in above if isinstance(module, FSDPModule)][:1]
    inside = [module for module in head.modules() if isinstance(module, FSDPModule)]
    return inside if isinstance(head, FSDPModule) else [*inside, *nearest]


class _NoHead(nn.Identity):
    """Stands for the output layer, so that the model returns what comes before it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("bias", None)  # masked language models keep it beside the layer, too


#: One for all forwards: a compiled model is compiled again for every other module that it finds in its place.
NO_HEAD = _NoHead()


@contextmanager
def head_replaced(base: Any, replacement: nn.Module = NO_HEAD) -> Iterator[None]:
    """Puts `replacement` where the output layer is, for one forward: the model then returns what comes before it."""
    head = base.get_output_embeddings()
    extra = getattr(base, "final_logits_bias", None)
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
    layer, _ = plain_layer(head)
    if layer is None:
        return f"the output layer is wrapped or not linear ({type(head).__name__})"
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        return "the output weight is sharded by FullyShardedDataParallel (`fully_shard`, FSDP version 2, works)"
    if not layer.weight.is_floating_point() or len(getattr(layer.weight, "ds_shape", layer.weight.shape)) != 2:
        return "the output weight is quantised"
    if any(_has_hooks(module) for module in head.modules()):
        return "the output layer has hooks"
    parallel = isinstance(model, nn.parallel.DistributedDataParallel) and model.find_unused_parameters
    if parallel and any(parameter.requires_grad for parameter in head.parameters()):
        return "ddp_find_unused_parameters does not see the output weight outside the forward"
    if compute_dtype(layer.weight, layer.weight) == torch.float16:
        return FLOAT16
    # an adapter's wrapper may be what gathers the shards, so that the model inside cannot be called alone
    if not _returns_what_the_head_gives(model if is_sharded(base) else base, layer, inputs):
        return f"{type(base).__name__} changes the logits after its output layer"
    with torch.no_grad(), gathered_head(model) as whole:
        if isinstance(whole.weight, DTensor):
            return "the output weight is divided otherwise than by `fully_shard` (tensor parallelism)"
        return FLOAT16 if compute_dtype(whole.weight, whole.weight) == torch.float16 else None


def _has_hooks(module: nn.Module) -> bool:
    """Whether something is done before or after the layer, but for the gathering of sharded weights."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    own = ("torch.distributed.", "deepspeed.")
    return hasattr(module, "_hf_hook") or any(not (hook.__module__ or "").startswith(own) for hook in hooks)


def _first_example(value: Any) -> Any:
    """The first row of a batch's value, also inside what an encoder returned."""
    if isinstance(value, ModelOutput):
        return type(value)(**{name: _first_example(part) for name, part in value.items()})
    return value[:1] if torch.is_tensor(value) and value.dim() > 0 else value


class _Constant(_NoHead):
    """Stands for the output layer and answers with given logits, repeated for every position."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.logits.to(hidden.dtype).expand(*hidden.shape[:-1], -1)


@torch.no_grad()
def _returns_what_the_head_gives(model: Any, head: nn.Linear, inputs: dict[str, Any]) -> bool:
    """
    Whether the model hands the head's output on as it is, or scaled. Soft-capping and the like would show here: the
    model is run once on one example with a stand-in head whose logits are large and known.
    """
    base = unwrap(model)
    one = {name: _first_example(value) for name, value in inputs.items() if value is not None}
    known = torch.linspace(-64, 64, vocabulary_of(base), device=head.weight.device)
    modes = [(module, module.training) for module in base.modules()]
    try:
        base.eval()
        if any(isinstance(parameter, DTensor) for parameter in base.parameters()):
            model(**one)  # the first forward is when fully_shard looks for its modules: the head must be among them
        with head_replaced(base, _Constant(known)):
            returned = model(**one)["logits"].float()
    finally:
        for module, training in modes:
            module.training = training
    scale = returned[..., -1:] / known[-1]
    unscaled = head.bias is None or bool((scale == 1).all())
    return unscaled and torch.allclose(returned, scale * known.expand_as(returned), rtol=1e-2, atol=1e-2)
