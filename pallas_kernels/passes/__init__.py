"""Passes over edges, by back end: what the kernels of all ops are made of."""
