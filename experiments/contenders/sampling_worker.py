"""The process of one sampler: `python -m contenders.sampling_worker CONTENDER FOLDER`.

As `contenders.worker`, for draws of neighbourhoods and epochs of training on them. FOLDER holds the
graph (`offsets.npy`, `senders.npy`, grouped by receiver), the training nodes, features and labels
as far as there are any, and `case.json`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

Operation = Callable[[], dict[str, float]]
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


class Case:
    """What was written for the contenders."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.settings = json.loads((folder / "case.json").read_text(encoding="utf-8"))
        self.offsets, self.senders, self.train = map(self.array, ("offsets", "senders", "train"))
        self.fan_outs = tuple(self.settings["fan_outs"])
        self.batch_size, self.draws = self.settings["batch_size"], self.settings["draws"]

    def array(self, name: str) -> np.ndarray:
        """One of the stored arrays."""
        return np.load(self.folder / f"{name}.npy")

    def seeds(self, number: int) -> np.ndarray:
        """The training nodes of one draw, the same for all contenders."""
        rng = np.random.default_rng(number)
        return rng.choice(self.train, self.batch_size, replace=False)


def ours(case: Case) -> dict[str, Operation]:
    """gtjax: the sampler on threads of its own, and epochs as `fit` runs them."""
    from gtjax.core.allocator import keep_freed_memory

    keep_freed_memory()  # as `gtjax train` does
    from gtjax.batching.sampler import Bounds, DoesNotFitError, Sampler
    from gtjax.graph.csr import CSR

    csr = CSR(case.offsets, case.senders, np.zeros(0, np.int64))
    sampler = Sampler(csr, case.fan_outs, seed=0)
    hops = len(case.fan_outs)
    bounds = Bounds((case.batch_size, *[1] * hops), (1,) * hops)
    marks = [sampler.marks() for _ in range(THREADS)]
    for number in range(8):  # room for what comes
        while True:
            try:
                sampler.draw(case.seeds(number), number, bounds, marks[0])
                break
            except DoesNotFitError as error:
                needed = error.needed
                roomy = Bounds(
                    tuple(int(1.2 * n) for n in needed.nodes),
                    tuple(int(1.2 * n) for n in needed.edges),
                )
                bounds = bounds.with_room_for(roomy)
    pool = ThreadPoolExecutor(THREADS)

    def draws(thread: int) -> int:
        numbers = range(thread, case.draws, THREADS)
        return sum(
            sampler.draw(case.seeds(number), number, bounds, marks[thread]).num_edges
            for number in numbers
        )

    def sample() -> dict[str, float]:
        return {"edges": sum(pool.map(draws, range(THREADS)))}

    if "epoch" not in case.settings["operations"]:
        return {"sample": sample}
    return {"sample": sample, "epoch": our_epoch(case)}


def our_epoch(case: Case) -> Operation:
    """Steps of GraphSAGE, with batches that are made ahead."""
    import gtjax
    from gtjax.batching.source import Source
    from gtjax.batching.store import make_batches
    from gtjax.runs.program import Program

    receivers = np.repeat(np.arange(len(case.offsets) - 1), np.diff(case.offsets))
    train_n = np.zeros(len(case.offsets) - 1, bool)
    train_n[case.train] = True
    features, labels = case.array("features"), case.array("labels")
    split_n = {"train": train_n, "val": ~train_n & (labels >= 0)}
    graph = gtjax.Graph(case.senders, receivers, features, labels, split_n)
    model = case.settings["model"]
    config = gtjax.TrainConfig(
        model=gtjax.SAGEConfig(norm="none", **model),
        steps=10**6,
        optim=gtjax.OptimConfig(learning_rate=3e-3, schedule="constant", weight_decay=0, clip=0),
        prepare=gtjax.PrepareConfig(symmetrise=False, self_loops=False, features="none"),
        batches=gtjax.BatchesConfig(
            batching="neighbours",
            batch_size=case.batch_size,
            fan_out=",".join(map(str, case.fan_outs)),
        ),
    )
    program = Program(config, graph, config.task_of(graph))
    batches: Any = make_batches(Source(graph), program.settings, program.spread)
    state = [program.initial_state()]
    advance = program.compiled(state[0], batches.at(0), 1)
    done = [0]

    def epoch() -> dict[str, float]:
        steps = min(case.settings["steps"], batches.steps_per_epoch)
        waited, loss, edges = 0.0, 0.0, 0
        grown = batches.grown
        for _ in range(steps):
            began = time.perf_counter()
            batch = batches.at(done[0])
            waited += time.perf_counter() - began
            state[0], losses = advance(state[0], batch, np.int32(1))
            loss = float(np.asarray(losses)[0])
            edges += int(np.asarray(batch.layout.offsets_r)[0, -1])
            done[0] += 1
        assert batches.grown == grown, "a batch did not fit: the room is too small"
        return {"steps": steps, "waited": waited, "loss": loss, "edges": edges}

    return epoch


def dgl(case: Case, *, fused: bool) -> dict[str, Operation]:
    """DGL: its sampler with OpenMP threads, and its loader with PyTorch.

    With 64-bit numbers: with 32 bits its fused sampler forgets edges from the second draw on.
    """
    import dgl as library  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(THREADS)
    ids = np.arange(len(case.senders))
    index = tuple(
        torch.from_numpy(each.astype(np.int64)) for each in (case.offsets, case.senders, ids)
    )
    graph = library.graph(("csc", index), num_nodes=len(case.offsets) - 1)
    # The first number of ours is for the seeds; of DGL's, the last.
    sampler = library.dataloading.NeighborSampler(list(reversed(case.fan_outs)), fused=fused)

    def sample() -> dict[str, float]:
        edges = 0
        for number in range(case.draws):
            seeds = torch.from_numpy(case.seeds(number).astype(np.int64))
            _, _, blocks = sampler.sample_blocks(graph, seeds)
            edges += sum(block.num_edges() for block in blocks)
        return {"edges": edges}

    if "epoch" not in case.settings["operations"]:
        return {"sample": sample}
    return {"sample": sample, "epoch": dgl_epoch(case, graph, sampler)}


def dgl_epoch(case: Case, graph: Any, sampler: Any) -> Operation:
    """Its GraphSAGE on its loader, as in its examples."""
    import dgl as library  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]

    features = torch.from_numpy(case.array("features"))
    labels = torch.from_numpy(case.array("labels")).long()
    model = case.settings["model"]
    classes, widths = int(labels.max()) + 1, [model["hidden"]] * model["layers"]

    class SAGE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = zip([features.shape[1], *widths[:-1]], widths, strict=True)
            self.layers = nn.ModuleList(
                library.nn.SAGEConv(inputs, outputs, "mean") for inputs, outputs in sizes
            )
            self.dropout = nn.Dropout(model["dropout"])
            self.head = nn.Linear(widths[-1], classes)

        def forward(self, blocks: Any, x: Any) -> Any:
            for layer, block in zip(self.layers, blocks, strict=True):
                x = self.dropout(torch.relu(layer(block, x)))
            return self.head(x)

    net = SAGE()
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    nodes = torch.from_numpy(case.train.astype(np.int64))
    loader = library.dataloading.DataLoader(
        graph, nodes, sampler, batch_size=case.batch_size, shuffle=True, num_workers=0
    )

    def epoch() -> dict[str, float]:
        steps, loss, edges = 0, 0.0, 0
        for inputs, outputs, blocks in loader:
            x = features[inputs]
            value = nn.functional.cross_entropy(net(blocks, x), labels[outputs])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            loss = value.item()
            edges += sum(block.num_edges() for block in blocks)
            steps += 1
            if steps == case.settings["steps"]:
                break
        return {"steps": steps, "loss": loss, "edges": edges}

    return epoch


PEERS_OWN = ("dgl", "torch", "numpy")
CONTENDERS: dict[str, tuple[Callable[[Case], dict[str, Operation]], tuple[str, ...]]] = {
    "ours": (ours, ("jax", "numpy")),
    "dgl": (lambda case: dgl(case, fused=True), PEERS_OWN),
    "dgl-plain": (lambda case: dgl(case, fused=False), PEERS_OWN),
}


def serve(contender: str, folder: Path) -> None:
    """Get ready, say so, and answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not an answer

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    make, packages = CONTENDERS[contender]
    operations = make(Case(folder))
    versions = {name: importlib.metadata.version(name) for name in packages}
    say({"threads": THREADS, "versions": {"python": platform.python_version(), **versions}})
    for line in sys.stdin:
        run = operations[json.loads(line)["operation"]]
        before, started = time.process_time(), time.perf_counter()
        found = run()
        seconds = time.perf_counter() - started
        say({"seconds": seconds, "cpu_seconds": time.process_time() - before, **found})


def main() -> None:
    """Serve; a failure is the last answer, and its traceback is on stderr."""
    try:
        serve(sys.argv[1], Path(sys.argv[2]))
    except Exception:
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    main()
