"""Evaluation of classifiers."""
