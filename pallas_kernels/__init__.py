"""Kernels for graphs: arrays in, arrays out. Imports jax and numpy, nothing of gtjax."""
