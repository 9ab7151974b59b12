"""
Matrix products in float32 on a processor: with AVX-512 those of oneDNN, since `torch.mm` leaves up to half of a
processor's speed unused where it is not Intel's. Everything else is left to torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


#: Rows or columns of a product of the output layer that are made at once: they stay in the cache.
SLICE_SIZE = 4096
PLAIN = (torch.Tensor, torch.nn.Parameter)
_onednn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
#: Whether this processor has the faster products.
IS_FAST = _onednn is not None and torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """`left @ right` for matrices of one dtype."""
    return write_product(left, right, left.new_empty(len(left), right.shape[1]))


def write_product(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, add: bool = False) -> torch.Tensor:
    """`out = left @ right`, or `out += left @ right`, for matrices of one dtype."""
    if not _suits(out, left, right):
        return out.addmm_(left, right) if add else torch.mm(left, right, out=out)
    rows, columns = out.shape
    for start in range(0, max(rows, columns), SLICE_SIZE):
        part = slice(start, start + SLICE_SIZE)
        if columns > rows:
            place, made = out[:, part], _linear(left, right[:, part].t())
        else:
            place, made = out[part], _linear(left[part], right.t())
        place.add_(made) if add else place.copy_(made)
    return out


class FastLayers(TorchFunctionMode):
    """Within it, the linear layers of a model take the same products, where no gradient is recorded."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.functional.linear and not kwargs:
            rows, weight, bias = args if len(args) == 3 else (*args, None)
        elif func is torch.addmm and len(args) == 3 and not kwargs:  # the layer of GPT-2
            bias, rows, weight = args[0], args[1], args[2].t()
        else:
            return func(*args, **(kwargs or {}))
        given = (rows, weight) if bias is None else (rows, weight, bias)
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or not _suits(*given):
            return func(*args)
        # oneDNN reads a bias as it lies in memory, whatever its strides are
        if weight.ndim != 2 or not (bias is None or (bias.shape == weight.shape[:1] and bias.is_contiguous())):
            return func(*args)
        return _linear(rows, weight, bias)


def _suits(*tensors: torch.Tensor) -> bool:
    return (
        IS_FAST
        and all(type(tensor) in PLAIN and tensor.is_cpu and tensor.dtype == torch.float32 for tensor in tensors)
        and all(tensor.numel() for tensor in tensors)
        and not torch.compiler.is_compiling()  # the compiler chooses for itself
    )


def _linear(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return _onednn(rows, weight, bias, "none", [], "")
