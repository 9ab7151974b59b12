"""The largest entries of rows: the same as torch's own argmax and topk, ties included."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clue_hf.kernels.largest import argmax_rows, two_largest


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 30), st.integers(0, 2**31))
def test_as_torch_says(rows: int, columns: int, levels: int, seed: int) -> None:
    values = torch.randint(levels, (rows, columns), generator=torch.Generator().manual_seed(seed)).float()
    first = [row.index(max(row)) for row in values.tolist()]
    assert argmax_rows(values).tolist() == first
    assert torch.equal(two_largest(values), values.topk(min(2, columns), -1).values)


@pytest.mark.parametrize("columns", [2, 7, 4000, 32_128])
def test_with_entries_that_are_masked(columns: int) -> None:
    values = torch.randn(6, columns, generator=torch.Generator().manual_seed(0))
    values[values < 1] = -torch.inf
    assert torch.equal(argmax_rows(values), values.argmax(-1))
    assert torch.equal(two_largest(values), values.topk(2, -1).values)


def test_no_rows() -> None:
    assert argmax_rows(torch.empty(0, 9)).shape == (0,)
    assert two_largest(torch.empty(0, 9)).shape == (0, 2)
