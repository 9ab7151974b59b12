"""Dropout as a source of uncertainty: the same model, a little different in every pass.

In training every row has masks of its own. In evaluation the rows share theirs (`shared_masks.py`), so that a row has
the same prediction in every batch. What comes before the first dropout is the same in all passes. It runs once, and
only the rest, the stochastic tail, runs on all K replicas of a batch, as one batch of K x B rows.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import has_torch_function_unary

from ..errors import UserError
from ..settings import check_minimum
from .inference import inference
from .shared_masks import ACTIVE, SharedMasks


HEADS = ("classifier", "score", "fc", "head")


class Replicas(nn.Module):
    """
    Stands where the stochastic tail of a model begins: repeats the rows for each of the passes. A model registers its
    layers in the order in which they run, with this one before all that is stochastic.
    """

    def __init__(self) -> None:
        super().__init__()
        self.passes = 1

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return repeat_rows(hidden, self.passes)


class DropoutLinear(nn.Linear):
    """A linear layer with dropout before it, and the parameter names of one without."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dropout: float = 0.0, **kwargs: Any):
        super().__init__(in_features, out_features, bias, **kwargs)
        self.dropout, self.passes = float(dropout), 1
        self.starts_tail = True  # until it turns out that rows are chosen after it, as in a causal model

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return super().forward(F.dropout(repeat_rows(hidden, self.passes), self.dropout, self.training))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dropout={self.dropout}"


class PackedDropout(nn.Dropout):
    """
    Dropout whose masks in training on a CPU come from 16 random bits for each element, in a third of the time of
    `nn.Dropout`: where K passes run together, most of theirs goes into masks. The rate is exact to 1/65536.
    """

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        packed = self.training and 0 < self.p < 1 and hidden.device.type == "cpu"
        if not packed or has_torch_function_unary(hidden):  # shared masks take the place of `F.dropout`
            return super().forward(hidden)
        count = hidden.numel()
        bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # type: ignore[arg-type]
        dropped = round(self.p * 2**16)
        keep = hidden.new_empty(hidden.shape, requires_grad=False)  # in its precision: `where` takes ten times as long
        torch.ge(bits.view(torch.int16)[:count].view(hidden.shape), dropped - 2**15, out=keep)
        return hidden * keep.mul_(2**16 / (2**16 - dropped))


def repeat_rows(tensor: torch.Tensor, passes: int) -> torch.Tensor:
    """All rows, then all of them again, `passes` times in total."""
    return tensor if passes == 1 else torch.cat([tensor] * passes)  # keeps channels last, which `repeat` does not


def has_dropout(model: nn.Module) -> bool:
    """Whether anything in the model is dropped in training: by a layer, or by a function with a layer's own rate."""
    return any(_rate_of(module, "dropout") > 0 for module in model.modules())


@contextmanager
def active_dropout(model: nn.Module, seed: int | None = None) -> Iterator[None]:
    """
    Dropout as in training (functional attention dropout too), everything else as in evaluation. All rows of a batch
    share their masks ([`~clue_hf.models.shared_masks.SharedMasks`]), so that the same seed is right for every batch:
    a row then has the same prediction in each of them. Afterwards the modes of all layers and the random generators
    are what they were.

    Args:
        model (`nn.Module`):
            A model with dropout; an error where there is none.
        seed (`int`, *optional*):
            Seed of the masks, and of what else is random; by default a new one each time.
    """
    _check_dropout(model)
    modes = {module: module.training for module in model.modules()}
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type != "cpu"}
    device_type = next(iter(devices)).type if devices else "cuda"
    with torch.random.fork_rng(devices=sorted(devices, key=str), device_type=device_type):
        seed = secrets.randbits(63) if seed is None else seed
        if devices:
            torch.manual_seed(seed)
        else:  # without the milliseconds that it takes to remember the seed for devices
            torch.default_generator.manual_seed(seed)
        model.train()
        for module in modes:
            if isinstance(module, _BatchNorm):
                module.eval()
        try:
            with SharedMasks(seed), _as_written():
                yield
        finally:
            for module, training in modes.items():
                module.training = training


def mc_logits(model: nn.Module, inputs: dict[str, Any], passes: int) -> torch.Tensor:
    """
    The logits of several stochastic passes; gradients flow through all of them. Dropout must be active: the model in
    training (BatchNorm in the tail then takes its statistics over the rows of all passes, in one update), or inside
    [`active_dropout`].

    Args:
        model (`nn.Module`):
            A classifier with dropout, wrapped (DDP ...) or not.
        inputs (`dict`):
            A batch as the model takes it; its labels are left out.
        passes (`int`):
            Number of passes. With 1, the plain pass.

    Returns:
        `torch.Tensor` of shape `(passes, batch, classes)`.
    """
    check_minimum(1, passes=passes)
    inputs = {name: value for name, value in inputs.items() if name != "labels"}
    masks = ACTIVE.get()
    if passes == 1 and masks is None:
        return _logits(model, inputs).unsqueeze(0)
    size = _batch_size(model, inputs)
    with nullcontext() if masks is None else masks.layout(passes, size):
        return _logits(model, inputs).unsqueeze(0) if passes == 1 else _all_logits(model, inputs, passes, size)


def _all_logits(model: nn.Module, inputs: dict[str, Any], passes: int, size: int) -> torch.Tensor:
    """The logits of more than one pass over a batch of a size: (passes, size, outputs)."""
    _check_dropout(model)
    if not any(_is_stochastic(module) for module in model.modules()):
        raise UserError("No dropout is active in evaluation mode: run the passes inside `active_dropout`.")
    starts, masks = _tail_starts(model), ACTIVE.get()
    if starts:
        calls = masks.calls if masks else 0
        with _replicated(starts, passes):
            logits = _logits(model, inputs)
        if len(logits) == passes * size:
            return logits.unflatten(0, (passes, size))
        for module in starts:
            module.starts_tail = False
        if masks:  # the same masks as where this is known
            masks.calls = calls
    repeated = {
        name: repeat_rows(value, passes) if _is_batch(value) and len(value) == size else value
        for name, value in inputs.items()
    }
    return _logits(model, repeated).unflatten(0, (passes, size))


def mc_predict(model: nn.Module, inputs: dict[str, Any], passes: int, seed: int | None = None) -> torch.Tensor:
    """
    The predicted distributions of several passes with dropout active, everything else as in evaluation. Their mean is
    the prediction, and their spread the uncertainty of the model.

    Args:
        model (`nn.Module`):
            A classifier with dropout; its mode does not matter and does not change.
        inputs (`dict`):
            A batch as the model takes it.
        passes (`int`):
            Number of passes.
        seed (`int`, *optional*):
            Seed of the masks, which all rows share: with the same seed a row has the same prediction in every batch.
            By default a new one for each call.

    Returns:
        `torch.Tensor` of shape `(passes, batch, classes)`: probabilities, in at least float32.
    """
    with inference(model), active_dropout(model, seed):
        logits = mc_logits(model, inputs, passes)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)


def add_classifier_dropout(model: Any, rate: float | None = None) -> Any:
    """
    Puts dropout before the classifier, the final linear layer of a model, in place. The names of the parameters stay
    the same, so that the model is saved and loaded as before; the rate is kept in `config.classifier_dropout_rate`.

    Args:
        model (`PreTrainedModel`):
            A classifier, for images or text.
        rate (`float`, *optional*):
            The share that is dropped. By default the one in the config, if there is one: a loaded model gets back
            what it was trained with.

    Returns:
        The model.
    """
    if rate is None:
        rate = getattr(model.config, "classifier_dropout_rate", None)
        if rate is None:
            return model
    if not 0 <= rate < 1:
        raise UserError(f"`dropout` must be at least 0 and below 1, not {rate!r}.")
    name, head = _find_head(model)
    if isinstance(head, DropoutLinear):
        head.dropout = float(rate)
    else:
        dropped = DropoutLinear(head.in_features, head.out_features, head.bias is not None, rate, device="meta")
        dropped.weight, dropped.bias = head.weight, head.bias
        model.set_submodule(name, dropped.train(head.training))
    model.config.classifier_dropout_rate = float(rate)
    return model


def _as_written() -> AbstractContextManager[Any]:
    """Compiled models run as they are written: the compiler would break its graph at every mask."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _check_dropout(model: nn.Module) -> None:
    if not has_dropout(model):
        raise UserError(
            "The model has no dropout, so all its passes would be the same. Set `dropout` (T5: `dropout_rate`) above "
            "0, or leave mc_samples at 0."
        )


def _rate_of(module: nn.Module, word: str) -> float:
    """The largest rate of a dropout layer, or of a layer whose attributes name one; 0 where there is none."""
    named = [rate for name, rate in vars(module).items() if word in name and isinstance(rate, float)]
    return max([*named, module.p] if isinstance(module, _DropoutNd) else named, default=0.0)


def _is_stochastic(module: nn.Module) -> bool:
    """Whether a layer draws random numbers as it stands: dropout, or whole paths or layers that are dropped."""
    return module.training and _rate_of(module, "drop") > 0


def _tail_starts(model: nn.Module) -> list[Any]:
    """Where the rows are to be repeated; nowhere, when the network is stochastic from its first layer on."""
    if isinstance(model, nn.DataParallel):  # gathers the rows device by device, not pass by pass
        return []
    modules = dict(model.named_modules())
    if all(isinstance(module, DropoutLinear) for module in modules.values() if _is_stochastic(module)):
        heads = {name: module for name, module in modules.items() if isinstance(module, DropoutLinear)}
        adapted = any(name.endswith("base_layer") for name in heads)  # the adapter beside it would see the plain rows
        return [] if adapted or not all(head.starts_tail for head in heads.values()) else list(heads.values())
    for module in modules.values():
        if isinstance(module, Replicas):
            return [module]
        if _is_stochastic(module):
            break
    return []


@contextmanager
def _replicated(modules: list[Any], passes: int) -> Iterator[None]:
    for module in modules:
        module.passes = passes
    try:
        yield
    finally:
        for module in modules:
            module.passes = 1


def _logits(model: nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
    outputs = model(**inputs)
    return outputs if isinstance(outputs, torch.Tensor) else outputs["logits"] if "logits" in outputs else outputs[0]


def _is_batch(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0


def _batch_size(model: nn.Module, inputs: dict[str, Any]) -> int:
    main = {str(module.main_input_name) for module in model.modules() if hasattr(module, "main_input_name")}
    sizes = {name: len(value) for name, value in inputs.items() if _is_batch(value)}
    return max(size for name, size in sizes.items() if name in main or not main & set(sizes))


def _find_head(model: Any) -> tuple[str, nn.Linear]:
    """The final linear layer and its name: under one of the usual names, or the only one as wide as the labels."""
    labels = model.config.num_labels
    linear = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == labels
    ]
    usual = [(name, module) for name, module in linear if name.split(".")[0] in HEADS]
    if usual:
        return usual[-1]
    if len(linear) == 1:
        return linear[0]
    raise UserError(
        f"Cannot find the classifier of {type(model).__name__}, its final linear layer, to put dropout before it."
    )
