"""Matrix products: those of float64, whatever the layout, in slices or not; layers are the same with them."""

import math
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers.pytorch_utils import Conv1D

from clue_hf.kernels import products
from clue_hf.kernels.products import SLICE_SIZE, FastLayers, multiply, write_product


def matrix(rows: int, columns: int, transposed: bool, generator: torch.Generator) -> torch.Tensor:
    size = (columns, rows) if transposed else (rows, columns)
    values = torch.randn(size, generator=generator)
    return values.t() if transposed else values


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.tuples(*[st.booleans()] * 4), st.integers(0, 2**31))
def test_as_in_float64(rows: int, inner: int, columns: int, flags: tuple[bool, ...], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = matrix(rows, inner, flags[0], generator), matrix(inner, columns, flags[1], generator)
    out = matrix(rows, columns, flags[2], generator)
    expected = left.double() @ right.double() + (out.double() if flags[3] else 0)
    returned = write_product(left, right, out, add=flags[3])
    assert returned is out
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(multiply(left, right).double(), left.double() @ right.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(3, 2 * SLICE_SIZE + 5), (2 * SLICE_SIZE + 5, 3), (1, SLICE_SIZE)])
def test_in_slices(rows: int, columns: int, add: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    left, right, out = (matrix(*size, False, generator) for size in ((rows, 7), (7, columns), (rows, columns)))
    expected = left.double() @ right.double() + (out.double() if add else 0)
    torch.testing.assert_close(write_product(left, right, out, add).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_torchs(dtype: torch.dtype) -> None:
    left, right = torch.randn(5, 6).to(dtype), torch.randn(6, 4).to(dtype)
    assert torch.equal(multiply(left, right), left @ right)
    assert torch.equal(
        write_product(left, right, torch.ones(5, 4, dtype=dtype), True),
        torch.addmm(torch.ones(5, 4, dtype=dtype), left, right),
    )


def test_nothing_to_multiply() -> None:
    assert multiply(torch.empty(0, 3), torch.empty(3, 5)).shape == (0, 5)
    assert torch.equal(multiply(torch.empty(2, 0), torch.empty(0, 3)), torch.zeros(2, 3))


LAYERS = {"linear": nn.Linear(6, 5), "without bias": nn.Linear(6, 5, bias=False), "of GPT-2": Conv1D(5, 6)}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The products that were oneDNN's."""
    if not products.IS_FAST:
        pytest.skip("the processor has no AVX-512")
    calls, real = [], products._onednn

    def recorded(rows: torch.Tensor, *rest: object) -> torch.Tensor:
        calls.append(rows.dtype)
        return real(rows, *rest)

    monkeypatch.setattr(products, "_onednn", recorded)
    return calls


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_layers_are_the_same_and_fast(layer: nn.Module, taken: list[torch.dtype]) -> None:
    rows = torch.randn(2, 3, 6)
    with torch.no_grad(), FastLayers():
        fast = layer(rows)
    assert taken == [torch.float32]
    torch.testing.assert_close(fast, layer(rows).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_layers_that_must_stay_as_they_are(layer: nn.Module, taken: list[torch.dtype]) -> None:
    """With gradients, under autocast, and in another precision."""
    rows = torch.randn(2, 3, 6)
    with FastLayers():
        layer(rows).sum().backward()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert layer(rows).dtype == torch.bfloat16
        with torch.no_grad():
            double = layer.double()(rows.double())
            layer.float()
    assert layer.weight.grad is not None
    assert double.dtype == torch.float64
    assert taken == []


WEIGHT = torch.linspace(-1, 1, 30).view(5, 6)
ARGUMENTS = {
    "vector": (torch.ones(6), WEIGHT, torch.arange(5.0)),
    "weight with strides": (torch.ones(2, 6), WEIGHT.t().contiguous().t(), torch.arange(5.0)),
    "repeated rows": (torch.ones(1, 6).expand(3, 6), WEIGHT, torch.arange(5.0)),
    "repeated bias": (torch.ones(3, 6), WEIGHT, torch.tensor([7.0]).expand(5)),
    "bias with strides": (torch.ones(3, 6), WEIGHT, torch.arange(10.0)[::2]),
    "a number as bias": (torch.ones(3, 6), WEIGHT, torch.tensor(7.0)),
    "vector as weight": (torch.ones(3, 6), WEIGHT[0]),
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_all_that_a_layer_may_be_given(arguments: tuple[torch.Tensor, ...]) -> None:
    expected = nn.functional.linear(*arguments)
    with torch.no_grad(), FastLayers():
        torch.testing.assert_close(nn.functional.linear(*arguments), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(5,), (1,), (3, 5), (3, 1), (1, 5)])
def test_all_that_may_be_added(shape: tuple[int, ...]) -> None:
    arguments = torch.arange(1.0, 1 + math.prod(shape)).view(shape), torch.ones(3, 6), WEIGHT.t()
    expected = torch.addmm(*arguments)
    with torch.no_grad(), FastLayers():
        torch.testing.assert_close(torch.addmm(*arguments), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("within", [nullcontext, FastLayers])
def test_errors_are_torchs(within: type) -> None:
    with torch.no_grad(), within(), pytest.raises(RuntimeError, match="(?i)shape|size|dim|inner"):
        nn.functional.linear(torch.randn(2, 3), torch.randn(4, 5))
