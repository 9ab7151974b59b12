"""Model cards and uploads to the Hugging Face Hub."""

from .card import write_card
from .push import push_folder


__all__ = ["push_folder", "write_card"]
