"""Loading and building models."""
