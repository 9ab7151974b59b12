"""Evaluation of models that predict numbers."""
