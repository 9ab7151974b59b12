"""One training with its report, and comparisons over methods and seeds."""
