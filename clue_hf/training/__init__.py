"""What a training survives: checkpoints, saving, guards, locks, pushing."""
