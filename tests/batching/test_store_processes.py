"""Two processes train on one stored batch, and each has the files of its own shards only."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from gtjax.batching.prepare import place_batch, store_batch
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.stored import open_store
from gtjax.tasks.base import task_to_json
from tests.batching.test_store_batch import laid_out, with_edge_features
from tests.runs.small_run import MODEL, small_config

CONFIG = small_config(
    parallel=ParallelConfig(strategy="node_by_feature", mesh="node=2,feature=2"),
    model=replace(MODEL, positional="random_walk", positional_size=3),
)


def shards_of(batch) -> dict[str, str]:
    """Hashes of what stands on this process's devices, by array and place."""
    return {
        f"{number} {[(s.start, s.stop) for s in shard.index]}": hashlib.sha256(
            np.asarray(shard.data).tobytes()
        ).hexdigest()
        for number, leaf in enumerate(jax.tree.leaves(batch))
        for shard in leaf.addressable_shards
    }


def one_process(address: str, process: int, folder: str) -> None:
    """What each process runs; it never sees the graph."""
    from types import SimpleNamespace
    from typing import Any

    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, process)
    from gtjax.batching.prepare import open_batch
    from gtjax.runs.program import Program
    from gtjax.tasks.base import task_from_json

    about = open_store(folder).about
    sizes: Any = SimpleNamespace(**about["sizes"])
    program = Program(CONFIG, sizes, task_from_json(about["task"]))
    batch, state = open_batch(folder, program.spread), program.initial_state()
    loss = jax.jit(program.loss)(state.params, batch, state.step)
    sys.stdout.write(json.dumps({"loss": float(loss), "shards": shards_of(batch)}) + "\n")


@pytest.fixture
def stored(graph, tmp_path):
    """The folder, the loss and the shards of one process with all four devices."""
    graph = with_edge_features(graph)
    program, arguments = laid_out(graph, CONFIG)
    names = ("num_features", "num_edge_features", "num_classes", "is_multilabel")
    about = {
        "sizes": {name: getattr(graph, name) for name in names},
        "task": task_to_json(program.task),
    }
    store_batch(tmp_path / "all", *arguments, about=about)
    batch, state = place_batch(*arguments), program.initial_state()
    loss = jax.jit(program.loss)(state.params, batch, state.step)
    return tmp_path / "all", float(loss), shards_of(batch)


def only_those_of(process, folder):
    """A copy of the folder where the shards of the other process are missing."""
    copy = folder.parent / str(process)
    shutil.copytree(folder, copy)
    others = {"row": (2, 3, 0, 1), "part": (1, 0)}  # of process 0, then of 1
    for array in jax.tree.leaves(open_store(folder).tree):
        half = len(others[array.by]) // 2
        for shard in others[array.by][process * half : (process + 1) * half]:
            (copy / array.file(shard)).unlink()
    return copy


@pytest.mark.slow
def test_each_process_reads_its_own_shards_and_no_others(stored):
    folder, loss, shards = stored
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    copies = [only_those_of(process, folder) for process in range(2)]
    assert sum(len(list(copy.rglob("*.npy"))) for copy in copies) == len(
        list(folder.rglob("*.npy"))
    )
    command = [sys.executable, "-m", "tests.batching.test_store_processes", address]
    started = [
        subprocess.Popen(
            [*command, str(process), str(copy)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for process, copy in enumerate(copies)
    ]
    try:
        said = [process.communicate(timeout=240) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    results = []
    for process, (out, err) in zip(started, said, strict=True):
        assert process.returncode == 0, err
        results.append(json.loads(out.splitlines()[-1]))
    np.testing.assert_allclose([each["loss"] for each in results], loss, rtol=1e-6)
    assert not set(results[0]["shards"]) >= set(shards)
    assert results[0]["shards"] | results[1]["shards"] == shards


if __name__ == "__main__":
    one_process(sys.argv[1], int(sys.argv[2]), sys.argv[3])
