"""Fine-tune a T5 with CLUE on pairs of texts, and see error and uncertainty come together.

python examples/fine_tune_t5.py google-t5/t5-small pairs.jsonl     # rows with a "source" and a "target"
"""

import sys

from datasets import load_dataset

from clue_hf import CLUEConfig, CLUETrainer, generate_with_uncertainty


model, pairs = sys.argv[1:3]
data = load_dataset("json", data_files=pairs, split="train").train_test_split(0.2, seed=0)
config = CLUEConfig(
    "out/examples/t5",
    alpha=0.9,  # 1 is plain cross-entropy
    clue_gradient="uncertainty",
    learning_rate=1e-3,
    num_train_epochs=1,
    eval_strategy="epoch",
    logging_steps=5,
    max_source_length=64,
    max_target_length=64,
    report_to="none",
)
trainer = CLUETrainer(model, config, train_dataset=data["train"], eval_dataset=data["test"])
before = trainer.evaluate()
trainer.train()
after = trainer.evaluate()
for name in ("eval_error", "eval_uncertainty", "eval_mean_token_accuracy"):
    print(f"{name:26s} {before[name]:.3f} -> {after[name]:.3f}")

sources = data["test"]["source"][:3]
for output in generate_with_uncertainty(trainer.model, trainer.processing_class, sources, ["perplexity"]):
    print(f"{output.uncertainty:.3f}  {output.text}")
