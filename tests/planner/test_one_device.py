"""One device beside a plan for several: predicted, and remarked on where it would be faster."""

from __future__ import annotations

import dataclasses

import pytest

from gtjax.planner import one_device_seconds, slower_than_one
from tests.planner.profiles import profile
from tests.planner.test_plan import GRID, MODEL, planned

SIZES = (GRID.num_nodes, GRID.num_edges)


def test_one_device_has_the_processor_for_itself():
    works = {"none": MODEL}
    shared = one_device_seconds(*SIZES, works, profile(), capacity=1e12)
    compute = dataclasses.replace(profile().compute, alone=4.0)
    hardware = dataclasses.replace(profile(), compute=compute)
    alone = one_device_seconds(*SIZES, works, hardware, capacity=1e12)
    assert shared is not None
    assert alone is not None
    assert 0.2 * shared < alone < 0.5 * shared


def test_what_does_not_fit_on_one_device_is_not_compared():
    """Simulated devices have the memory of one processor, which one of them would have alone."""
    works, hardware = {"none": MODEL}, profile(devices=8)
    single = planned(GRID, devices=1).chosen.price.peak_bytes
    assert one_device_seconds(*SIZES, works, hardware, capacity=single / 7) is not None
    assert one_device_seconds(*SIZES, works, hardware, capacity=single / 9) is None


def stored(alone, *, preset=False):
    made = dataclasses.replace(planned(GRID), one_device_seconds=alone)
    hardware = dataclasses.replace(made.hardware, preset=preset)
    return dataclasses.replace(made, hardware=hardware).to_json()


def test_what_is_slower_than_one_device_is_remarked_on():
    predicted = stored(1.0)["chosen"]["seconds"]
    said = slower_than_one(stored(predicted / 2), 8, 2)
    assert said is not None
    assert said.startswith("8 devices in 2 processes are predicted to take ")
    assert "2.0x as long as one device alone, which is predicted to take" in said
    assert slower_than_one(stored(predicted), 8, 2) is None
    measured = slower_than_one(stored(predicted), 8, 1, measured=3 * predicted)
    assert measured is not None
    assert measured.startswith("8 devices took ")
    assert "3.0x" in measured


@pytest.mark.parametrize("alone", [None, 1e-9])
def test_nothing_is_said_where_nothing_is_known(alone):
    assert slower_than_one(None, 8, 1) is None
    assert slower_than_one(stored(alone), 1, 1) is None  # resumed on one device
    assert slower_than_one(stored(alone, preset=True), 8, 1, measured=1.0) is None
    assert (slower_than_one(stored(alone), 8, 1) is None) == (alone is None)
