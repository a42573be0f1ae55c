"""Hardware that one does not have at hand, from published figures.

Nothing here was measured. Arithmetic is the published peak times a share that dense layers and
gathers usually reach; links are a latency and a bandwidth. A plan made from a preset says so, and
has wide error bars: measure with `gtjax profile` where the devices are.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from gtjax.core.errors import UserError
from gtjax.hardware.profile import COLLECTIVES, Compute, Curve, HardwareProfile

GIB = 2.0**30
MATMUL_SHARE = 0.4  # of the published peak, of products as narrow as a graph transformer's
STREAM_SHARE = 0.8  # of the published memory bandwidth, of passes over memory
GATHER_SHARE = 0.4  # of the published memory bandwidth, of rows picked by number
REACH = 1e9  # bytes: the far end of a straight line


@dataclass(frozen=True)
class Link:
    """Between devices: one way, per device."""

    bandwidth: float  # bytes a second
    latency: float  # seconds


@dataclass(frozen=True)
class Chip:
    """Published figures of one device and its links."""

    platform: str
    kind: str
    memory: float
    flops: float  # of float32: TF32 on a GPU, three passes of bfloat16 on a TPU
    bandwidth: float  # of its memory, bytes a second
    within: Link  # a host or a slice
    devices_per_host: int
    source: str


ETHERNET = {"10g": Link(1.15e9, 50e-6), "25g": Link(2.9e9, 40e-6), "100g": Link(11.5e9, 25e-6)}
_NVLINK3, _NVLINK4 = Link(250e9, 8e-6), Link(380e9, 8e-6)
_PCIE4, _PCIE5 = Link(22e9, 12e-6), Link(45e9, 12e-6)
_NVIDIA = "NVIDIA data sheet"
_CLOUD = "Google Cloud TPU documentation"

CHIPS: dict[str, Chip] = {
    "a100-nvlink": Chip(
        "gpu", "A100 80GB SXM", 80e9, 156e12, 2039e9, _NVLINK3, 8,
        f"{_NVIDIA} A100: 80 GB, TF32 156 TFLOP/s, 2,039 GB/s, NVLink 600 GB/s both ways",
    ),
    "a100-pcie": Chip(
        "gpu", "A100 80GB PCIe", 80e9, 156e12, 1935e9, _PCIE4, 8,
        f"{_NVIDIA} A100: 80 GB, TF32 156 TFLOP/s, 1,935 GB/s, PCIe 4.0 x16 64 GB/s both ways",
    ),
    "h100-nvlink": Chip(
        "gpu", "H100 SXM", 80e9, 495e12, 3350e9, _NVLINK4, 8,
        f"{_NVIDIA} H100: 80 GB, TF32 495 TFLOP/s dense, 3,350 GB/s, NVLink 900 GB/s both ways",
    ),
    "h100-pcie": Chip(
        "gpu", "H100 PCIe", 80e9, 378e12, 2000e9, _PCIE5, 8,
        f"{_NVIDIA} H100: 80 GB, TF32 378 TFLOP/s dense, 2,000 GB/s, PCIe 5.0 128 GB/s both ways",
    ),
    "tpu-v4": Chip(
        "tpu", "TPU v4", 32 * GIB, 275e12 / 3, 1228e9, Link(100e9, 5e-6), 4096,
        f"{_CLOUD}: v4, 32 GiB, bfloat16 275 TFLOP/s, 1,228 GB/s, six links of 50 GB/s both ways",
    ),
    "tpu-v5e": Chip(
        "tpu", "TPU v5 lite", 16 * GIB, 197e12 / 3, 819e9, Link(80e9, 5e-6), 256,
        f"{_CLOUD}: v5e, 16 GB, bfloat16 197 TFLOP/s, 819 GB/s, 1,600 Gbit/s between chips",
    ),
    "tpu-v5p": Chip(
        "tpu", "TPU v5", 95 * GIB, 459e12 / 3, 2765e9, Link(200e9, 5e-6), 8960,
        f"{_CLOUD}: v5p, 95 GB, bfloat16 459 TFLOP/s, 2,765 GB/s, 4,800 Gbit/s between chips",
    ),
    "tpu-v6e": Chip(
        "tpu", "TPU v6 lite", 32 * GIB, 918e12 / 3, 1640e9, Link(170e9, 5e-6), 256,
        f"{_CLOUD}: v6e, 32 GB, bfloat16 918 TFLOP/s, 1,640 GB/s, 3,584 Gbit/s between chips",
    ),
    "tpu-7x": Chip(
        "tpu", "TPU7x", 192 * GIB, 2307e12 / 3, 7380e9, Link(400e9, 5e-6), 9216,
        f"{_CLOUD}: 7x, 192 GiB, bfloat16 2,307 TFLOP/s, 7,380 GB/s, 9.6 Tbit/s between chips",
    ),
}  # fmt: skip

# Names as users write them: a chip, or a chip with hosts that are linked by Ethernet.
PRESETS: tuple[str, ...] = tuple(
    name
    for chip in CHIPS
    for name in (chip, *(f"{chip}+{net}" for net in ETHERNET if CHIPS[chip].platform == "gpu"))
)


def preset(name: str) -> HardwareProfile:
    """A profile from published figures."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UserError(
            f"no preset {name!r}. {hint}Presets: {', '.join(CHIPS)}; GPUs also with hosts linked "
            f"by Ethernet, such as a100-nvlink+100g. Or give the file of a measured profile."
        )
    chip_name, _, network = name.partition("+")
    chip = CHIPS[chip_name]
    between = ETHERNET[network or "100g"]
    # A host's network card is shared by its devices.
    far = Link(between.bandwidth / chip.devices_per_host, between.latency)
    source = chip.source
    curves = [_curve(each, 1, chip.within) for each in COLLECTIVES]
    if chip.platform == "gpu":
        curves += [_curve(each, 2, far) for each in COLLECTIVES]
        source += f"; hosts of {chip.devices_per_host} linked by {network or '100g'} Ethernet each"
    gather = GATHER_SHARE * chip.bandwidth
    return HardwareProfile(
        name=name,
        platform=chip.platform,
        device_kind=chip.kind,
        devices=chip.devices_per_host,
        devices_per_host=chip.devices_per_host,
        memory_bytes=chip.memory,
        curves=tuple(curves),
        compute=Compute(
            matmul=tuple((w, MATMUL_SHARE * chip.flops * min(1, w / 256)) for w in (32.0, 256.0)),
            stream=STREAM_SHARE * chip.bandwidth,
            bend=STREAM_SHARE * chip.bandwidth / 24,  # six passes of four bytes
            fresh=0.0,
            gather=gather,
            scatter=gather,
            overlap=0.7,  # asynchronous collectives, with an allowance for what they share
        ),
        source=source,
        preset=True,
    )


def _curve(collective: str, hosts: int, link: Link) -> Curve:
    points = ((0.0, link.latency), (REACH, link.latency + REACH / link.bandwidth))
    return Curve(collective, 2, hosts, points)
