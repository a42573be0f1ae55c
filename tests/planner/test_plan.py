"""The choice: the fastest that fits, and the reason of everything else."""

from __future__ import annotations

import json
import time

import pytest

from gtjax.graph import GENERATORS, UserError
from gtjax.hardware import preset
from gtjax.nn import ModelConfig
from gtjax.planner import refuse_what_does_not_fit
from gtjax.planner.explain import explain, save_picture
from gtjax.sharding.config import ParallelConfig
from gtjax.training.config import TrainConfig
from gtjax.training.planning import Sizes, plan
from tests.planner.profiles import profile

GRID = GENERATORS["grid"](rows=60, columns=60)
TANGLE = GENERATORS["uniform"](nodes=2000, edges=60_000)
MODEL = ModelConfig(hidden=64, heads=8, layers=2)


def planned(graph, hardware=None, devices=8, model=MODEL, **parallel):
    config = TrainConfig(model=model, parallel=ParallelConfig(devices=devices, **parallel))
    return plan(graph, config=config, hardware=hardware or profile())


def test_the_choice_is_the_fastest_that_fits():
    made = planned(GRID)
    able = [c for c in made.candidates if c.price and made.fits(c.price)]
    assert made.chosen is not None
    assert made.chosen.price.seconds <= 1.02 * min(c.price.seconds for c in able)
    assert made.candidates[0].option == made.chosen.option
    assert not made.candidates[0].reason
    assert all(c.reason for c in made.candidates[1:])


def test_slow_links_choose_by_the_cut():
    """The same links: rows of the halo where it is small, all rows by head where it is not."""
    slow = profile(bandwidth=2e7)
    well, badly = planned(GRID, slow).chosen.option, planned(TANGLE, slow).chosen.option
    assert well.strategy.name == "node_halo"
    assert badly.mesh.feature > 1


def test_the_choice_changes_with_the_links():
    """Few bytes where bytes are slow, few messages where every message is."""
    slow, far = profile(bandwidth=1e6, latency=1e-7), profile(bandwidth=1e13, latency=1e-2)
    bytes_, messages = (planned(TANGLE, links).chosen for links in (slow, far))
    assert bytes_.option.name != messages.option.name
    assert bytes_.price.moved_bytes < messages.price.moved_bytes


def test_the_sentence_says_where_the_choice_would_change():
    made = planned(TANGLE, profile(bandwidth=1e9))
    assert "GB/s" in made.flip
    assert "wins" in made.flip or "no speed of the links" in made.flip


def test_heads_that_do_not_divide_are_a_reason():
    made = planned(TANGLE, model=ModelConfig(hidden=60, heads=6, layers=2))
    reasons = {c.option.mesh.feature: c.reason for c in made.candidates if c.price is None}
    assert "6 heads do not divide over 8" in reasons[8]


def test_what_does_not_fit_says_by_how_much():
    roomy = planned(GRID)
    least = min(c.price.peak_bytes for c in roomy.candidates if c.price)
    tight = planned(GRID, profile(memory=1.3 * least))
    assert tight.chosen.price.peak_bytes <= 0.9 * 1.3 * least
    assert any(c.reason.startswith("needs ") and " GiB of " in c.reason for c in tight.candidates)


def test_nothing_that_fits_is_refused_with_what_would():
    made = planned(GRID, profile(memory=1e6))
    assert made.chosen is None
    with pytest.raises(UserError, match=r"about \d+ devices"):
        refuse_what_does_not_fit(made)


def test_little_memory_recomputes_more():
    roomy = planned(GRID, devices=1)
    need = {c.option.remat: c.price.peak_bytes for c in roomy.candidates}
    assert need["block"] < need["elementwise"] < need["none"]
    tight = planned(
        GRID, profile(memory=(need["block"] + need["elementwise"]) / 2 / 0.9), devices=1
    )
    assert tight.chosen.option.remat == "block"
    assert tight.chosen.price.seconds > roomy.chosen.price.seconds


def test_what_is_named_is_not_varied():
    made = planned(TANGLE, strategy="node_ring", partitioner="random")
    assert {c.option.strategy.name for c in made.candidates} == {"node_ring"}
    assert {c.option.partitioner for c in made.candidates} == {"random"}
    made = planned(TANGLE, mesh="node=2,feature=4")
    assert {str(c.option.mesh) for c in made.candidates} == {"node=2,feature=4"}
    with pytest.raises(UserError, match="no candidate is a single"):
        planned(TANGLE, strategy="single")


def test_approximate_gradients_are_never_chosen_unasked():
    made = planned(TANGLE, profile(bandwidth=1e3))
    assert all(c.option.strategy.exact for c in made.candidates)
    asked = planned(TANGLE, profile(bandwidth=1e3), strategy="isolated")
    assert asked.chosen.option.strategy.name == "isolated"


def test_the_heaviest_part_sets_the_time():
    from gtjax.partition import CutStats
    from gtjax.planner import price
    from gtjax.strategies import STRATEGIES, MeshShape
    from gtjax.training.planning import model_work

    even = CutStats([100, 100], [[900, 100], [100, 900]], [[0, 50], [50, 0]])
    skewed = CutStats([100, 100], [[1700, 100], [100, 100]], [[0, 50], [50, 0]])
    work = model_work(TrainConfig(model=MODEL), TANGLE)
    settings = (work, MeshShape(2), profile())
    light, heavy = (price(STRATEGIES["node_halo"], c, *settings) for c in (even, skewed))
    assert heavy.attention > 1.3 * light.attention
    assert heavy.communication == light.communication


def test_arithmetic_hides_transfers_only_where_it_can():
    hidden, shown = (
        planned(GRID, profile(bandwidth=5e7, overlap=o), strategy="node_halo", partitioner="metis")
        for o in (1.0, 0.0)
    )
    assert hidden.chosen.price.communication < shown.chosen.price.communication
    same = [
        planned(GRID, profile(bandwidth=5e7, overlap=o), strategy="node_all_gather")
        for o in (1.0, 0.0)
    ]
    assert same[0].chosen.price.communication == same[1].chosen.price.communication


def test_numbers_alone_are_enough_and_quick():
    start = time.perf_counter()
    sizes = Sizes(int(111e6), int(1.6e9), cut=0.3)
    made = planned(sizes, preset("tpu-v5e"), devices=512)
    assert time.perf_counter() - start < 5  # a second when nothing else runs
    assert made.supposed
    assert made.chosen is not None
    for each in made.candidates:
        if each.price is not None:
            assert each.low <= each.price.seconds * 1.000001
            assert each.price.seconds <= each.high * 1.000001
    assert "supposed" in explain(made)
    assert "preset" in explain(made)


def test_a_trillion_edges_on_thousands_of_devices():
    made = planned(Sizes(10**10, 10**12, cut=0.4), preset("tpu-v5p"), devices=4096)
    assert made.candidates
    assert "GiB" in explain(made)


def test_a_plan_is_json_and_a_picture(tmp_path):
    made = planned(GRID)
    again = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert again["chosen"]["strategy"] == made.chosen.option.strategy.name
    assert len(again["candidates"]) == len(made.candidates)
    save_picture(made, tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")


def test_a_tpu_pads_narrow_heads():
    """The same model with heads as wide as the lanes takes less memory there, and not elsewhere."""
    sizes = Sizes(10**6, 10**7, cut=0.3)
    narrow, wide = ModelConfig(hidden=128, heads=8), ModelConfig(hidden=128, heads=1)
    peaks = {
        name: [planned(sizes, preset(name), model=m, strategy="node_halo") for m in (narrow, wide)]
        for name in ("tpu-v5e", "a100-nvlink")
    }
    tpu, gpu = ([p.chosen.price.peak_bytes for p in peaks[name]] for name in peaks)
    assert tpu[0] > 1.3 * tpu[1]
    assert gpu[0] < 1.1 * gpu[1]
