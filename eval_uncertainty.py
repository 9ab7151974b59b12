"""How far can a model's outputs be trusted: `python eval_uncertainty.py MODEL --config configs/NAME.yaml` (the same as
`clue-hf evaluate`)."""

import sys

from clue_hf.cli.main import main


if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
