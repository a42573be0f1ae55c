"""Several processes as one run: joining, agreeing, noticing who is missing, starting again."""
