"""How a run lives: configuration, program, loop, checkpoints, reports."""
