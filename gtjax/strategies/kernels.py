"""The attention back end of a run, as users name it."""

from __future__ import annotations

import jax

from gtjax.graph import UserError
from pallas_kernels.segment_attention import BACKENDS, backend_name


def kernel_name(kernel: str) -> str:
    """The attention back end that `kernel` stands for here; one that cannot run is an error."""
    try:
        return backend_name(kernel)
    except ValueError as error:
        raise UserError(f"--kernel {kernel}: {error}") from error


def missing_kernels() -> dict[str, str]:
    """Back ends that are made for this platform and cannot run on it, and why."""
    platform = jax.default_backend()
    reasons = {n: b.why_not() for n, b in BACKENDS.items() if platform in b.platforms}
    return {name: reason for name, reason in reasons.items() if reason}
