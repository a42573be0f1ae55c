"""Verification: slices as their compiler names them, and what cannot be verified."""

from __future__ import annotations

import pytest

from gtjax.core.errors import UserError
from gtjax.hardware import preset
from gtjax.nn import ModelConfig
from gtjax.runs.config import TrainConfig
from gtjax.runs.planning import Sizes, plan
from gtjax.runs.verify import slice_name, verify
from gtjax.sharding.config import ParallelConfig
from tests.planner.profiles import profile

CONFIG = TrainConfig(
    model=ModelConfig(hidden=8, heads=2, layers=1), parallel=ParallelConfig(devices=4)
)


@pytest.mark.parametrize(
    ("chip", "devices", "name"),
    [
        ("tpu-v5e", 4, "v5e:2x2"),
        ("tpu-v5e", 8, "v5e:2x4"),
        ("tpu-v6e", 32, "v6e:4x8"),
        ("tpu-v5p", 8, "v5p:2x2x2"),
        ("tpu-v5p", 16, "v5p:2x2x4"),
        ("tpu-v5e", 6, "v5e:2x4"),  # the smallest that has as many
    ],
)
def test_a_slice_is_as_square_as_it_goes(chip, devices, name):
    assert slice_name(chip, devices) == name


def test_numbers_are_verified_by_a_graph_that_has_them():
    made = plan(Sizes(2000, 30_000, features=8, classes=3), config=CONFIG, hardware=profile())
    found = verify(made, Sizes(2000, 30_000, features=8, classes=3), CONFIG)
    assert 0.5 < found["ratio"] < 2


def test_a_gpu_needs_its_description():
    hardware = preset("a100-nvlink")
    made = plan(Sizes(2000, 30_000), config=CONFIG, hardware=hardware)
    with pytest.raises(UserError, match="--target FILE"):
        verify(made, Sizes(2000, 30_000), CONFIG)


def test_too_many_edges_are_not_drawn():
    many = Sizes(10**6, 10**9)
    made = plan(many, config=CONFIG, hardware=profile(memory=1e13))
    with pytest.raises(UserError, match="at most"):
        verify(made, many, CONFIG)
