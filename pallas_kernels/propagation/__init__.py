"""Propagation by attention whose weights are computed once."""

from pallas_kernels.propagation.propagate import propagate, propagation_needs

__all__ = ["propagate", "propagation_needs"]
