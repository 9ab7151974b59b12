"""What fitting token calibrators costs: from one pass over the logits, against holding the logits of all tokens.

Random hidden states and a random output layer of the size of the T5 of docs/results.md (3.4M parameters), labels drawn
from its distribution at a temperature of 1.3. The plain way holds all logits and minimises the error by LBFGS.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from measure import Ratio, comparison_rows, interleaved, peak_above, peak_of_each, ratio, write_table

from clue_hf.posthoc.token_temperature import HeldOutTokens, TemperatureHead, TokenCurves, TokenTemperature


TOKENS, FEATURES, VOCABULARY, TEMPERATURE = 50_000, 192, 4_000, 1.3
#: Seconds that fitting may take.
AT_MOST = 120
BASELINE = "one temperature, all logits held, LBFGS"


def make_tokens(count: int) -> HeldOutTokens:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(count, FEATURES, generator=generator)
    weight = 0.15 * torch.randn(VOCABULARY, FEATURES, generator=generator)
    labels = torch.cat([
        torch.multinomial((part @ weight.T / TEMPERATURE).softmax(-1), 1, generator=generator).squeeze(1)
        for part in hidden.split(1000)
    ])  # fmt: skip
    return HeldOutTokens(hidden, labels, torch.arange(count) // 12, weight)


def plain(tokens: HeldOutTokens) -> float:
    logits = tokens.hidden @ tokens.weight.T
    log_temperature = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.LBFGS([log_temperature], max_iter=20, tolerance_grad=1e-4, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits / log_temperature.exp(), tokens.labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return log_temperature.exp().item()


def single(tokens: HeldOutTokens) -> float:
    return TokenTemperature.fit(TokenCurves.of(tokens)).temperature


def every(tokens: HeldOutTokens) -> float:
    """What `auto` fits."""
    curves = TokenCurves.of(tokens)
    temperature = TokenTemperature.fit(curves)
    for scalars in (True, False):
        TemperatureHead.fit(tokens, curves, temperature, scalars)
    return temperature.temperature


WAYS: dict[str, Callable[[HeldOutTokens], float]] = {
    BASELINE: plain,
    "one temperature": single,
    "auto: one temperature and both heads": every,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="interleaved rounds")
    parser.add_argument("--memory_of", help="only measure the peak memory of one way, in this process")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # its processor time is what it takes, whatever else the machine does
    if arguments.memory_of:
        WAYS[arguments.memory_of](make_tokens(500))  # libraries and thread pools are loaded
        tokens = make_tokens(TOKENS)
        print(json.dumps({"bytes": peak_above(lambda: WAYS[arguments.memory_of](tokens))}))
        return
    memory = peak_of_each(__file__, WAYS)
    tokens = make_tokens(TOKENS)

    def checked(name: str) -> None:
        if abs(WAYS[name](tokens) - TEMPERATURE) > 0.03:
            raise RuntimeError(f"{name} does not find the temperature.")

    ways = {name: partial(checked, name) for name in WAYS}
    seconds = interleaved(ways, arguments.rounds, warmup=0, clock=time.process_time)
    every = next(reversed(WAYS))
    write_table(
        "token_calibration",
        "Fitting token calibrators",
        ["fitted", "time", "ratio", "peak memory above the tokens", "ratio"],
        comparison_rows(seconds, memory, BASELINE),
        f"{TOKENS:,} tokens, {FEATURES} features, a vocabulary of {VOCABULARY:,}, random weights, float32; their "
        f"hidden states take {TOKENS * FEATURES * 4 / 1e6:.0f} MB. All find the temperature the labels were drawn at. "
        f"Medians of {arguments.rounds} interleaved rounds (ratio: median of the per-round ratios), processor time on "
        "one thread; memory in a fresh process, with an allocator that returns freed memory at once.",
        ratios=[
            Ratio(f"{every}, {TOKENS:,} tokens, time", statistics.median(seconds[every]), AT_MOST, unit=" s"),
            Ratio(f"{every} / {BASELINE}, time", ratio(seconds, every, BASELINE), at_most=1.0),
            Ratio(f"{every} / {BASELINE}, memory", memory[every] / memory[BASELINE], at_most=1.0),
        ],
    )


if __name__ == "__main__":
    main()
