"""Every metric of a model at once, with bootstrap intervals, and the paired differences of two models."""
