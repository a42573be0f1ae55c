"""Hardware that is made up, so that tests plan in no time and the same everywhere."""

from __future__ import annotations

from gtjax.hardware import COLLECTIVES, Compute, Curve, HardwareProfile, OpPoint


def profile(
    *,
    bandwidth: float = 10e9,
    latency: float = 1e-5,
    memory: float = 16 * 2**30,
    devices: int = 8,
    per_host: int | None = None,
    between: float | None = None,
    overlap: float = 0.0,
) -> HardwareProfile:
    """Devices with straight lines for links; `between` is the bandwidth between hosts."""
    curves = [_line(each, devices, 1, bandwidth, latency) for each in COLLECTIVES]
    if between is not None:
        curves += [_line(each, devices, 2, between, latency) for each in COLLECTIVES]
    points = tuple(
        OpPoint(
            op="dot_product" if family == "softmax" else "weighted_sum",
            kernel=kernel,
            family=family,
            direction=way,
            edges=edges,
            rows=edges // 8,
            senders=senders,
            heads=heads,
            sender_bytes=4 * width,
            row_bytes=4 * width,
            skew=0.02,
            seconds=cost * edges * width * (1 + (senders > 10_000)) / 8e9,
        )
        for family in ("softmax", "sum")
        for kernel in ("cpu", "xla")
        for way, cost in (("forward", 1.0), ("backward", 2.5))
        for edges, senders, heads, width in (
            (100_000, 1_000, 8, 64),
            (100_000, 1_000, 8, 128),
            (100_000, 100_000, 8, 128),
            (100_000, 1_000, 1, 16),
        )
    )
    return HardwareProfile(
        name="made up",
        platform="cpu",
        device_kind="cpu",
        devices=devices,
        devices_per_host=per_host or devices,
        memory_bytes=memory,
        curves=tuple(curves),
        compute=Compute(
            matmul=((32.0, 20e9), (256.0, 50e9)),
            stream=8e9,
            bend=3e8,
            fresh=1e-10,
            gather=4e9,
            scatter=2e9,
            ops=points,
            overlap=overlap,
        ),
        source="made up for a test",
    )


def _line(name: str, devices: int, hosts: int, bandwidth: float, latency: float) -> Curve:
    sizes = [2.0**power for power in range(8, 28, 2)]
    return Curve(name, devices, hosts, tuple((size, latency + size / bandwidth) for size in sizes))
