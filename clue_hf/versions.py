"""The versions that numbers were made with."""

from __future__ import annotations

from . import __version__


def package_versions() -> dict[str, str]:
    """Of this package and those that decide its numbers."""
    import torch
    import transformers

    return {"clue_hf": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
