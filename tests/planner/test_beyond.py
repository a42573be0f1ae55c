"""Where a step does not fit, what would run is said, with time and memory each; and is right."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gtjax.batching.config import BatchesConfig
from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.hardware.disk import Disk, measured_disk
from gtjax.hardware.profile import from_json
from gtjax.nn.config import GCNConfig
from gtjax.planner import refuse_what_does_not_fit
from gtjax.planner.beyond import CacheAdvice, chunks_price, ways
from gtjax.runs import planning
from gtjax.runs.abstract_step import Sizes, work_of
from gtjax.runs.config import TrainConfig
from gtjax.runs.planning import cache_advice, decided, plan
from gtjax.sharding.config import ParallelConfig
from tests.planner.profiles import profile

NODES, EDGES = 10_000_000, 100_000_000
GCN = GCNConfig(hidden=128, layers=3)
DISK = Disk(read=1e9, write=5e8)


def config(**options) -> TrainConfig:
    return TrainConfig(model=GCN, **options)


def hardware():
    return dataclasses.replace(profile(), disk=DISK)


def test_the_refusal_of_a_plan_lists_what_would_run():
    small = config(parallel=ParallelConfig(devices=1, memory=4))
    made = plan(Sizes(NODES, EDGES, 128, 16), config=small, hardware=hardware())
    with pytest.raises(UserError) as refused:
        refuse_what_does_not_fit(made)
    said = str(refused.value)
    for way in ("--strategy node_halo", "--strategy node_ring", "--batching chunks"):
        assert way in said
    assert "--batching neighbours" in said
    assert said.count("approximate") == 1
    assert said.count(" s/step") == 4
    assert made.to_json()["beyond"][-1]["exact"] is False


def test_chunks_cost_what_they_read_and_write():
    """The arithmetic of the README beside the code: 2 S + 2 O written, 2 S + 3 O read."""
    work = work_of(config(), Sizes(NODES, EDGES, 128, 16))
    found = chunks_price(work, NODES, EDGES, hardware(), 4 * 2**30)
    row = 4 * 128
    assert found.written_bytes == pytest.approx(3 * 4 * row * NODES)
    rows_read = 3 * 5 * row * NODES + 2 * work.inputs.of(NODES, EDGES)
    assert found.read_bytes == pytest.approx(rows_read + 3 * 2 * 4 * EDGES)
    assert found.moving == pytest.approx(found.read_bytes / 1e9 + found.written_bytes / 5e8)
    assert found.seconds == max(found.computing or 0, found.moving)
    roomy = chunks_price(work, NODES, EDGES, hardware(), 1e12)
    assert roomy.written_bytes == 0  # nothing needs a file


def test_what_cannot_run_in_chunks_is_not_offered_them():
    work = {"none": work_of(config(), Sizes(NODES, EDGES, 128, 16))}
    given = (work, NODES, EDGES, hardware(), 4 * 2**30)
    assert any("chunks" in way.options for way in ways(*given, platform="cpu"))
    refused = ways(*given, platform="cpu", chunks_refused="--model.norm batch")
    assert not any("chunks" in way.options for way in refused)


def test_one_device_takes_chunks_where_nothing_else_fits(monkeypatch):
    graph = Sizes(30, 90, 12, 3).stand_in()
    grown = 2**40  # what a step seems to need

    class Large:
        peak = grown

    monkeypatch.setattr("gtjax.runs.planning.memory_of", lambda *_: Large)
    monkeypatch.setattr("gtjax.runs.planning._is_far_smaller", lambda *_: False)
    asked = config(parallel=ParallelConfig(memory=1))
    settled, _ = decided(asked, graph, lambda done, text: None)
    assert settled.batches.batching == "chunks"
    mixing = dataclasses.replace(asked, model=GCNConfig(norm="batch"))
    with pytest.raises(UserError, match="What would run"):
        decided(mixing, graph, lambda done, text: None)
    other = dataclasses.replace(asked, batches=BatchesConfig(batching="clusters"))
    with pytest.raises(UserError, match="does not fit"):
        decided(other, graph, lambda done, text: None)


def test_a_step_is_traced_for_its_memory_only_where_that_may_matter(monkeypatch):
    graph, traced = Sizes(30, 90, 12, 3).stand_in(), []
    work_of = planning.work_of

    def counted(*arguments):
        traced.append(arguments)
        return work_of(*arguments)

    monkeypatch.setattr(planning, "work_of", counted)
    for gib, times in ((1, 0), (1e-3, 1)):
        asked = config(parallel=ParallelConfig(memory=gib))
        settled, _ = decided(asked, graph, lambda done, text: None)
        assert settled == asked
        assert len(traced) == times

    class Own(GCNConfig):
        """Of a model that is not ours: what it needs is known once it is traced."""

    assert not planning._is_far_smaller(dataclasses.replace(asked, model=Own()), graph, 2.0**60)
    assert planning._is_far_smaller(dataclasses.replace(asked, model=GCNConfig()), graph, 2.0**60)


def test_a_profile_keeps_the_disk(tmp_path):
    known = hardware()
    assert from_json(known.to_json(), "here").disk == DISK
    old = known.to_json()
    del old["disk"]  # as profiles were before disks were measured
    assert from_json(old, "here").disk is None
    found = measured_disk(tmp_path, 1 << 24)
    assert found.read > 1e6
    assert found.write > 1e6
    assert not list(tmp_path.iterdir())


def test_sampling_is_listed_with_the_cache_that_it_wants():
    """By hand: of out-degrees 6, 3, 1 the first two are nine tenths of what is asked for."""
    senders = np.repeat([0, 1, 2], [6, 3, 1])
    graph = Graph(senders, np.arange(10) % 4, np.zeros((5, 16), np.float32), np.zeros(5, int))
    advice = cache_advice(graph)
    assert advice == CacheAdvice(rows=2, row_bytes=64, share=0.9)
    assert "--cache-rows 2" in str(advice)
    work = work_of(config(), Sizes(NODES, EDGES, 128, 16))
    given = ({"none": work}, NODES, EDGES, hardware(), 4 * 2**30)
    assert str(advice) in ways(*given, platform="cpu", cache=advice)[-1].note
    assert cache_advice(dataclasses.replace(graph, x_nf=np.zeros((5, 0), np.float32))) is None
