"""Measuring, shortened, on simulated devices: that figures are there and sane."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from gtjax.hardware import COLLECTIVES, arithmetic, links, ops, read_profile
from gtjax.hardware.links import ROUNDS, axes_of, collective_program
from gtjax.hardware.measure import (
    cached_path,
    measured_profile,
    measuring_notice,
    memory_capacity,
)
from gtjax.sharding.collectives import bytes_received


@pytest.fixture
def short(monkeypatch, tmp_path):
    """Few and small measurements, and a cache of their own."""
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(links, "SIZES", (2**8, 2**14))
    monkeypatch.setattr(links, "LARGER", ())
    monkeypatch.setattr(ops, "EDGES", 2**12)
    monkeypatch.setattr(ops, "XLA_EDGES", 2**12)
    monkeypatch.setattr(ops, "CASES", (*ops.CASES[:2], *ops.CASES[-7::2]))
    monkeypatch.setattr(arithmetic, "WIDTHS", (32, 256))
    monkeypatch.setattr(arithmetic, "PASS_VALUES", 2**14)


@pytest.mark.slow
def test_everything_is_measured_once_and_then_remembered(short):
    devices, said = jax.devices()[:4], []
    notice = measuring_notice(devices)
    assert notice is not None
    assert notice.startswith("measuring 4 devices, which takes about a minute")
    assert notice.endswith(f"remembered in {cached_path(devices)}")
    found = measured_profile(devices, progress=lambda done, text: said.append((done, text)))
    assert {(c.collective, c.devices) for c in found.curves} == {
        (name, size) for name in COLLECTIVES for size in (2, 4)
    }
    assert all(seconds > 0 for c in found.curves for _, seconds in c.points)
    assert {p.direction for p in found.compute.ops} == {"forward", "backward"}
    assert found.compute.alone >= 1
    assert 0 <= found.compute.overlap <= 1
    assert found.memory_bytes == pytest.approx(memory_capacity(devices))
    assert [done for done, _ in said] == sorted(done for done, _ in said)
    assert not found.preset
    assert "simulated" in found.source
    assert read_profile(cached_path(devices)) == found
    assert measuring_notice(devices) is None
    said.clear()
    assert measured_profile(devices, progress=lambda *words: said.append(words)) == found
    assert not said


@pytest.mark.slow
def test_a_profile_of_another_version_is_measured_again(short):
    devices = jax.devices()[:2]
    path = cached_path(devices)
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert measured_profile(devices).devices == 2


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("size", [2, 4])
def test_a_device_receives_what_the_curve_says(name, size):
    (mesh,) = [mesh for mesh, _ in axes_of(jax.devices()[:4]) if mesh.shape["axis"] == size]
    program, argument = collective_program(name, mesh, 2**16)
    program(argument)
    # The collective stands in a loop, in which the text counts it once.
    received = bytes_received(program.as_text(), 4)
    assert ROUNDS > 1
    assert received[name] == pytest.approx(2**16, rel=0.02)


def test_axes_within_and_between_hosts_are_told_apart():
    class Device:
        def __init__(self, number):
            self.id, self.process_index = number, number // 4
            self.platform = "cpu"

    devices = np.array([Device(number) for number in range(8)])
    found = {(grid.shape[1], hosts) for grid, hosts in links.groups_of(devices)}
    assert found == {(2, 1), (2, 2), (4, 1), (4, 2), (8, 2)}
