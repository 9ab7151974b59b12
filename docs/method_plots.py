"""The figures of docs/method.md, and every number it quotes: `.venv/bin/python docs/method_plots.py`.

A token is drawn from a known distribution q; the model is a free distribution p = softmax(z). Expectations are exact
sums over the vocabulary, in float64. Functions of p are about the example's family, where token 0 has probability p
and the others share the rest equally; functions of z about any p, in groups of `size` tokens with logit z each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from scipy.integrate import solve_ivp
from scipy.optimize import brentq, minimize


IMAGES = Path(__file__).parent / "images"
V, Q0, LENGTH = 21, 0.6, 32  # vocabulary, true probability of token 0, tokens per sequence
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555"  # colour-blind safe
RANDOM = list(3 * np.random.default_rng(0).normal(size=(10, V)))  # starts: logits with a standard deviation of 3
Array, Numbers = np.ndarray, np.ndarray | float


def log_ratio(p: Numbers) -> Numbers:
    """d: ln of the probability of token 0 over that of any other token."""
    return np.log(p * (V - 1) / (1 - p))


def expected_loss(p: Numbers, alpha: float, length: int = 1) -> Numbers:
    error = -np.log((1 - p) / (V - 1)) - Q0 * log_ratio(p)
    return alpha * error + (1 - alpha) * log_ratio(p) ** 2 * (Q0 * (1 - Q0) / length + (p - Q0) ** 2)


def slope(p: Numbers, alpha: float, length: int = 1) -> Numbers:
    """The derivative of `expected_loss` by p, times p (1 - p)."""
    d, noise = log_ratio(p), Q0 * (1 - Q0) / length
    return alpha * (p - Q0) + 2 * (1 - alpha) * d * (noise + (p - Q0) ** 2 + d * (p - Q0) * p * (1 - p))


def error_slope(p: Numbers, alpha: float) -> Numbers:
    """The same of `error`, whose square moves the error alone: what it does not move is missing."""
    return alpha * (p - Q0) + 2 * (1 - alpha) * log_ratio(p) * (Q0 * (1 - Q0) + (p - Q0) ** 2)


def error_rest(alpha: float) -> float:
    """Where `error` comes to rest: between the uniform distribution and the truth."""
    return brentq(error_slope, 1 / V, Q0, (alpha,))


def minima(alpha: float, length: int = 1) -> list[float]:
    """All local minima over p: where the slope changes from - to +. The lowest comes first."""
    grid = 1 / (1 + np.exp(-np.linspace(-12, 12, 4001)))
    rises = np.where(np.diff(np.sign(slope(grid, alpha, length))) > 0)[0]
    found = [brentq(slope, grid[i], grid[i + 1], (alpha, length)) for i in rises]
    return sorted(found, key=lambda p: expected_loss(p, alpha, length))


def flatness(p: Numbers) -> Numbers:
    """Entropy / ln V."""
    return -(p * np.log(p) + (1 - p) * np.log((1 - p) / (V - 1))) / np.log(V)


def truth(vocabulary: int = V, q0: float = Q0, groups: int = V) -> tuple[Array, Array]:
    """True probabilities and sizes of the groups: single tokens, and in the last group all that are left."""
    rest = (1 - q0) / (vocabulary - 1)
    return np.array([q0] + [rest] * (groups - 1)), np.array([1.0] * (groups - 1) + [vocabulary - groups + 1.0])


def distribution(z: Array, size: Array) -> tuple[Array, float]:
    """ln p of each token, and the entropy."""
    log_p = z - z.max() - np.log((size * np.exp(z - z.max())).sum())
    return log_p, -float((size * np.exp(log_p) * log_p).sum())


def divergence(z: Array, q: Array, size: Array) -> float:
    """KL(q, p) in nats."""
    return float((size * q * (np.log(q) - distribution(z, size)[0])).sum())


def loss(z: Array, q: Array, size: Array, alpha: float) -> float:
    log_p, entropy = distribution(z, size)
    return float((size * q * (-alpha * log_p + (1 - alpha) * (-log_p - entropy) ** 2)).sum())


def gradient(z: Array, q: Array, size: Array, alpha: float, clue_gradient: str) -> Array:
    """The expected gradient by the logit of one token: E[a (p - onehot(y)) - b p (ln p + H)]."""
    log_p, entropy = distribution(z, size)
    p, gap = np.exp(log_p), -log_p - entropy
    a = alpha + 2 * (1 - alpha) * gap * (clue_gradient != "uncertainty")
    b = -2 * (1 - alpha) * (size * q * gap).sum() * (clue_gradient != "error")
    return p * (size * q * a).sum() - q * a - b * p * (log_p + entropy)


def lowest(starts: list[Array], q: Array, size: Array, alpha: float) -> Array:
    """The logits of the lowest minimum of `both` that BFGS finds from the starts."""
    slopes = {"jac": lambda z, *_: size * gradient(z, q, size, alpha, "both"), "options": {"gtol": 1e-10}}
    return min((minimize(loss, z, (q, size, alpha), **slopes) for z in starts), key=lambda found: found.fun).x


def flow(z: Array, q: Array, size: Array, alpha: float, form: str, end: float = 2e4) -> tuple[Array, float]:
    """Follows dz/dt = -gradient: the last logits, and when KL(q, p) fell below 0.001 (or infinity)."""
    path = solve_ivp(
        lambda _, z: -gradient(z, q, size, alpha, form),
        (0, end), z, "LSODA", events=lambda _, z: divergence(z, q, size) - 1e-3, rtol=1e-6, atol=1e-8,
    )  # fmt: skip
    return path.y[:, -1], min(path.t_events[0], default=np.inf)


def table(header: str, rows: list[list[str]]) -> str:
    columns = header.split(" | ")
    return "\n".join("| " + " | ".join(line) + " |" for line in [columns, ["---"] * len(columns), *rows])


def table_of_optima() -> str:
    (q, size), rows = truth(), []
    for alpha in (1, 0.99, 0.95, 0.9, 0.8, 0.7, 0.5, 0.1):
        both, sequence = minima(alpha)[0], minima(alpha, LENGTH)[0]
        free = np.exp(distribution(lowest(RANDOM[:6], q, size, alpha), size)[0])
        detached = np.exp(distribution(flow(RANDOM[0], q, size, alpha, "uncertainty")[0], size)[0])
        numbers = [f"{x:.3f}" for x in (both, flatness(both), free[0], sequence, detached[0], error_rest(alpha))]
        rows.append([f"{alpha:g}", *numbers[:3], f"{free[1:].min():.4f} to {free[1:].max():.4f}", *numbers[3:]])
    others = "p0, sequences of 32 | p0, `uncertainty` | p0, `error`"
    return table(f"alpha | p0 | H / ln V | free: p0 | free: others | {others}", rows)


def table_of_quantities() -> str:
    entropy, varentropy = flatness(Q0) * np.log(V), log_ratio(Q0) ** 2 * Q0 * (1 - Q0)
    at = {share: brentq(lambda a, s=share: flatness(minima(a)[0]) - s, 0.3, 0.99) for share in (0.9, 0.99)}
    tie = brentq(lambda a: np.subtract(*[expected_loss(p, a, LENGTH) for p in sorted(minima(a, LENGTH))]), 0.01, 0.3)
    rows = {
        "`ln V`": f"{np.log(V):.3f} nats",
        "entropy of the truth, `H(q)`": f"{entropy:.3f} nats",
        "varentropy of the truth, `Var(-ln q)`": f"{varentropy:.3f} nats²",
        "local minima over p0, at most, on a grid of alpha": f"{max(len(minima(a)) for a in np.linspace(0, 1, 201))}",
        "alpha below which uniform beats the truth": f"{varentropy / (varentropy + np.log(V) - entropy):.3f}",
        "loss at alpha 0.5: truth, uniform": f"{expected_loss(Q0, 0.5):.3f}, {expected_loss(1 / V, 0.5):.3f}",
        "alpha where the optimum has H / ln V = 0.9, 0.99": f"{at[0.9]:.3f}, {at[0.99]:.3f}",
        "sequences of 32: alpha below which the flat minimum is the lowest": f"{tie:.3f}",
    }
    return table("quantity | value", [list(row) for row in rows.items()])


def table_of_flow() -> str:
    (q, size), rows = truth(), []
    starts = [np.zeros(V), 8 * np.eye(V)[0], 8 * np.eye(V)[1], *RANDOM]
    for alpha in (1, 0.9, 0.5, 0.1, 0):
        ends, times = zip(*(flow(z, q, size, alpha, "uncertainty") for z in starts), strict=True)
        cells = [f"{float(f'{time:.2g}'):.0f}" if time < np.inf else "never" for time in (*times[:3], max(times[3:]))]
        far = max(divergence(z, q, size) for z in ends)
        cells += [f"{sum(np.isfinite(times))} of {len(starts)}", f"{far:.1f}" if far > 1e-9 else "< 1e-9"]
        rows.append([f"{alpha:g}", *cells])
    return table("alpha | uniform | sure of 0 | sure of 1 | slowest of 10 random | arrived | largest last KL", rows)


def table_of_vocabulary(vocabulary: int = 32128) -> str:
    rows, top = [], np.log(vocabulary)
    starts = [np.array([x, y, 0.0]) for x in (0, 3, top) for y in (0.1, top)]
    for q0, alpha in [(q0, alpha) for q0 in (0.3, 0.6, 0.9) for alpha in (0.99, 0.9, 0.8)]:
        q, size = truth(vocabulary, q0, groups=3)
        reached = flow(np.log(q) + [0, 0.01, 0], q, size, alpha, "both", end=1e9)[0]
        rows.append([f"{q0:g}", f"{alpha:g}"])
        for log_p, entropy in (distribution(z, size) for z in (lowest(starts, q, size, alpha), reached)):
            rows[-1] += [f"{x:.2g}" for x in (*np.exp(log_p[:2]), entropy / top)]
    return table("q0 | alpha | lowest: p0 | p1 | H / ln V | from the truth: p0 | p1 | H / ln V", rows)


def save(axes: plt.Axes, name: str, x: str, y: str, legend: tuple[float, float]) -> None:
    axes.set(xlabel=x, ylabel=y)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=legend)
    for kind in ("png", "svg"):
        axes.figure.savefig(IMAGES / f"method_{name}.{kind}", metadata={"Date": None} if kind == "svg" else {})


def plot_against_alpha(name: str, of: Callable[[Numbers], Numbers], y: str, legend: tuple[float, float]) -> None:
    axes, alphas, (q, size) = plt.subplots()[1], np.linspace(0, 1, 401), truth()
    axes.axhline(of(Q0), color=GREY, linewidth=1, label="truth q")
    for length, colour, style in ((1, BLUE, "-"), (LENGTH, ORANGE, "--")):
        optima = [of(minima(alpha, length)[0]) for alpha in alphas]
        label = "both, token level" if length == 1 else f"both, sequences of {length} tokens"
        axes.plot(alphas, optima, style, color=colour, linewidth=2, label=label)
    ends = [flow(RANDOM[0], q, size, alpha, "uncertainty")[0] for alpha in alphas[40::40]]
    reached = [of(np.exp(distribution(z, size)[0][0])) for z in ends]
    axes.plot(alphas[40::40], reached, "o", color=GREEN, label="uncertainty, token level (end of the flow)")
    if name == "entropy":
        axes.axhline(0.9, color=PURPLE, linestyle=":", linewidth=2, label="the trainer warns above 0.9")
    save(axes, name, "alpha, weight of the error (no unit)", y, legend)


def plot_landscapes() -> None:
    axes, p = plt.subplots()[1], np.linspace(0.005, 0.995, 991)
    for alpha, colour, style in ((1, GREY, "--"), (0.9, BLUE, "-"), (0.7, ORANGE, "-."), (0.5, GREEN, ":")):
        best = minima(alpha)[0]
        rise = expected_loss(p, alpha) - expected_loss(best, alpha)
        axes.plot(p, rise, style, color=colour, linewidth=2, label=f"alpha {alpha:g}, lowest at {best:.2f}")
        axes.plot(best, 0, "o", color=colour, markersize=8, clip_on=False)
    axes.axvline(Q0, color="black", linewidth=1, label=f"truth, q0 = {Q0}")
    axes.set_ylim(0, 1.2)
    save(axes, "landscape", "p0, probability of token 0", "expected loss above its minimum (nats + nats²)", (0.15, 1))


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    plt.rcParams.update({"figure.figsize": (7, 4.2), "savefig.dpi": 120, "svg.hashsalt": "method", "font.size": 11})
    plt.rcParams.update({"axes.grid": True, "grid.alpha": 0.25, "axes.spines.top": False, "axes.spines.right": False})
    plt.rcParams["figure.constrained_layout.use"] = True
    plot_against_alpha("optimum", lambda p: p, "p0 of the optimum, a probability", (0.12, 0.75))
    plot_against_alpha("entropy", flatness, "entropy of the optimum / ln V (no unit)", (0.12, 0.66))
    plot_landscapes()
    print("\n\n".join([table_of_optima(), table_of_quantities(), table_of_flow(), table_of_vocabulary()]))
