"""Any objective of row statistics on top of a linear head, without ever holding `[tokens, vocabulary]` logits.

The rows are taken in chunks. For each chunk the logits are made, reduced to the error and entropy of each row, turned
*in place* into the gradient of the loss, and used up at once for the gradients of the hidden states and the weight:

    dL/dz = a (p - onehot(y)) - b p (ln p + H)          a = dL/d error,  b = dL/d entropy

`a` and `b` come from autograd on the row scalars, so every objective that is a function of (error, entropy) works. An
objective may ask for more statistics, whose derivatives add

    2 c p (p - S)                   c by the sum of squared probabilities S
    d (onehot(argmax) - p)          d by the largest log-probability
    f (1 / vocabulary - p)          f by the mean log-probability
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..functional import ROW_STATISTICS, check_labels
from ..settings import check_choice
from .largest import argmax_rows
from .products import multiply, write_product


Objective = Callable[..., torch.Tensor]
#: From rows that the output layer is applied to (or `None`) and their logits to what divides the logits of each.
Temperature = Callable[[torch.Tensor | None, torch.Tensor], torch.Tensor]

# Rows per matrix product: as fast as one large product, at an eighth of the logits for 2,048 rows.
CHUNK_SIZE = 256
# Logits per elementwise block on the CPU. Several passes over 1 MiB stay in the cache; over a whole chunk they do not.
BLOCK_ELEMENTS = 2**18
# Stands for ln 0: a column at -inf keeps probability 0, and 0 * FLOOR is 0 where 0 * -inf would be NaN.
FLOOR = -1e30
# The same where logits are divided by a temperature: finite beside the least exponential that is not subnormal.
DIVIDED_FLOOR = -1e4
# On a processor powers of 2 take half the time of powers of e. The least one that is not a subnormal number: with
# those, arithmetic is 60 times as slow.
LOG2_E, MIN_EXPONENT = math.log2(math.e), -126.0
SUM_SQUARED, MAX_LOG, MEAN_LOG = ROW_STATISTICS


def fused_linear_objective(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    objective: Objective,
    *,
    bias: torch.Tensor | None = None,
    low_rank: tuple[torch.Tensor, torch.Tensor] | None = None,
    ignore_index: int = -100,
    num_items: torch.Tensor | float | None = None,
    chunk_size: int = CHUNK_SIZE,
    segments: torch.Tensor | None = None,
    row_statistics: Sequence[str] = (),
    return_stats: bool = False,
    return_items: bool = False,
    return_correct: bool = False,
) -> Any:
    """
    The loss `sum_i objective(error_i, entropy_i) / num_items` of a linear head, gradients included.

    Args:
        hidden (`torch.Tensor` of shape `(..., features)`):
            What the head is applied to.
        weight (`torch.Tensor` of shape `(vocabulary, features)`):
            The head's weight. No gradient is computed for it when it is frozen.
        labels (`torch.Tensor` of shape `(...)`):
            Target ids. Rows with `ignore_index` are dropped before anything is computed.
        objective (`Callable`):
            `(error, uncertainty) -> loss` per item, differentiable. With `segments` it is called as
            `(error, uncertainty, segments)`.
        low_rank (`tuple` of `torch.Tensor` of shapes `(..., rank)` and `(vocabulary, rank)`, *optional*):
            Rows and a weight whose product is added to the logits: what an adapter on the head does. With a frozen
            `weight` no gradient of the size of the head is made.
        num_items (`torch.Tensor` or `float`, *optional*):
            What the sum is divided by; by default the number of labels that are not ignored.
        segments (`torch.Tensor` of shape `(...)`, *optional*):
            Ascending sequence index of each row, for objectives of whole sequences: rows of one segment are never
            split over chunks.
        row_statistics (`Sequence[str]`, *optional*):
            More that `objective` needs of each row, by their names in
            [`~clue_hf.functional.ROW_STATISTICS`]: it is given them as keywords.
        return_stats (`bool`, *optional*):
            Also return the sums of error, uncertainty and squared gap, as one detached tensor of three.
        return_items (`bool`, *optional*):
            Also return the detached error and uncertainty of each kept row, and its `row_statistics`.
        return_correct (`bool`, *optional*):
            Also return whether the label of each kept row has the largest logit.

    Returns:
        The scalar loss, followed by what was asked for. It can be differentiated once, not twice.
    """
    kept = labels.reshape(-1) != ignore_index
    rows = hidden.reshape(-1, hidden.shape[-1])[kept]
    targets = labels.reshape(-1)[kept]
    check_targets(targets, weight.shape[0])
    segments = None if segments is None else segments.reshape(-1)[kept]
    for name in row_statistics:
        check_choice("row_statistics", name, ROW_STATISTICS)
    if num_items is None:
        num_items = max(len(rows), 1)
    grad = torch.is_grad_enabled()
    low_rows, low_weight = low_rank or (None, None)
    parts = (hidden, weight, bias, low_rows, low_weight)
    needs = tuple(grad and part is not None and part.requires_grad for part in parts)
    if low_rows is not None:
        low_rows = low_rows.reshape(-1, low_rows.shape[-1])[kept]
    settings = (objective, tuple(row_statistics), num_items, chunk_size, needs, compute_dtype(rows, weight))
    tensors = (rows, weight, bias, low_rows, low_weight, targets, segments)
    loss, items, correct = _FusedLinear.apply(*tensors, *settings)
    if not (return_stats or return_items or return_correct):
        return loss
    error, uncertainty = items[:2]
    stats = torch.stack([error.sum(), uncertainty.sum(), ((error - uncertainty) ** 2).sum()])
    returned = (*((stats,) if return_stats else ()), *(items if return_items else ()))
    return (loss, *returned, *((correct,) if return_correct else ()))


class _FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *arguments):  # type: ignore[override]
        loss, items, ctx.gradients = _loss_and_gradients(*arguments)
        tensors, ctx.settings = arguments[:7], arguments[7:]
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(*items)
        return (loss, *items)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_loss, *_unused):  # type: ignore[override]
        # handed over, not copied: a second backward through a retained graph computes them again
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            gradients = _loss_and_gradients(*ctx.saved_tensors, *ctx.settings)[-1]
        scaled = (None if gradient is None else gradient.mul_(grad_loss) for gradient in gradients)
        return (*scaled, None, None, *(None for _ in ctx.settings))


class _Product:
    """Rows times a weight, which make logits or are added to them, and the gradients of both where needed."""

    def __init__(
        self, rows: torch.Tensor, weight: torch.Tensor, needs_rows: bool, needs_weight: bool, dtype: torch.dtype
    ) -> None:
        self.rows, self.weight, self.head, self.needs_weight = rows, weight, weight.to(dtype), needs_weight
        self.grad_rows = torch.empty_like(rows) if needs_rows else None
        self.grad_weight: torch.Tensor | None = None

    def differentiate(self, part: slice, gradient: torch.Tensor) -> None:
        """Adds what the gradient of the logits of some rows gives."""
        if self.grad_rows is not None:
            self.grad_rows[part] = multiply(gradient, self.head)
        if self.needs_weight:
            rows = self.rows[part].to(gradient.dtype)
            self.grad_weight = _add_product(self.grad_weight, gradient, rows, self.weight.dtype)

    def gradients(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        if self.needs_weight and self.grad_weight is None:
            self.grad_weight = torch.zeros_like(self.weight)
        return self.grad_rows, self.grad_weight


def _loss_and_gradients(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    low_rows: torch.Tensor | None,
    low_weight: torch.Tensor | None,
    labels: torch.Tensor,
    segments: torch.Tensor | None,
    objective: Objective,
    row_statistics: tuple[str, ...],
    num_items: Any,
    chunk_size: int,
    needs: tuple[bool, ...],
    dtype: torch.dtype,
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor | None, ...]]:
    """
    The loss; error, uncertainty and further statistics of each row, and whether its label has the largest logit; and
    the gradients of the first five arguments where needed.
    """
    precision = torch.promote_types(dtype, torch.float32)
    loss = torch.zeros((), dtype=precision, device=rows.device)
    items = torch.empty(2 + len(row_statistics), len(rows), dtype=precision, device=rows.device)
    correct = torch.empty(len(rows), dtype=torch.bool, device=rows.device)
    products = [_Product(rows, weight, *needs[:2], dtype)]  # type: ignore[call-arg, arg-type]
    if low_rows is not None and low_weight is not None:
        products.append(_Product(low_rows, low_weight, *needs[3:], dtype))  # type: ignore[call-arg, arg-type]
    grad_bias = torch.zeros_like(bias, dtype=precision) if bias is not None and needs[2] else None
    shift = None if bias is None else bias.to(dtype)
    chunks = list(_chunks(len(rows), chunk_size, segments))
    longest = max((stop - start for start, stop in chunks), default=0)
    buffer = rows.new_empty(longest, len(weight), dtype=dtype)  # one for all chunks: fresh pages cost time

    for part in (slice(*chunk) for chunk in chunks):
        targets = labels[part]
        logits = linear_logits(rows[part].to(dtype), products[0].head, shift, buffer)
        for low in products[1:]:
            logits.addmm_(low.rows[part].to(precision), low.head.to(precision).t())
        log_sum, reduced = reduce_rows(logits, targets, row_statistics)
        items[:, part] = torch.stack(list(reduced.values()))
        correct[part] = reduced["error"] == log_sum  # the largest logit was shifted to 0
        extra = () if segments is None else (segments[part],)
        if not any(needs):
            loss += _loss_of(objective, reduced, extra, num_items)
            continue
        chunk_loss, derivatives = _derivatives(objective, reduced, extra, num_items)
        loss += chunk_loss
        _gradient_of_logits_(logits, targets, log_sum, reduced, derivatives)
        if grad_bias is not None:
            grad_bias += logits.sum(0)
        gradient = logits.to(dtype)
        for product in products:
            product.differentiate(part, gradient)
    if bias is not None and grad_bias is not None:
        grad_bias = grad_bias.to(bias.dtype)
    low_gradients = products[1].gradients() if len(products) > 1 else (None, None)
    return loss, (items, correct), (*products[0].gradients(), grad_bias, *low_gradients)


def _chunks(num_rows: int, chunk_size: int, segments: torch.Tensor | None) -> Iterator[tuple[int, int]]:
    """Borders of consecutive chunks of about `chunk_size` rows that keep the rows of a segment together."""
    if segments is None:
        borders = [*range(chunk_size, num_rows, chunk_size), num_rows]
    else:
        borders = torch.unique_consecutive(segments, return_counts=True)[1].cumsum(0).tolist()
    start = 0
    for index, border in enumerate(borders):
        is_last = index + 1 == len(borders)
        if border > start and (is_last or borders[index + 1] - start > chunk_size):
            yield start, border
            start = border


def linear_logits(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, buffer: torch.Tensor
) -> torch.Tensor:
    logits = write_product(rows, weight.t(), buffer[: len(rows)])
    if bias is not None:
        logits += bias
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def shift_(logits: torch.Tensor) -> torch.Tensor:
    """Shifts the logits of some rows in place, so that the largest of each is 0; none is below `DIVIDED_FLOOR`."""
    return logits.sub_(logits.amax(-1, keepdim=True)).clamp_(min=DIVIDED_FLOOR)


def divided(logits: torch.Tensor, hidden: torch.Tensor | None, temperature: Temperature | None) -> torch.Tensor:
    """The logits of some rows divided, in place, by the temperature of each, where there is one."""
    for block in row_blocks(logits) if temperature is not None else ():
        part = None if hidden is None else hidden[block]
        logits[block].mul_(1 / temperature(part, logits[block]).unsqueeze(1))  # type: ignore[misc]
    return logits


def row_blocks(logits: torch.Tensor) -> Iterator[slice]:
    """Rows that are worked on together: on a processor few enough for its cache."""
    rows = len(logits) if logits.is_cuda else max(1, BLOCK_ELEMENTS // logits.shape[1])
    return (slice(start, start + rows) for start in range(0, len(logits), max(rows, 1)))


def reduce_rows(
    logits: torch.Tensor, labels: torch.Tensor, row_statistics: Sequence[str] = ()
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """
    Log-sum-exp of each row, and its error, entropy and further statistics by name. Shifts the logits in place so that
    the largest of a row is 0.
    """
    total, weighted, squared, mean = logits.new_empty(4, len(logits))
    for block in row_blocks(logits):
        shifted = logits[block].sub_(logits[block].amax(-1, keepdim=True))
        if MEAN_LOG in row_statistics:
            mean[block] = shifted.mean(-1)  # before the floor: with a column at -inf it is -inf
        exponential = shifted.clamp_(min=FLOOR).exp()
        total[block] = exponential.sum(-1)
        if SUM_SQUARED in row_statistics:
            squared[block] = torch.linalg.vecdot(exponential, exponential)
        weighted[block] = exponential.mul_(shifted).sum(-1)  # in place: a third array would not fit into the cache
    log_sum = total.log()
    reduced = {
        "error": log_sum - logits.gather(1, labels.unsqueeze(1)).squeeze(1),
        "entropy": (log_sum - weighted / total).clamp(min=0),
    }
    if row_statistics:
        further = {SUM_SQUARED: squared / total**2, MAX_LOG: -log_sum, MEAN_LOG: mean - log_sum}
        reduced.update((name, further[name]) for name in row_statistics)
    return log_sum, reduced


def _loss_of(
    objective: Objective, reduced: dict[str, torch.Tensor], extra: tuple[torch.Tensor, ...], num_items: Any
) -> torch.Tensor:
    """The summed loss of some items."""
    more = {name: values for name, values in reduced.items() if name in ROW_STATISTICS}
    return objective(reduced["error"], reduced["entropy"], *extra, **more).sum() / num_items


def _derivatives(
    objective: Objective, reduced: dict[str, torch.Tensor], extra: tuple[torch.Tensor, ...], num_items: Any
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The summed loss of some items and its derivatives by each of their statistics."""
    with torch.enable_grad():
        leaves = {name: values.clone().requires_grad_() for name, values in reduced.items()}
        loss = _loss_of(objective, leaves, extra, num_items)
        by = torch.autograd.grad(loss, tuple(leaves.values()), allow_unused=True, materialize_grads=True)
    return loss.detach(), dict(zip(leaves, by, strict=True))


def _gradient_of_logits_(
    shifted: torch.Tensor,
    labels: torch.Tensor,
    log_sum: torch.Tensor,
    reduced: dict[str, torch.Tensor],
    by: dict[str, torch.Tensor],
) -> None:
    """
    Turns shifted logits z into dL/dz, in place, given the derivatives of the loss by the statistics of each row: see
    the top of this file, with ln p = z - log_sum.
    """
    # columns, so that each multiplies its row
    columns = {name: values.unsqueeze(1) for name, values in by.items()}
    constant = (by["error"] + by["entropy"] * (log_sum - reduced["entropy"])).unsqueeze(1)
    for name in (MAX_LOG, MEAN_LOG):
        if name in by:
            constant = constant - columns[name]
    if SUM_SQUARED in by:
        constant = constant - 2 * columns[SUM_SQUARED] * reduced[SUM_SQUARED].unsqueeze(1)
    top = torch.empty_like(labels)
    for block in row_blocks(shifted):
        if MAX_LOG in by:
            top[block] = argmax_rows(shifted[block])
        probability = (shifted[block] - log_sum[block].unsqueeze(1)).exp_()
        gradient = shifted[block].mul_(-columns["entropy"][block]).add_(constant[block])
        if SUM_SQUARED in by:
            gradient.addcmul_(probability, 2 * columns[SUM_SQUARED][block])
        gradient.mul_(probability)
        if MEAN_LOG in by:
            gradient.add_(columns[MEAN_LOG][block] / shifted.shape[1])
    shifted.scatter_add_(1, labels.unsqueeze(1), -columns["error"])
    if MAX_LOG in by:
        shifted.scatter_add_(1, top.unsqueeze(1), columns[MAX_LOG])


def _add_product(
    total: torch.Tensor | None, gradient: torch.Tensor, rows: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """`total + gradient^T rows` in the weight's precision."""
    if total is not None and total.dtype == gradient.dtype:
        return write_product(gradient.t(), rows, total, add=True)
    added = multiply(gradient.t(), rows)
    return added.to(dtype) if total is None else total.add_(added)


def compute_dtype(rows: torch.Tensor, weight: torch.Tensor) -> torch.dtype:
    """What the matrix products run in: autocast's type where it is on, else the common type of both factors."""
    device = rows.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return torch.promote_types(rows.dtype, weight.dtype)


def check_targets(labels: torch.Tensor, vocabulary: int) -> None:
    # on an accelerator the check would wait for the device; there an index error of the gather says the same, later
    if labels.device.type == "cpu":
        check_labels(labels, vocabulary)
