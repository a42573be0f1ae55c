"""The curves of a profile: seconds over bytes, for every collective and number of devices."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gtjax.hardware.profile import COLLECTIVES, HardwareProfile


def draw_profile(profile: HardwareProfile, path: Path) -> None:
    """Draw every collective, and the arithmetic beside them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.6), layout="constrained")
    panels = figure.subplots(2, 3).reshape(-1)
    for axes, collective in zip(panels, COLLECTIVES, strict=False):
        for curve in profile.curves:
            if curve.collective != collective:
                continue
            sizes = np.geomspace(256, max(curve.points[-1][0], 2**22), 60)
            where = "" if curve.hosts == 1 else f", {curve.hosts} hosts"
            label = f"{curve.devices} devices{where}"
            (line,) = axes.plot(sizes, [curve.seconds(size) for size in sizes], lw=1, label=label)
            if not profile.preset:
                axes.plot(*zip(*curve.points, strict=True), ".", color=line.get_color(), ms=4)
        axes.set(xscale="log", yscale="log", title=collective)
        axes.set(xlabel="bytes received", ylabel="seconds")
        if axes.lines:
            axes.legend(frameon=False, fontsize=7)
    widths, rates = zip(*profile.compute.matmul, strict=True)
    panels[-1].plot(widths, [rate / 1e9 for rate in rates], marker=".", lw=1)
    panels[-1].set(title="matrix products", xlabel="width", ylabel="GFLOP/s", ylim=(0, None))
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    kind = "preset, published figures" if profile.preset else f"measured {profile.date}"
    figure.suptitle(f"{profile.name} ({kind})")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
