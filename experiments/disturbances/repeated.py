"""The same run again."""

from __future__ import annotations

from typing import Any

from disturbances.runs import Chaos, Row, done, final_hash, launch, train_options


def repeated(chaos: Chaos) -> dict[str, Any]:
    """The same seed on the same mesh, several times."""
    with chaos.new_folder() as folder:
        hashes = []
        for number in range(chaos.times(10, 2)):
            run = folder / f"run-{number}"
            code = done(launch(2, *train_options(run), log=folder / f"{number}.log"))
            hashes.append(final_hash(run) if code == 0 else [str(number)])
            print(number, code, flush=True)
    different = len({tuple(each) for each in hashes})
    return {"times": len(hashes), "different": different, "held": different == 1}


ROW = Row(
    "same seed and mesh (2 processes)",
    "identical hashes",
    repeated,
    lambda r: f"{r['different']} hash in {r['times']} runs",
)
