"""Evaluating trained models."""

from .teacher_forced import TokenStatistics, token_statistics


__all__ = ["TokenStatistics", "token_statistics"]
