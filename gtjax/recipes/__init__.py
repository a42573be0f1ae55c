"""Ways of training a model beyond the loss of its task; see README.md."""
