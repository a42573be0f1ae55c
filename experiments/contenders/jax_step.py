"""A whole step of training in jax: the program that gtjax compiles, for its graph transformer."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import gtjax
from contenders.case import LEARNING_RATE, Case, CaseFolder
from contenders.jax_work import PACKAGES, needs, temporary
from contenders.work import Work
from gtjax.batching.prepare import make_batch
from gtjax.runs.program import Program


def step(
    folder: CaseFolder,
    kernel: str,
    *,
    order_n: np.ndarray | None = None,
    facts: dict[str, Any] | None = None,
) -> Work:
    """Steps of training from the same parameters, which are stored for the other contenders.

    `order_n` puts the nodes in another order before the clock starts; the losses are the same.
    """
    graph, config = read_graph(folder), make_config(folder.case, kernel)
    if order_n is not None:
        graph = graph.reordered(order_n)
    program = Program(config, graph, config.task_of(graph))
    batch = make_batch(graph, program.settings, program.spread)
    current = [program.initial_state()]
    store_parameters(folder, current[0].params)
    compiled = program.compiled(current[0], batch, 1)

    def once() -> float:
        current[0], losses = compiled(current[0], batch, np.int32(1))  # overwrites the state
        jax.block_until_ready(current)
        return float(losses[0])

    def results() -> dict[str, np.ndarray]:
        current[0] = program.initial_state()
        return {"losses": np.array([once(), once(), once()])}

    return Work(
        operations={"step": once},
        results=results,
        needs_bytes=needs(compiled),
        packages=(*PACKAGES, "flax", "optax"),
        facts={"xla_temporary_bytes": temporary(compiled), **(facts or {})},
    )


def read_graph(folder: CaseFolder) -> gtjax.Graph:
    """The graph of the case."""
    train_n = folder.array("train_n")
    return gtjax.Graph(
        senders_e=folder.array("senders_e"),
        receivers_e=folder.array("receivers_e"),
        x_nf=folder.array("x_nf"),
        labels_n=folder.array("labels_n"),
        split_n={"train": train_n, "val": ~train_n},
    )


def make_config(case: Case, kernel: str) -> gtjax.TrainConfig:
    """On one device, the graph as it is, and without dropout, so that all compute the same losses.

    The optimiser is Adam with a constant step size.
    """
    return gtjax.TrainConfig(
        kernel=kernel,
        parallel=gtjax.ParallelConfig(strategy="single", devices=1),
        model=gtjax.ModelConfig(
            hidden=case.hidden, layers=case.layers, heads=case.heads, dropout=0.0
        ),
        optim=gtjax.OptimConfig(
            learning_rate=LEARNING_RATE, schedule="constant", warmup=0, weight_decay=0.0, clip=0.0
        ),
        prepare=gtjax.PrepareConfig(
            symmetrise=False, self_loops=False, features="none", reorder="never"
        ),
    )


def store_parameters(folder: CaseFolder, params: Any) -> None:
    """Write the initial parameters, named by their path in the model, if no one has."""
    if (folder.path / "parameters.npz").exists():
        return
    leaves = jax.tree_util.tree_leaves_with_path(params)
    named: dict[str, Any] = {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in leaves
    }
    np.savez(folder.path / "parameters.npz", **named)
