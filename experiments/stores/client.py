"""What a user's process does with a store, in a process of its own that may be killed.

What a function gives, or what it was told instead, is written as a line of JSON to a report; and
before that what a checkpoint says is durable, when it does.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shutil
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import fsspec.config
import fsspec.core
import jax
import jax.numpy as jnp
import numpy as np

import gtjax
from gtjax.core.errors import UserError
from gtjax.graph import StoredGraph
from gtjax.nn import ModelConfig
from gtjax.remote.problems import Patience
from gtjax.remote.run_store import RunStore
from gtjax.remote.store import hash_of
from gtjax.runs.checkpoint import Best, Checkpoints, Snapshot
from gtjax.runs.config import RuntimeConfig, TrainConfig
from gtjax.runs.loop import fit, resume
from gtjax.runs.program import State
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.run_graph import graph_of

importlib.import_module("s3fs")  # here once, for all processes that are forked from this one

RETRY_SECONDS = 0.05  # in the place of up to 20, so that two hundred cases take minutes
READ_SECONDS = 2  # that a client waits for an answer
DATA = "synthetic-citation:nodes=120,classes=3"
MODEL = ModelConfig(hidden=8, layers=1, heads=2, dropout=0.1)
INTERVAL = 2  # steps between checkpoints


def serve(port: int, cache: str, orders: Connection) -> None:
    """Do what is ordered against the store of a port, until there are no more orders.

    Each time as a machine that has nothing of the run.
    """
    os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "GTJAX_CACHE_DIR": cache}
    fsspec.config.conf["s3"] = {"config_kwargs": {"read_timeout": READ_SECONDS}}
    Patience.seconds = lambda self, failures: RETRY_SECONDS  # pyright: ignore
    Checkpoints._write = _telling(Checkpoints._write)
    while (order := orders.recv()) is not None:
        work, report, *args = order
        shutil.rmtree(Path(cache) / "remote", ignore_errors=True)
        _told(report, lambda work=WORK[work], args=args: work(*args))
        orders.send("done")


REPORTS: list[str] = []  # of the order that is being done


def _telling(write: Callable[..., None]) -> Callable[..., None]:
    """As `Checkpoints._write`, and what is durable then is reported."""

    def told(self: Checkpoints, *args: Any) -> None:
        write(self, *args)
        _say(REPORTS[-1], {"durable": self.durable})

    return told


def snapshot(step: int) -> Snapshot:
    """What is saved at a step; the same in every process."""
    drawn = np.random.default_rng(step).normal(size=(64, 64)).astype(np.float32)
    params = {"weights": drawn, "bias": np.arange(17, dtype=np.int32) + np.int32(step)}
    state = State(params, None, (drawn * 2,), jnp.int32(step), jnp.array(True))
    return Snapshot(state, Best(params, jnp.float32(0.5), jnp.int32(3)))


def create(address: str) -> dict[str, Any]:
    """A run with one checkpoint."""
    RunFolder.create(TrainConfig(out=Path(address)))
    return save(address, [1])


def save(address: str, steps: list[int]) -> dict[str, Any]:
    """Checkpoints of some steps, with their metrics."""
    folder = RunFolder.at(address).to_train()
    with Checkpoints(folder.path, store=folder.store) as checkpoints:
        for step in steps:
            folder.append_metrics([{"step": step, "loss": float(step)}])
            checkpoints.save(snapshot(step))
    return {}


def load(address: str, graph: str) -> dict[str, Any]:
    """The newest checkpoint, the metrics, and a graph."""
    folder, _ = RunFolder.open(address)
    with Checkpoints(folder.path, store=folder.store) as checkpoints:
        found = checkpoints.restore(snapshot(0))
    step = int(found.state.step)
    same = jax.tree.leaves(jax.tree.map(_identical, found, snapshot(step)))
    return {
        "step": step,
        "same": all(same) and all(row["loss"] == row["step"] for row in folder.metrics()),
        "metrics": [row["step"] for row in folder.metrics()],
        "damaged": checkpoints.damaged,
        "graph": _digest(StoredGraph.open(graph).in_memory()) if graph else None,
    }


def train(address: str, steps: int) -> dict[str, Any]:
    """Train a run that is new, or resume it, up to so many steps."""
    if not RunStore.exists(address):
        runtime = RuntimeConfig(checkpoint_steps=INTERVAL)
        config = TrainConfig(
            **{"data": DATA, "steps": steps, "eval_every": 100, "out": Path(address)},
            **{"model": MODEL, "runtime": runtime},
        )
        fit(DATA, config=config, show_progress=False)
    else:
        folder, config = RunFolder.open(address)
        config = dataclasses.replace(config, steps=steps)
        resume(folder, config, lambda: graph_of(folder, config), show_progress=False)
    return {"finished": True}


def losses(address: str) -> dict[str, Any]:
    """Of all steps of a run, and hashes of its newest checkpoint, which has to be whole."""
    folder, _ = RunFolder.open(address)
    with Checkpoints(folder.path, store=folder.store) as checkpoints:
        steps = checkpoints.steps()
        assert folder.store is not None
        folder.store.fetch_checkpoint(steps[0])
        arrays = [each["hash"] for each in checkpoints.manifest(steps[0])["arrays"]]
    rows = [[row["step"], row["loss"]] for row in folder.metrics()]
    return {"rows": rows, "arrays": arrays, "step": steps[0]}


def convert(data: str, address: str) -> dict[str, Any]:
    """A graph in the store, and the digest of what it is to give."""
    return {"graph": _digest(gtjax.convert(data, address).in_memory())}


def copy(address: str, to: str) -> dict[str, Any]:
    """All objects of a run to another address, as they are."""
    system, root = fsspec.core.url_to_fs(address)
    target = to.removeprefix("s3://")
    for path in system.find(root):
        system.copy(path, f"{target}{path.removeprefix(root)}")
    return {}


WORK = {each.__name__: each for each in (create, save, load, train, losses, convert, copy)}


def _told(report: str, work: Callable[[], dict[str, Any]]) -> None:
    REPORTS.append(report)
    try:
        found = work()
    except UserError as error:
        found = {"told": str(error)}
    except Exception as error:  # which would be one of ours
        found = {"broken": repr(error)}
    _say(report, found | {"ended": True})


def _say(report: str, found: dict[str, Any]) -> None:
    with Path(report).open("a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _identical(a: Any, b: Any) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def _digest(graph: Any) -> str:
    arrays = (graph.senders_e, graph.receivers_e, graph.x_nf, graph.labels_n)
    return hash_of(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))
