"""The process of one contender on one case: `python -m contenders.worker CONTENDER FOLDER [CORES]`.

Answers each line on stdin (a JSON object with "do") by a line on stdout. One timed run a line, so
that the parent can interleave the contenders; between two lines it waits without using a core.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from contenders.case import CaseFolder
from contenders.memory import peak_above_start, release, resident_bytes, settle
from contenders.work import Absent, Work


def make(contender: str, folder: CaseFolder) -> Work:
    """The contender's work; only its own packages are imported."""
    if contender in ("pyg", "dgl"):
        import torch  # pyright: ignore[reportMissingImports]

        torch.set_num_threads(usable_cores())
        if contender == "pyg":
            from contenders.pyg_ops import work
        else:
            from contenders.dgl_ops import work
        return work(folder)
    if contender == "gather":
        from contenders import gather_bound

        return gather_bound.work(folder)
    if contender == "tree":
        from contenders import jax_tree

        return jax_tree.work(folder)
    from contenders import jax_ops, jax_work

    if contender == "cpu-bf16":
        return jax_ops.half(folder)
    if contender == "segment":
        return jax_work.op(folder, *jax_ops.segment_ops(folder))
    order: dict[str, Any] = {}
    kernel = contender
    if contender == "cpu-ordered":
        order_n, facts = jax_ops.training_order(folder)
        kernel, order = "cpu", {"order_n": order_n, "facts": facts}
    if folder.case.kind == "step":
        from contenders import jax_step

        return jax_step.step(folder, kernel, **order)
    made = jax_ops.ours(folder, kernel, order.get("order_n"))
    return jax_work.op(folder, *made, **order)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def answer(request: dict[str, Any], work: Work, folder: CaseFolder) -> dict[str, Any]:
    """Do one thing."""
    match request["do"]:
        case "store reference":
            folder.write_reference(work.results())
            return {}
        case "check":
            return {"distances": folder.distances(work.results())}
        case "memory":
            return {"peak": peak_above_start(work.operations[request["operation"]])}
        case "time":
            run = work.operations[request["operation"]]
            gc.collect()
            start = time.perf_counter()
            result = run()
            seconds = time.perf_counter() - start
            del result
            return {"seconds": seconds}
        case other:
            raise ValueError(f"do is store reference, check, memory or time; found {other!r}")


def serve(contender: str, path: Path) -> None:
    """Get ready, say so, and answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not an answer

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    folder = CaseFolder(path)
    try:
        work = make(contender, folder)
    except Absent as reason:
        say({"absent": str(reason)})
        return
    release()
    idle = resident_bytes()
    versions = {name: importlib.metadata.version(name) for name in work.packages}
    say(
        {
            "operations": list(work.operations),
            "needs_bytes": work.needs_bytes,
            "versions": {"python": platform.python_version(), **versions},
            "cores": usable_cores(),
            **work.facts,
        }
    )
    for line in sys.stdin:
        said = answer(json.loads(line), work, folder)
        settle(idle)  # the next to run should find the cores and the memory free
        say(said)


def main() -> None:
    """Serve; a failure is the last answer, and its traceback is on stderr."""
    contender, path, *cores = sys.argv[1:]
    if cores and hasattr(os, "sched_setaffinity"):  # before any library counts the cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores[0])])
    try:
        serve(contender, Path(path))
    except Exception:
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    main()
