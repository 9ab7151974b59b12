"""What a million rows and a model of 7 billion weights take on one and on eight GPUs: arithmetic, nothing is measured.

The numbers of copies of the logits are those of results/loss.md; everything else is an assumption below.
"""

from __future__ import annotations

from measure import write_table


#: A model of Llama 2 7B's shape in bf16, and the vocabulary of Llama 3 for comparison.
WEIGHTS, LAYERS, WIDTH, VOCABULARY, LARGE_VOCABULARY = 6.7e9, 32, 4096, 32_000, 128_256
ROWS, SOURCE, TARGET = 1_000_000, 128, 64
#: An H100 SXM: bf16 operations per second without sparsity, bytes per second and bytes of its memory (data sheet).
PEAK, BANDWIDTH, MEMORY = 989e12, 3.35e12, 80e9
#: Assumed: which share of them is reached, which share of eight times the speed, and the least time of a decoding step
#: (some thousand kernels that are started one by one).
COMPUTE_SHARE, BANDWIDTH_SHARE, SCALING, LEAST_STEP = 0.4, 0.6, 0.9, 0.025
GPUS = 8
#: Tokens of a training batch on a GPU; sources of an evaluation batch, and texts of each: one greedy, ten samples.
BATCH_TOKENS, BATCH, TEXTS = 8192, 16, 11
#: Bytes for each weight: bf16 weight and gradient, float32 copy and both moments of AdamW.
WEIGHT_BYTES, TRAINED_BYTES = 2, 2 + 2 + 4 + 4 + 4
#: Copies of the logits in float32 (results/loss.md), and the rows of logits that the fused head holds.
CE_COPIES, CLUE_COPIES, CHUNK = 3, 5, 256
#: LoRA of rank 16 on the query and value projections.
ADAPTER = LAYERS * 2 * 2 * WIDTH * 16


def hours(seconds: float, gpus: int) -> str:
    return f"{seconds / 3600 / (1 if gpus == 1 else gpus * SCALING):.1f} h"


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def training_seconds(operations_per_weight: int) -> float:
    """
    An epoch on one GPU. Operations per weight and token: 2 forward, 2 for that again where activations are
    checkpointed, 2 for the gradients of what a layer reads, 2 for those of its weights (not with LoRA).
    """
    return operations_per_weight * WEIGHTS * ROWS * (SOURCE + TARGET) / (COMPUTE_SHARE * PEAK)


def logits(copies: float, vocabulary: int, tokens: int = BATCH_TOKENS) -> float:
    return copies * tokens * vocabulary * 4


def cache_bytes(tokens: float) -> float:
    """Keys and values of one text."""
    return 2 * LAYERS * WIDTH * WEIGHT_BYTES * tokens


def step_seconds() -> dict[str, float]:
    """A decoding step of a batch: what it computes, what it reads, and the least it takes."""
    texts = BATCH * TEXTS
    read = WEIGHT_BYTES * WEIGHTS + texts * cache_bytes(SOURCE + TARGET / 2)
    return {
        "compute": 2 * WEIGHTS * texts / (COMPUTE_SHARE * PEAK),
        "read": read / (BANDWIDTH_SHARE * BANDWIDTH),
        "least": LEAST_STEP,
    }


def evaluation_seconds() -> float:
    """Source and reference, the reference without a source, and the decoding steps of all batches on one GPU."""
    passes = 2 * WEIGHTS * ROWS * (SOURCE + TARGET + TARGET) / (COMPUTE_SHARE * PEAK)
    return passes + ROWS / BATCH * TARGET * max(step_seconds().values())


def rows() -> list[list[str]]:
    full, adapter = TRAINED_BYTES * WEIGHTS, WEIGHT_BYTES * WEIGHTS + TRAINED_BYTES * ADAPTER
    activations = BATCH_TOKENS * WIDTH * LAYERS * 2
    decoding = WEIGHT_BYTES * WEIGHTS + BATCH * TEXTS * cache_bytes(SOURCE + TARGET)
    step = step_seconds()
    ways = {"cross-entropy": CE_COPIES, "CLUE by autograd": CLUE_COPIES}
    vocabularies = (VOCABULARY, LARGE_VOCABULARY)
    held = {way: " / ".join(gigabytes(logits(copies, size)) for size in vocabularies) for way, copies in ways.items()}
    held["fused head"] = " / ".join(gigabytes(logits(1, size, CHUNK)) for size in vocabularies)
    return [
        ["epoch of training, all weights", "does not fit", hours(training_seconds(8), GPUS)],
        ["epoch of training, LoRA", hours(training_seconds(6), 1), hours(training_seconds(6), GPUS)],
        ["weights, gradients, AdamW, all weights", gigabytes(full), f"{gigabytes(full / GPUS)} each, sharded"],
        ["weights, gradients, AdamW, LoRA", gigabytes(adapter), f"{gigabytes(adapter)} each"],
        ["activations between layers, checkpointed", *[gigabytes(activations)] * 2],
        *([f"logits of a batch, {way}", size, size] for way, size in held.items()),
        ["evaluation, seven scorers, ten samples", hours(evaluation_seconds(), 1), hours(evaluation_seconds(), GPUS)],
        ["weights and cache of an evaluation batch", gigabytes(decoding), f"{gigabytes(decoding)} each"],
        ["a decoding step: compute / read / least", *[" / ".join(f"{1e3 * s:.1f} ms" for s in step.values())] * 2],
    ]  # fmt: skip


def main() -> None:
    write_table(
        "on_paper",
        "A million rows and 7 billion weights, on paper",
        ["what", "one GPU", "eight GPUs"],
        rows(),
        f"Arithmetic, nothing is measured. {ROWS:,} rows of {SOURCE} source and {TARGET} target tokens; {WEIGHTS:.2g} "
        f"weights in bf16, {LAYERS} layers of width {WIDTH:,}, a vocabulary of {VOCABULARY:,} (after the slash "
        f"{LARGE_VOCABULARY:,}). GPU: H100 SXM, {PEAK / 1e12:.0f} TFLOP/s in bf16, {BANDWIDTH / 1e12:g} TB/s, "
        f"{MEMORY / 1e9:.0f} GB; assumed are {COMPUTE_SHARE:.0%} of the operations, {BANDWIDTH_SHARE:.0%} of the "
        f"bandwidth, at least {1e3 * LEAST_STEP:.0f} ms for a decoding step, and {SCALING:.0%} of eight times the "
        "speed. Operations per weight and token: 2 forward, 8 for training with checkpointed activations, 6 of them "
        "with LoRA. Bytes per weight: "
        f"{WEIGHT_BYTES} in use, {TRAINED_BYTES} in training. A training batch has {BATCH_TOKENS:,} tokens on each "
        f"GPU; its logits are held {CE_COPIES} times by cross-entropy and {CLUE_COPIES} times by CLUE on the logits, "
        f"in float32 ([loss.md](loss.md)), and the fused head holds {CHUNK} rows of them. An evaluation batch has "
        f"{BATCH} sources with {TEXTS} texts each; a step reads all weights and the cache of every text.",
    )


if __name__ == "__main__":
    main()
