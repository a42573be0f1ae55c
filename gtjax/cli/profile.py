"""`gtjax profile`: measure how fast the devices here compute and talk."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gtjax.cli.arguments import parse
from gtjax.cli.processes import is_first, joined
from gtjax.distributed.join import Processes

if TYPE_CHECKING:
    from gtjax.hardware import HardwareProfile


@dataclass(frozen=True)
class ProfileArguments:
    """Measure collectives, dense layers, attention and memory of the devices here.

    The planner uses it. It is kept, by kind and number of devices, and measured once."""

    devices: int | None = None
    """Devices to measure, by default all; on a CPU so many are simulated."""
    again: bool = False
    """Measure again, whatever is kept."""
    preset: str | None = None
    """Show published figures of hardware that is not here instead; "list" names all."""
    out: Path | None = None
    """Also write the profile to this file (JSON), for --hardware."""
    picture: Path | None = None
    """Picture of the curves: .svg or .png."""
    json: bool = False
    """Print the profile as JSON."""
    processes: Annotated[Processes, tyro.conf.arg(name="")] = field(default_factory=Processes)


def run(argv: list[str]) -> int:
    """Measure, keep, print."""
    arguments = parse(ProfileArguments, "profile", argv)

    from gtjax.hardware.presets import PRESETS, preset
    from gtjax.partition.picture import check_picture

    if arguments.preset == "list":
        print("\n".join(PRESETS))
        return 0
    if arguments.picture is not None:
        check_picture(arguments.picture)
    profile = _measured(arguments) if arguments.preset is None else preset(arguments.preset)
    if not is_first():
        return 0
    if arguments.out is not None:
        from gtjax.core.errors import UserError

        try:
            profile.save(arguments.out)
        except OSError as error:
            raise UserError(f"--out {arguments.out}: cannot write: {error.strerror}") from error
    if arguments.picture is not None:
        from gtjax.hardware.picture import draw_profile

        draw_profile(profile, arguments.picture)
    if arguments.json:
        print(json.dumps(profile.to_json()))
    else:
        _print(profile)
    return 0


def _measured(arguments: ProfileArguments) -> HardwareProfile:
    import jax

    from gtjax.core.progress import progress, say
    from gtjax.hardware.measure import cached_path, measured_profile
    from gtjax.sharding.config import ParallelConfig
    from gtjax.sharding.mesh import available_devices

    joined(arguments.processes, ParallelConfig(devices=arguments.devices))
    count = available_devices(arguments.devices)
    started = time.monotonic()
    with progress("measuring", 1.0, show=is_first()) as update:
        profile = measured_profile(jax.devices()[:count], again=arguments.again, progress=update)
    if is_first():
        say(f"{time.monotonic() - started:.0f} s; kept in {cached_path(jax.devices()[:count])}")
    return profile


def _print(profile: HardwareProfile) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name in ("collective", "devices", "hosts", "latency", "bandwidth"):
        table.add_column(name, justify="left" if name == "collective" else "right")
    for curve in profile.curves:
        table.add_row(
            curve.collective,
            str(curve.devices),
            str(curve.hosts),
            f"{1e6 * curve.latency:.0f} us",
            f"{curve.bandwidth / 1e9:.3g} GB/s",
        )
    console = Console()
    console.print(table)
    compute = profile.compute
    widths = ", ".join(f"{rate / 1e9:.3g} at {width:.0f}" for width, rate in compute.matmul)
    lines = [
        f"{profile.name}: {profile.source}",
        f"memory of a device: {profile.memory_bytes / 2**30:.3g} GiB",
        f"matrix products, GFLOP/s by width: {widths}",
        f"passes over memory {compute.stream / 1e9:.3g} GB/s; rows picked by number "
        f"{compute.gather / 1e9:.3g} and added {compute.scatter / 1e9:.3g} GB/s",
    ]
    if profile.disk is not None:
        lines.append(
            f"disk of temporary files: read {profile.disk.read / 1e9:.3g} GB/s, written "
            f"{profile.disk.write / 1e9:.3g} GB/s"
        )
    for point in compute.ops:
        rate = point.edges / point.seconds / 1e6
        lines.append(
            f"{point.op} {point.direction} ({point.kernel}), {point.sender_bytes} bytes an edge, "
            f"{point.senders:,} rows: {rate:.3g} M edges/s"
        )
    if profile.preset:
        lines.append("A preset from published figures: nothing was measured.")
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
