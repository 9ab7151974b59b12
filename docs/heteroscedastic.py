"""Does the predicted variance find the true one? Synthetic data whose variance is known, six ways to train.

Writes docs/results/heteroscedastic.md and docs/images/heteroscedastic.png: `.venv/bin/python docs/heteroscedastic.py`.

Three features x, uniform in [-1, 1]; target = sin(3 x1) + x2 + sigma(x) noise, the noise standard normal, and
ln sigma(x)^2 = 1.2 x3 - 1: the true variance goes from 0.11 to 1.22, a factor of 11, and has nothing to do with the
mean.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import datasets
import numpy as np
import torch
from matplotlib import pyplot as plt
from transformers import set_seed

from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.inputs.table_preprocessor import TablePreprocessor
from clue_hf.models.tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression
from clue_hf.tables import markdown_table
from clue_hf.training.collect import predicted_numbers


DOCS = Path(__file__).parent
ROWS, TEST_ROWS, DECILES, BAND = 40_000, 20_000, 10, (0.8, 1.25)
HEAD, PASSES = {"variance_head": True, "dropout": 0.0}, {"dropout": 0.3}
#: What is trained: the network, the objective and its settings.
METHODS = {
    "nll, variance head": (HEAD, {"objective": "nll"}),
    "clue (both), variance head": (HEAD, {"alpha": 0.5}),
    "clue (uncertainty), variance head": (HEAD, {"alpha": 0.5, "clue_gradient": "uncertainty"}),
    "mse, 20 passes": (PASSES, {"objective": "mse", "plain_mc_samples": 1}),
    "clue (both), 20 passes": (PASSES, {"alpha": 0.5, "plain_mc_samples": 1}),
    "clue (uncertainty), 20 passes": (PASSES, {"alpha": 0.5, "plain_mc_samples": 1, "clue_gradient": "uncertainty"}),
}


def make_data(rows: int, seed: int) -> tuple[datasets.Dataset, np.ndarray]:
    """Features and target, and the true variance of each row."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (rows, 3))
    variance = np.exp(1.2 * x[:, 2] - 1)
    target = np.sin(3 * x[:, 0]) + x[:, 1] + np.sqrt(variance) * generator.standard_normal(rows)
    columns = {f"x{number + 1}": x[:, number] for number in range(3)}
    return datasets.Dataset.from_dict({**columns, "target": target}), variance


def train(network: dict, settings: dict, train_data: datasets.Dataset, preprocessor: TablePreprocessor, epochs: int):
    """A trained model, in its trainer."""
    set_seed(0)
    config = CLUETabularResNetConfig(num_numeric=3, hidden_size=64, num_blocks=2, **network)
    with tempfile.TemporaryDirectory() as folder:
        arguments = CLUEConfig(
            folder, num_train_epochs=epochs, per_device_train_batch_size=256, per_device_eval_batch_size=2048,
            learning_rate=2e-3, lr_scheduler_type="cosine", optim="adamw_torch", save_strategy="no", report_to="none",
            disable_tqdm=True, logging_steps=500, use_cpu=True, **settings,
        )  # fmt: skip
        trainer = CLUETrainer(
            CLUETabularResNetForRegression(config), arguments, train_dataset=train_data, processing_class=preprocessor
        )
        trainer.train()
        return trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    arguments = parser.parse_args()
    train_data, _ = make_data(ROWS, 1)
    test_data, true = make_data(TEST_ROWS, 2)
    preprocessor = TablePreprocessor.fit(train_data, "target")
    decile = np.argsort(np.argsort(true)) * DECILES // len(true)
    found: dict[str, np.ndarray] = {}
    rows = []
    for name in arguments.methods:
        trainer = train(*METHODS[name], train_data, preprocessor, arguments.epochs)
        predicted = predicted_numbers(trainer, trainer.task.prepare(test_data, trainer.args, "test"))
        ratio = preprocessor.restore_variance(predicted.variance) / true
        found[name] = np.array([np.median(ratio[decile == number]) for number in range(DECILES)])
        excess = float(np.mean((predicted.labels - predicted.mean) ** 2)) * preprocessor.target_std**2 - true.mean()
        inside = ((found[name] >= BAND[0]) & (found[name] <= BAND[1])).sum()
        rows.append([name, *(f"{value:.2f}" for value in found[name]), f"{inside} of {DECILES}", f"{excess:+.3f}"])
        print(rows[-1], flush=True)
    edges = [f"{np.median(true[decile == number]):.2f}" for number in range(DECILES)]
    table = markdown_table([["median true variance", *edges, "in the band", "MSE - mean variance"], *rows])
    text = (
        "# Heteroscedastic synthetic data\n\n"
        f"Made by `python docs/heteroscedastic.py` (torch {torch.__version__}).\n\n"
        "Median of predicted / true variance in each tenth of the test rows by true variance "
        f"({ROWS:,} training rows, {TEST_ROWS:,} test rows, one seed); the band is {BAND[0]} to {BAND[1]}.\n\n"
        f"{table}\n"
    )
    print(text)
    (DOCS / "results/heteroscedastic.md").write_text(text)
    draw(found, edges)


def draw(found: dict[str, np.ndarray], edges: list[str]) -> None:
    colours = ["#0072B2", "#D55E00", "#009E73"]
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    axis.axhspan(*BAND, color="#DDDDDD", zorder=0)
    axis.axhline(1, color="#777777", linewidth=0.8, zorder=1)
    for number, (name, values) in enumerate(found.items()):
        style = "-" if "head" in name else "--"
        axis.plot(range(DECILES), values, style, marker="o", markersize=4, color=colours[number % 3], label=name)
    axis.set(yscale="log", xlabel="median true variance in a tenth of the rows", ylabel="predicted / true variance")
    axis.set_xticks(range(DECILES), edges)
    ticks = [0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 1.25, 2]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.legend(fontsize=8, ncols=2)
    figure.savefig(DOCS / "images/heteroscedastic.png", dpi=120)


if __name__ == "__main__":
    main()
