"""Which texts of another system can be trusted? From a file with outputs, references and log-probabilities.

    python examples/judge_texts.py outputs.jsonl

Every row is {"output": ..., "reference": ..., "token_log_probabilities": [...]}, as a server or an API returns them.
"""

import sys

from clue_hf import UncertaintyEvaluator
from clue_hf.cli.main import main


outputs = sys.argv[1]
report = UncertaintyEvaluator(scorers=["msp", "perplexity"], quality="chrf").evaluate_outputs(outputs)
print(report.table())

# what a score means: the quality to expect, and below which score the quality is certified
main(
    [
        "calibrate",
        "--outputs",
        outputs,
        "--quality",
        "chrf",
        "--scorer",
        "perplexity",
        "--output_dir",
        "out/examples/texts",
    ]
)
