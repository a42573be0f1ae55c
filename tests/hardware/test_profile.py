"""Profiles: curves that obey their law, files that come back, presets that say what they are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtjax.core.errors import UserError
from gtjax.hardware import COLLECTIVES, PRESETS, Curve, preset, read_profile
from gtjax.hardware.picture import draw_profile
from tests.planner.profiles import profile

SIZES = st.floats(1, 1e12)
TIMES = st.lists(st.floats(1e-7, 10), min_size=2, max_size=8)


@given(TIMES, SIZES, SIZES)
def test_more_bytes_never_take_less_time(times, one, other):
    points = tuple((4.0**power, seconds) for power, seconds in enumerate(times, start=4))
    curve = Curve("all-gather", 4, 1, points)
    less, more = sorted((one, other))
    assert curve.seconds(less) <= curve.seconds(more) * (1 + 1e-9)


def test_a_curve_goes_through_its_points_and_on_at_its_bandwidth():
    curve = Curve("all-to-all", 2, 1, ((1e3, 1e-4), (1e6, 2e-4), (3e6, 6e-4)))
    assert curve.seconds(1e6) == pytest.approx(2e-4)
    assert curve.seconds(2e6) == pytest.approx(4e-4)
    assert curve.bandwidth == pytest.approx(5e9)
    assert curve.seconds(13e6) == pytest.approx(6e-4 + 10e6 / 5e9)
    assert curve.latency == 1e-4


def test_links_between_hosts_are_apart_from_those_within():
    hardware = profile(bandwidth=10e9, between=1e9, per_host=4)
    within, between = (hardware.curve("all-gather", 8, hosts) for hosts in (1, 2))
    assert within.bandwidth == pytest.approx(10e9, rel=0.01)
    assert between.bandwidth == pytest.approx(1e9, rel=0.01)


def test_of_more_devices_than_measured_latency_grows_and_bandwidth_stays():
    hardware = profile(devices=2, latency=1e-5)
    many = hardware.curve("all-gather", 64)
    assert many.latency == pytest.approx(63 * hardware.curve("all-gather", 2).latency, rel=0.01)
    assert many.bandwidth == pytest.approx(10e9, rel=0.05)
    alone = hardware.curve("collective-permute", 64)
    assert alone.latency == hardware.curve("collective-permute", 2).latency


def test_a_profile_comes_back_from_its_file(tmp_path):
    hardware = profile(between=1e9)
    hardware.save(tmp_path / "deep" / "profile.json")
    assert read_profile(tmp_path / "deep" / "profile.json") == hardware


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: json.dumps({**json.loads(text), "format": 99}),
        lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "curves"}),
        lambda text: json.dumps({**json.loads(text), "surprise": 1}),
    ],
)
def test_a_damaged_profile_is_named(tmp_path, damage):
    path = tmp_path / "profile.json"
    profile().save(path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(UserError, match=r"profile\.json"):
        read_profile(path)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_marked_and_names_its_source(name):
    hardware = preset(name)
    assert hardware.preset
    assert "NVIDIA" in hardware.source or "Google" in hardware.source
    for collective in COLLECTIVES:
        assert 1e8 < hardware.curve(collective, 4).bandwidth < 1e12
    json.dumps(hardware.to_json(), allow_nan=False)


def test_ethernet_between_hosts_is_slower_the_slower_it_is():
    speeds = [preset(f"a100-nvlink+{net}").curve("all-gather", 16, 2).bandwidth for net in _NETS]
    assert speeds == sorted(speeds)
    assert speeds[-1] < preset("a100-nvlink").curve("all-gather", 8).bandwidth


_NETS = ("10g", "25g", "100g")


def test_a_preset_that_is_none_suggests_one():
    with pytest.raises(UserError, match="tpu-v5e"):
        preset("tpu-v5")


def test_the_picture_shows_every_collective(tmp_path):
    draw_profile(profile(), tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text()
    assert text.startswith("<?xml")
