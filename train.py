"""Fine-tune a model with CLUE: `python train.py configs/NAME.yaml --alpha 0.9` (the same as `clue-hf train`)."""

import sys

from clue_hf.cli.main import main


if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
