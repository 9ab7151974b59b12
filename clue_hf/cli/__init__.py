"""The command line: `clue-hf train` and its siblings."""
