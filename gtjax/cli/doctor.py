"""`gtjax doctor`: versions, devices and what does not fit together, with what fixes it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gtjax.cli.arguments import parse


@dataclass(frozen=True)
class Doctor:
    """Check this machine's installation."""

    check: bool = False
    """Also run every op with every kernel that runs here, in all types, forward and backward: say
    whether they agree with XLA, and how long they take beside it and beside what memory allows."""


@dataclass(frozen=True)
class Machine:
    """What can be seen of a machine; apart from jax, so that the checks can be tested."""

    python: tuple[int, int]
    versions: Mapping[str, str]
    platforms: tuple[str, ...]
    has_nvidia: bool
    has_tpu: bool
    installed: frozenset[str]
    cache_error: str | None = None


def run(argv: list[str]) -> int:
    """Print what was found; exit code 1 if something needs fixing."""
    arguments = parse(Doctor, "doctor", argv)
    machine, devices, error = _look()
    lines = [f"{name:<18}{version}" for name, version in machine.versions.items()]
    lines += [f"{'device':<18}{device}" for device in devices]
    problems = find_problems(machine)
    if error:
        problems.insert(0, f"jax cannot start: {error}")
    else:
        lines += _kernels()
    if arguments.check and not error:
        print("\n".join(lines), flush=True)
        lines = []
        problems += _checked()
    lines += [f"problem: {problem}" for problem in problems] or ["no problems found"]
    print("\n".join(lines))
    return 1 if problems else 0


def _checked() -> list[str]:
    """Print the table of kernels, row by row; gives what is wrong in it."""
    import jax

    from gtjax.hardware import kernel_table

    print(kernel_table.HEADER, flush=True)
    wrong = []
    for row in kernel_table.table(jax.default_backend()):
        print(row, flush=True)
        if not row.agrees:
            wrong.append(
                f"kernel {row.kernel} of {row.op} in {row.dtype} is wrong here ({row.worst}): "
                "use --kernel xla, and attach this output to a bug report"
            )
    return wrong


def _kernels() -> list[str]:
    """Which kernels run, why others do not, and the one that each op runs with."""
    from gtjax.sharding import kernels

    lines = [
        f"{'kernel ' + name:<18}{state}" for name, state in kernels.states_of_kernels().items()
    ]
    in_use = kernels.kernels_in_use("auto").items()
    return lines + [f"{'kernel of ' + op:<26}{kernel}" for op, kernel in in_use]


def find_problems(machine: Machine) -> list[str]:
    """Each mismatch, with the command that fixes it."""
    problems = []
    if machine.python < (3, 11):
        problems.append(f"gtjax needs Python 3.11 or newer; this is {machine.python}")
    jax, jaxlib = machine.versions.get("jax", ""), machine.versions.get("jaxlib", "")
    if jax.split(".")[:2] != jaxlib.split(".")[:2]:
        problems.append(
            f"jax {jax} and jaxlib {jaxlib} do not belong together: "
            f'pip install --upgrade "jax=={jax}" "jaxlib=={jax}"'
        )
    for package, version in machine.versions.items():
        if version == "not installed":
            problems.append(f"{package} is missing: pip install {package}")
    if machine.has_nvidia and "gpu" not in machine.platforms and "cuda" not in machine.platforms:
        problems.append(
            "there is an NVIDIA GPU but jax only sees the CPU: "
            f'pip install --upgrade "jax[cuda12]=={jax}"'
        )
    if machine.has_tpu and "tpu" not in machine.platforms:
        problems.append(
            f'there is a TPU but jax does not see it: pip install --upgrade "jax[tpu]=={jax}"'
        )
    plugins = {p for p in machine.installed if p.startswith("jax_cuda")}
    if plugins and not machine.has_nvidia:
        problems.append(
            f"{', '.join(sorted(plugins))} is installed but there is no NVIDIA GPU: "
            "pip uninstall jax-cuda12-plugin jax-cuda12-pjrt"
        )
    if machine.cache_error:
        problems.append(
            f"the cache folder cannot be written ({machine.cache_error}): "
            "set GTJAX_CACHE_DIR to one that can"
        )
    return problems


def _look() -> tuple[Machine, list[str], str | None]:
    from gtjax.runs.run_folder import versions

    devices, error = [], None
    try:
        import jax

        devices = [f"{device.platform} {device.device_kind}" for device in jax.devices()]
        platforms = tuple(device.platform for device in jax.devices())
    except (ImportError, RuntimeError) as problem:
        platforms, error = (), str(problem)
    modules = ("jax_cuda12_plugin", "jax_cuda13_plugin", "libtpu")
    found = frozenset(name for name in modules if importlib.util.find_spec(name))
    machine = Machine(
        sys.version_info[:2],
        versions(),
        platforms,
        has_nvidia=Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi") is not None,
        has_tpu=Path("/dev/accel0").exists() or "TPU_NAME" in os.environ,
        installed=found,
        cache_error=_cache_error(),
    )
    return machine, devices, error


def _cache_error() -> str | None:
    from gtjax.datasets.cache_folder import cache_folder

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return None if os.access(folder, os.W_OK) else f"{folder}: not writable"
