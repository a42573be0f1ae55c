"""Choosing a model and its settings by validation: see README.md."""
