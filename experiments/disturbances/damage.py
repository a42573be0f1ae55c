"""Checkpoints whose files are harmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from disturbances.runs import Chaos, Row

HARMS = ("removals", "cuts", "flips")


def damaged(chaos: Chaos) -> dict[str, Any]:
    """A checkpoint with a bit flipped, cut off or without a file: the one before it is used."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from gtjax.runs.checkpoint import Best, Checkpoints, Snapshot
    from gtjax.runs.program import State

    def snapshot(step: int) -> Snapshot:
        drawn = np.random.default_rng(step).normal(size=(24, 24)).astype(np.float32)
        params = {"weights": drawn, "bias": np.arange(17, dtype=np.int32)}
        state = State(params, None, (drawn * 2,), jnp.int32(step), jnp.array(True))
        return Snapshot(state, Best(params, jnp.float32(0.5), jnp.int32(3)))

    def equal(found: Snapshot, wanted: Snapshot) -> bool:
        return all(jax.tree.leaves(jax.tree.map(np.array_equal, found, wanted)))

    older, newer = snapshot(10), snapshot(20)
    counts = {kind: {"unharmed": 0, "refused": 0, "wrong": 0} for kind in HARMS}
    with chaos.new_folder() as folder:
        with Checkpoints(folder) as checkpoints:
            checkpoints.save(older)
            checkpoints.save(newer)
        for kind, path, content in harms(folder / "checkpoints" / "20", chaos):
            before = path.read_bytes()
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
            with Checkpoints(folder) as checkpoints:
                found = checkpoints.restore(newer)
                outcome = "wrong"
                if checkpoints.damaged and equal(found, older):
                    outcome = "refused"
                elif not checkpoints.damaged and equal(found, newer):
                    outcome = "unharmed"
            counts[kind][outcome] += 1
            path.write_bytes(before)
    wrong = sum(each["wrong"] for each in counts.values())
    return {"kinds": counts, "wrong": wrong, "held": wrong == 0}


def harms(folder: Path, chaos: Chaos) -> Iterator[tuple[str, Path, bytes | None]]:
    """Files of a checkpoint, and what they hold afterwards; None is nothing at all."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        yield "removals", path, None
    for path in files:
        whole = path.read_bytes()
        lengths = range(len(whole))
        if chaos.short:
            lengths = sorted(chaos.random.sample(lengths, min(10, len(whole))))
        for length in lengths:
            yield "cuts", path, whole[:length]
    sizes = [path.stat().st_size for path in files]
    for _ in range(chaos.times(2000, 100)):
        (path,) = chaos.random.choices(files, sizes)
        content = bytearray(path.read_bytes())
        content[chaos.random.randrange(len(content))] ^= 1 << chaos.random.randrange(8)
        yield "flips", path, bytes(content)


ROW = Row(
    "checkpoint cut off at every byte, each file removed, bits flipped",
    "none silently wrong; the one before it used",
    damaged,
    lambda r: (
        f"{r['wrong']} wrong of "
        + ", ".join(f"{sum(v.values()):,} {k}" for k, v in r["kinds"].items())
    ),
)
