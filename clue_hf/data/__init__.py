"""Loading data, mapping columns, splitting, tokenising."""
