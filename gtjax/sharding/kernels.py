"""The kernels of ops on a platform, as users name them."""

from __future__ import annotations

from collections.abc import Iterable

import jax

from gtjax.core.errors import UserError
from pallas_kernels import OPS, Op


def kernels_in_use(kernel: str, ops: Iterable[Op] | None = None) -> dict[str, str]:
    """The kernel that each op runs with here; one that is asked for and cannot run is an error."""
    platform = jax.default_backend()
    try:
        return {op.name: op.kernel(kernel, platform).name for op in ops or OPS.values()}
    except ValueError as error:
        raise UserError(f"--kernel {kernel}: {error}") from error


def missing_kernels(ops: Iterable[Op] | None = None) -> dict[str, str]:
    """Kernels that are made for this platform and cannot run on it, and why."""
    platform = jax.default_backend()
    able = (k for op in ops or OPS.values() for k in op.kernels if platform in k.platforms)
    return {kernel.name: reason for kernel in able if (reason := kernel.why_not())}
