"""Compare ways to get a calibrated classifier: the same data, start and seeds, one table with intervals.

    python examples/compare_methods.py
    python examples/compare_methods.py --methods ce,clue,focal,temperature,ensemble --seeds 5 --num_train_epochs 30

The first is small, so that it takes a minute; options replace those below.
"""

import sys

from clue_hf.cli.main import main


digits = ["configs/quickstart/resnet_digits.yaml", "--eval_strategy", "no", "--disable_tqdm", "true"]
small = ["--num_train_epochs", "2", "--max_train_samples", "400", "--mc_samples", "2", "--resamples", "200"]
methods = ["--methods", "ce,clue,temperature", "--seeds", "2", "--output_dir", "out/examples/compare"]
sys.exit(main(["compare", *digits, *small, *methods, *sys.argv[1:]]))
