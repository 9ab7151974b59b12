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
from typing import Any, ClassVar, NamedTuple

import torch
from transformers.utils.logging import tqdm

from ..errors import UserError
from ..kernels.fused_linear import CHUNK_SIZE, compute_dtype, linear_logits
from .stored import Stored


#: Largest |ln T|.
LIMIT = 2.0
#: Weight of the error in the loss of a head; the rest is that of the squared gap.
ALPHA = 0.5
#: Tokens per step, number of epochs, learning rate and L2 penalty of the training of a head.
BATCH, EPOCHS, RATE, PENALTY = 1024, 6, 5e-3, 1e-2
#: Share of the texts that stop the training of a head.
INNER = 0.2
#: The features that need no hidden state: top log-probability, its margin to the second, entropy.
SCALARS = 3
#: Stands for ln 0.
MIN_LOG_PROBABILITY = -1e4


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

    def select(self, rows: torch.Tensor) -> HeldOutTokens:
        return HeldOutTokens(self.hidden[rows], self.labels[rows], self.text[rows], self.weight, self.bias)

    def chunks(self, size: int = CHUNK_SIZE) -> Iterator[tuple[slice, torch.Tensor]]:
        """The logits of some tokens at a time, float32."""
        dtype = compute_dtype(self.hidden, self.weight)
        weight, bias = self.weight.to(dtype), None if self.bias is None else self.bias.to(dtype)
        buffer = torch.empty(min(size, len(self)), len(weight), dtype=dtype, device=self.hidden.device)
        for start in range(0, len(self), size):
            rows = slice(start, min(start + size, len(self)))
            yield rows, linear_logits(self.hidden[rows].to(dtype), weight, bias, buffer)


class Tempered(NamedTuple):
    """
    Of each row of logits divided by a temperature: error, entropy, and what their derivatives by `s = 1 / T` are made
    of: the mean of the logits minus the label's, and their variance.
    """

    error: torch.Tensor
    entropy: torch.Tensor
    slope: torch.Tensor
    variance: torch.Tensor


def tempered(logits: torch.Tensor, labels: torch.Tensor, inverse: torch.Tensor) -> Tempered:
    """
    Error and entropy of `softmax(s z)`. With `g(s) = ln sum exp(s z)`: error `g - s z_y`, entropy `g - s g'`, hence
    `d error / ds = g' - z_y` and `d entropy / ds = -s g''`, where g' and g'' are mean and variance of the logits.
    """
    shifted = logits - logits.amax(-1, keepdim=True)
    inverse = inverse.expand(len(logits))
    scaled = shifted * inverse.unsqueeze(1)
    log_sum = scaled.logsumexp(-1)
    probability = (scaled - log_sum.unsqueeze(1)).exp_()
    mean = torch.linalg.vecdot(probability, shifted)
    variance = torch.linalg.vecdot(probability, (shifted - mean.unsqueeze(1)).square_())
    chosen = shifted.gather(1, labels.unsqueeze(1)).squeeze(1)
    entropy = (log_sum - inverse * mean).clamp(min=0)
    return Tempered(log_sum - inverse * chosen, entropy, mean - chosen, variance)


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
    def fit(cls, tokens: HeldOutTokens) -> TokenTemperature:
        """
        The temperature with the least mean error. The error is convex in `1 / T`, so that Newton's method, kept
        between the limits, finds it in a few passes over the logits.
        """
        low, high = math.exp(-LIMIT), math.exp(LIMIT)
        inverse = 1.0
        for _ in tqdm(range(20), desc="Fitting a temperature", leave=False):
            slope = curvature = 0.0
            for rows, logits in tokens.chunks():
                part = tempered(logits, tokens.labels[rows], torch.tensor(inverse, device=logits.device))
                slope += float(part.slope.sum(dtype=torch.float64))
                curvature += float(part.variance.sum(dtype=torch.float64))
            step = -slope / max(curvature, 1e-12)
            low, high = (low, inverse) if slope > 0 else (inverse, high)
            following = inverse + step
            if not low <= following <= high:  # outside of what is known to hold the minimum
                following = math.sqrt(low * high)
            if abs(math.log(following / inverse)) < 1e-4:
                inverse = following
                break
            inverse = following
        return cls(1 / inverse)

    def __call__(self, hidden: torch.Tensor | None, logits: torch.Tensor) -> torch.Tensor:
        """The temperature of each row."""
        return torch.full((len(logits),), self.temperature, device=logits.device)

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
    def fit(cls, tokens: HeldOutTokens, start: TokenTemperature, scalars: bool = False, seed: int = 0) -> Any:
        """
        Trained on `alpha e + (1 - alpha) (sg(e) - u)^2` from the single temperature, with a penalty on the weights;
        the epoch with the least loss on texts of its own is kept, which may be the start itself.
        """
        hidden_size = 0 if scalars else tokens.hidden.shape[1]
        features = _features(tokens, hidden_size)
        mean, std = features.mean(0), features.std(0).clamp(min=1e-6)
        features = (features - mean) / std
        generator = torch.Generator().manual_seed(seed)
        texts = tokens.text.unique()
        inner = texts[torch.randperm(len(texts), generator=generator)[: max(1, round(INNER * len(texts)))]]
        stops = torch.isin(tokens.text, inner)
        fitted, stopping = (torch.nonzero(chosen).squeeze(1) for chosen in (~stops, stops))
        weight = torch.zeros(features.shape[1], requires_grad=True)
        bias = torch.tensor(math.log(start.temperature), requires_grad=True)
        optimizer = torch.optim.Adam([weight, bias], lr=RATE)

        def run(rows: torch.Tensor, step: bool) -> float:
            """The mean loss of some tokens, and where wanted a step on it."""
            chosen, chunk_features = tokens.select(rows), features[rows]
            log_temperature = (chunk_features @ weight + bias).clamp(-LIMIT, LIMIT)
            loss, gradient = _clue(chosen, log_temperature.detach())
            if step:
                optimizer.zero_grad()
                penalty = PENALTY * weight.square().sum()
                ((log_temperature * gradient).sum() / len(rows) + penalty).backward()
                optimizer.step()
            return loss

        def stopping_loss() -> float:
            with torch.no_grad():
                return sum(run(rows, False) * len(rows) for rows in stopping.split(BATCH)) / max(len(stopping), 1)

        best = (stopping_loss(), weight.detach().clone(), bias.item())
        for _ in tqdm(range(EPOCHS), desc="Fitting a temperature head", leave=False):
            order = fitted[torch.randperm(len(fitted), generator=generator)]
            for rows in order.split(BATCH):
                run(rows, True)
            loss = stopping_loss()
            if loss >= best[0]:
                break
            best = (loss, weight.detach().clone(), bias.item())
        weights, means, stds = (column.double().tolist() for column in (best[1], mean, std))
        return cls(weights, means, stds, best[2], hidden_size)

    def __call__(self, hidden: torch.Tensor | None, logits: torch.Tensor) -> torch.Tensor:
        """The temperature of each row."""
        features = _scalars(logits)
        if self.hidden_size:
            if hidden is None:
                raise UserError("A temperature head needs the hidden states, which this model does not give apart.")
            features = torch.cat([hidden.float(), features], 1)
        weight, mean, std = (
            torch.tensor(column, dtype=features.dtype, device=features.device)
            for column in (self.weight, self.mean, self.std)
        )
        return (((features - mean) / std) @ weight + self.bias).clamp(-LIMIT, LIMIT).exp()


#: The token calibrators by the name in a file; that on three scalars is a head without hidden states.
STORED_TOKEN_CALIBRATORS: dict[str, Any] = {kind.name: kind for kind in (TokenTemperature, TemperatureHead)}


def _clue(tokens: HeldOutTokens, log_temperature: torch.Tensor) -> tuple[float, torch.Tensor]:
    """The mean of `alpha e + (1 - alpha) (sg(e) - u)^2`, and the derivative of each token's loss by its ln T."""
    total, gradient = 0.0, torch.empty_like(log_temperature)
    for rows, logits in tokens.chunks():
        inverse = (-log_temperature[rows]).exp()
        part = tempered(logits, tokens.labels[rows], inverse)
        gap = part.error - part.entropy
        total += float((ALPHA * part.error + (1 - ALPHA) * gap.square()).sum(dtype=torch.float64))
        by_inverse = ALPHA * part.slope + 2 * (1 - ALPHA) * gap * inverse * part.variance
        gradient[rows] = -inverse * by_inverse
    return total / max(len(tokens), 1), gradient


def _features(tokens: HeldOutTokens, hidden_size: int) -> torch.Tensor:
    scalars = torch.cat([_scalars(logits) for _, logits in tokens.chunks()])
    return torch.cat([tokens.hidden[:, :hidden_size].float(), scalars], 1)


def _scalars(logits: torch.Tensor) -> torch.Tensor:
    """Top log-probability, margin to the second, and entropy of each row."""
    log_probability = logits.log_softmax(-1).clamp(min=MIN_LOG_PROBABILITY)  # 0 ln 0 = 0
    first, second = log_probability.topk(min(2, logits.shape[1]), -1).values[:, [0, -1]].T
    entropy = -torch.linalg.vecdot(log_probability.exp(), log_probability)
    return torch.stack([first, first - second, entropy], 1)
