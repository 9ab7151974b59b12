"""
Temperatures of a language model's tokens, fitted on held-out reference tokens with the model frozen.

A positive temperature changes every probability, but never which token is the most likely one: greedy outputs stay the
same token by token. One temperature for all tokens minimises their error; a temperature head gives each token its own,
`T = exp(clip(w . features + b, -2, 2))`, and is trained with CLUE's own loss, the error detached inside the square.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from scipy.optimize import brentq
from transformers.utils.logging import tqdm

from ..errors import UserError
from ..kernels.fused_linear import (
    CHUNK_SIZE,
    LOG2_E,
    MIN_EXPONENT,
    compute_dtype,
    linear_logits,
    row_blocks,
    shift_,
)
from ..kernels.largest import two_largest
from ..models.kind import unwrap
from ..tasks.head import read_head
from .stored import Stored


#: Largest |ln T|.
LIMIT = 2.0
#: Weight of the error in the loss of a head; the rest is that of the squared gap.
ALPHA = 0.5
#: Tokens per step, number of epochs, learning rate and L2 penalty of the training of a head.
BATCH, EPOCHS, RATE, PENALTY = 1024, 12, 5e-3, 1e-2
#: Share of the texts that stop the training of a head.
INNER = 0.2
#: The features that need no hidden state: top log-probability, its margin to the second, entropy.
SCALARS = 3
#: Stands for what is less likely by e^87 or more, ln 0 too: exponentials there are subnormal numbers, and 60 times
#: as slow.
MIN_LOG_RATIO = -87.0
#: Width and number of the bins of logits below the largest, and the least that is told from others.
WIDTH, BINS, MIN_LOGIT = 0.02, 2048, -100.0
#: Number of temperatures at which error and entropy are computed, and the step of their ln.
GRID = 25
STEP = 2 * LIMIT / (GRID - 1)


@dataclass(frozen=True)
class HeldOutTokens:
    """
    Reference tokens of held-out texts.

    Args:
        hidden (`torch.Tensor` of shape `(tokens, features)`):
            What the output layer is applied to.
        labels (`torch.Tensor` of shape `(tokens,)`):
            The reference tokens.
        text (`torch.Tensor` of shape `(tokens,)`):
            Number of the text of each token: the tokens of a text are never split.
        weight, bias (`torch.Tensor`):
            Those of the output layer.
    """

    hidden: torch.Tensor
    labels: torch.Tensor
    text: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def chunks(self, size: int = CHUNK_SIZE) -> Iterator[tuple[slice, torch.Tensor]]:
        """The logits of some tokens at a time, float32."""
        dtype = compute_dtype(self.hidden, self.weight)
        weight, bias = self.weight.to(dtype), None if self.bias is None else self.bias.to(dtype)
        buffer = torch.empty(min(size, len(self)), len(weight), dtype=dtype, device=self.hidden.device)
        for start in range(0, len(self), size):
            rows = slice(start, min(start + size, len(self)))
            yield rows, linear_logits(self.hidden[rows].to(dtype), weight, bias, buffer)


@dataclass(frozen=True)
class TokenCurves:
    """
    Error and entropy of each token as functions of its ln T, so that whatever is fitted to them needs the logits once.

    With `s = 1 / T` and `g(s) = ln sum exp(s z)`, the error is `g - s z_y` and the entropy `g - s g'`. Kept are g,
    `s g'` and the derivative of that by ln s, at the points of a grid: cubic (Hermite) interpolation does the rest.

    Args:
        log_sum, mean, slope (`torch.Tensor` of shape `(tokens, GRID)`):
            `g`, `s g'` and `s g' + s^2 g''`: mean and variance of the scaled logits make the last two.
        label (`torch.Tensor` of shape `(tokens,)`):
            The logit of the label, where the largest is 0.
        scalars (`torch.Tensor` of shape `(tokens, 3)`):
            The features of a head that need no hidden state.
    """

    log_sum: torch.Tensor
    mean: torch.Tensor
    slope: torch.Tensor
    label: torch.Tensor
    scalars: torch.Tensor

    @classmethod
    def of(cls, tokens: HeldOutTokens) -> TokenCurves:
        """From one pass over the logits of all tokens, some at a time."""
        curves = tokens.hidden.new_empty(3, len(tokens), GRID, dtype=torch.float32)
        label, scalars = (curves.new_empty(len(tokens), *size) for size in ((), (SCALARS,)))
        scales = torch.linspace(-LIMIT, LIMIT, GRID, dtype=torch.float64).exp().tolist()
        with tqdm(total=len(tokens), desc="Fitting temperatures", unit=" tokens", leave=False) as bar:
            for rows, logits in tokens.chunks():
                for block in row_blocks(logits):
                    part = slice(rows.start + block.start, min(rows.start + block.stop, rows.stop))
                    shifted = shift_(logits[block])
                    scalars[part] = _scalars(shifted)
                    label[part] = shifted.gather(1, tokens.labels[part].unsqueeze(1)).squeeze(1)
                    counts, centres = _histogram(shifted)
                    for point, scale in enumerate(scales):
                        curves[:, part, point] = _moments(counts, centres * scale)
                bar.update(rows.stop - rows.start)
        log_sum, mean, slope = curves
        return cls(log_sum, mean, slope, label, scalars)

    def select(self, rows: torch.Tensor) -> TokenCurves:
        return TokenCurves(*(column[rows] for column in vars(self).values()))

    def at(self, log_temperature: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Error and entropy of each token at its ln T, through which gradients flow."""
        place = (LIMIT - log_temperature.clamp(-LIMIT, LIMIT)) / STEP  # from ln s = -LIMIT on
        left = place.detach().long().clamp(max=GRID - 2)
        log_sums, means, slopes = (
            [column.gather(1, (left + side).unsqueeze(1)).squeeze(1) for side in (0, 1)]
            for column in (self.log_sum, self.mean, self.slope)
        )
        part = place - left
        log_sum, mean = _hermite(part, *log_sums, *means), _hermite(part, *means, *slopes)
        return log_sum - (-log_temperature).exp() * self.label, (log_sum - mean).clamp(min=0)


def _histogram(shifted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    How many logits of each row, of which the largest is 0, are in each bin, and their mean there: what sums of their
    exponentials are made of, for every temperature at once, at a fraction of the vocabulary.
    """
    shifted = shifted.clamp_(min=MIN_LOGIT)
    bins = (shifted / -WIDTH).long().clamp_(max=BINS - 1)
    counts, sums = (shifted.new_zeros(len(shifted), BINS) for _ in range(2))
    counts.scatter_add_(1, bins, torch.ones_like(shifted))
    return counts, sums.scatter_add_(1, bins, shifted) / counts.clamp(min=1)


def _moments(counts: torch.Tensor, scaled: torch.Tensor) -> torch.Tensor:
    """`g`, `s g'` and `s g' + s^2 g''` of each row, from how often each scaled logit is in it: (3, rows)."""
    weight = counts * scaled.clamp_(min=MIN_LOG_RATIO).exp()
    total = weight.sum(-1)
    mean = torch.linalg.vecdot(weight, scaled) / total
    square = torch.linalg.vecdot(weight, scaled**2) / total
    return torch.stack([total.log(), mean, mean + square - mean**2])


def _hermite(
    part: torch.Tensor, left: torch.Tensor, right: torch.Tensor, left_slope: torch.Tensor, right_slope: torch.Tensor
) -> torch.Tensor:
    """The cubic with these values and derivatives at both ends of a step, `part` of the way along it."""
    rise = right - left
    first, last = STEP * left_slope - rise, rise - STEP * right_slope
    return left + part * (rise + (1 - part) * ((1 - part) * first + part * last))


@dataclass(frozen=True)
class TokenTemperature(Stored):
    """
    One temperature for all tokens.

    Args:
        temperature (`float`):
            What the logits are divided by.
    """

    name: ClassVar[str] = "temperature"
    temperature: float

    @classmethod
    def fit(cls, curves: TokenCurves) -> TokenTemperature:
        """The temperature with the least mean error, which is convex in `1 / T`: where its derivative is 0."""

        def slope(value: float) -> float:
            log_temperature = torch.full_like(curves.label, value, requires_grad=True)
            return torch.autograd.grad(curves.at(log_temperature)[0].mean(), log_temperature)[0].sum().item()

        if slope(-LIMIT) * slope(LIMIT) > 0:  # the least error is beyond a limit
            return cls(math.exp(-LIMIT if slope(-LIMIT) > 0 else LIMIT))
        return cls(math.exp(brentq(slope, -LIMIT, LIMIT, xtol=1e-5)))

    def __call__(self, hidden: torch.Tensor | None, logits: torch.Tensor) -> torch.Tensor:
        """The temperature of each row."""
        return torch.full((len(logits),), self.temperature, device=logits.device)

    def check_model(self, model: Any) -> None:
        """One temperature suits every model."""

    def check(self) -> None:
        super().check()
        if not math.exp(-LIMIT) / 2 <= self.temperature <= math.exp(LIMIT) * 2:
            raise ValueError(f"the temperature is {self.temperature}")


@dataclass(frozen=True)
class TemperatureHead(Stored):
    """
    A temperature for each token: `exp(clip(w . features + b, -2, 2))`. The features are standardised: the hidden state
    that the output layer is applied to (or none), top log-probability, margin to the second, entropy.

    Args:
        weight, mean, std (`list[float]`):
            One for each feature: its weight, and how it is standardised.
        bias (`float`):
            ln T of a token whose features are all average.
        hidden_size (`int`):
            Number of features that are of the hidden state, 0 for a head on the three scalars alone.
    """

    name: ClassVar[str] = "temperature_head"
    weight: list[float]
    mean: list[float]
    std: list[float]
    bias: float
    hidden_size: int

    def check(self) -> None:
        columns = [self.weight, self.mean, self.std]
        if any(len(column) != self.hidden_size + SCALARS for column in columns):
            raise ValueError("its lists do not fit the number of features")
        if not all(map(math.isfinite, (*self.weight, *self.mean, *self.std, self.bias))):
            raise ValueError("its numbers are not finite")

    @classmethod
    def fit(
        cls,
        tokens: HeldOutTokens,
        curves: TokenCurves,
        start: TokenTemperature,
        scalars: bool = False,
        seed: int = 0,
    ) -> TemperatureHead:
        """
        Trained on `alpha e + (1 - alpha) (sg(e) - u)^2` from the single temperature, with a penalty on the weights;
        the epoch with the least loss on texts of its own is kept, which may be the start itself.
        """
        hidden_size = 0 if scalars else tokens.hidden.shape[1]
        features = torch.cat([tokens.hidden[:, :hidden_size].float(), curves.scalars], 1)
        mean, std = features.mean(0), features.std(0).clamp(min=1e-6)
        features = (features - mean) / std
        generator = torch.Generator().manual_seed(seed)
        texts = tokens.text.unique()
        inner = texts[torch.randperm(len(texts), generator=generator)[: max(1, round(INNER * len(texts)))].to(texts)]
        stops = torch.isin(tokens.text, inner)
        fitted, stopping = (torch.nonzero(chosen).squeeze(1) for chosen in (~stops, stops))
        weight = torch.zeros(features.shape[1], device=features.device, requires_grad=True)
        bias = torch.tensor(math.log(start.temperature), device=features.device, requires_grad=True)
        optimizer = torch.optim.Adam([weight, bias], lr=RATE)

        def loss_of(rows: torch.Tensor) -> torch.Tensor:
            error, entropy = curves.select(rows).at((features[rows] @ weight + bias).clamp(-LIMIT, LIMIT))
            return (ALPHA * error + (1 - ALPHA) * (error.detach() - entropy) ** 2).mean()

        def stopping_loss() -> float:
            with torch.no_grad():
                return loss_of(stopping).item()

        best = (stopping_loss(), weight.detach().clone(), bias.item())
        for _ in range(EPOCHS):
            for rows in fitted[torch.randperm(len(fitted), generator=generator).to(fitted)].split(BATCH):
                optimizer.zero_grad()
                (loss_of(rows) + PENALTY * weight.square().sum()).backward()
                optimizer.step()
            loss = stopping_loss()
            if loss >= best[0]:
                break
            best = (loss, weight.detach().clone(), bias.item())
        weights, means, stds = (column.double().tolist() for column in (best[1], mean, std))
        return cls(weights, means, stds, best[2], hidden_size)

    def check_model(self, model: Any) -> None:
        """Raises where the hidden states of a model are not of the size that this was fitted to."""
        size = read_head(unwrap(model)).weight.shape[1]
        if self.hidden_size not in (0, size):
            raise ValueError(f"it was fitted to hidden states of size {self.hidden_size}, and the model's have {size}")

    def __call__(self, hidden: torch.Tensor | None, logits: torch.Tensor) -> torch.Tensor:
        """The temperature of each row."""
        slopes, constant = self._line
        slopes = slopes.to(logits.device)
        log_temperature = _scalars(logits) @ slopes[self.hidden_size :] + constant
        if self.hidden_size:
            if hidden is None:
                raise UserError("A temperature head needs the hidden states, which this model does not give apart.")
            log_temperature += hidden.float() @ slopes[: self.hidden_size]
        return log_temperature.clamp(-LIMIT, LIMIT).exp()

    @cached_property
    def _line(self) -> tuple[torch.Tensor, float]:
        """Slopes and constant of ln T in the features as they come, not standardised."""
        weight, mean, std = (
            torch.tensor(column, dtype=torch.float64) for column in (self.weight, self.mean, self.std)
        )
        slopes = weight / std
        return slopes.float(), self.bias - float(slopes @ mean)


#: The token calibrators by the name in a file; that on three scalars is a head without hidden states.
STORED_TOKEN_CALIBRATORS: dict[str, Any] = {kind.name: kind for kind in (TokenTemperature, TemperatureHead)}


def _scalars(logits: torch.Tensor) -> torch.Tensor:
    """Top log-probability, margin to the second, and entropy of each row."""
    top = two_largest(logits)
    # where the largest is 0 already, one array less: with more of them the cache is too small
    shifted = shift_(logits.clone()) if top[:, 0].any() else logits
    exponent = (shifted * LOG2_E).clamp_(min=MIN_EXPONENT)
    weight = exponent.exp2()
    total = weight.sum(-1)
    log_sum, excess = total.log(), weight.mul_(exponent).sum(-1) / LOG2_E
    return torch.stack([-log_sum, top[:, 0] - top[:, -1], log_sum - excess / total], 1)
