"""The kernels of ops on a platform, as users name them."""

from __future__ import annotations

from collections.abc import Iterable

import jax

from gtjax.core.errors import UserError
from pallas_kernels import OPS, Op
from pallas_kernels.op import KERNEL_PLATFORMS


def kernels_in_use(kernel: str, ops: Iterable[Op] | None = None) -> dict[str, str]:
    """The kernel that each op runs with here; one that is asked for and cannot run is an error."""
    platform = jax.default_backend()
    try:
        return {op.name: op.kernel(kernel, platform).name for op in ops or OPS.values()}
    except ValueError as error:
        raise UserError(f"--kernel {kernel}: {error}") from error


def states_of_kernels() -> dict[str, str]:
    """For every kernel, whether it runs here, and if not why."""
    platform, found = jax.default_backend(), {}
    for name, platforms in KERNEL_PLATFORMS.items():
        reasons = {
            op.why_not(kernel)
            for op in OPS.values()
            for kernel in op.all_kernels()
            if kernel.name == name and platform in kernel.platforms
        }
        if platform not in platforms:
            found[name] = f"does not run: it is for {', '.join(platforms)}, and this is {platform}"
        elif reasons <= {None}:
            found[name] = "runs"
        else:
            found[name] = f"does not run: {'; '.join(sorted(r for r in reasons if r))}"
    return found


def missing_kernels(ops: Iterable[Op] | None = None) -> dict[str, str]:
    """Kernels that are made for this platform and cannot run on it, and why."""
    platform = jax.default_backend()
    able = (k for op in ops or OPS.values() for k in op.kernels if platform in k.platforms)
    return {kernel.name: reason for kernel in able if (reason := kernel.why_not())}
