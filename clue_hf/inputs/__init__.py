"""From rows to batches: texts, images and tables, written once for training, evaluation and use."""
