"""Training: configuration, steps, the loop, checkpoints, reports."""
