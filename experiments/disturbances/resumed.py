"""A run that goes on elsewhere."""

from __future__ import annotations

import shutil
from typing import Any

from disturbances.runs import Chaos, Row, apart, done, result, start, train_options
from gtjax.runs.checkpoint_files import steps_in


def resumed(chaos: Chaos) -> dict[str, Any]:
    """The rest of a run on other devices and by other strategies."""
    cases = []
    with chaos.new_folder() as folder:
        whole, log = folder / "whole", folder / "whole.log"
        options = train_options(whole, "--steps", "30", "--checkpoint-steps", "5")
        code = done(start(*options, "--devices", "4", "--checkpoint-keep", "99", log=log))
        assert code == 0, log.read_text()
        wanted = result(whole)["losses"]
        ways: list[tuple[str, ...]] = [("--devices", str(count)) for count in (1, 2, 3, 8)]
        ways += [
            ("--devices", "4", "--strategy", name)
            for name in ("node_ring", "node_all_gather", "feature_all_to_all")
        ]
        ways += [("--mesh", "node=2,feature=2", "--strategy", "node_by_feature")]
        for way in ways[1:4:2] if chaos.short else ways:
            run = folder / "-".join(way).replace("--", "")
            shutil.copytree(whole, run)
            (run / "result.json").unlink()
            for step in steps_in(run / "checkpoints"):
                if step > 15:  # as if it had been killed then
                    shutil.rmtree(run / "checkpoints" / str(step))
            code = done(start("resume", str(run), *way, log=folder / f"{run.name}.log"))
            off = apart(result(run)["losses"], wanted) if code == 0 else None
            case = {"way": " ".join(way), "code": code, "apart": off}
            print(case, flush=True)
            cases.append(case)
    worst = max((c["apart"] if c["apart"] is not None else float("inf")) for c in cases)
    return {"cases": cases, "worst": worst, "held": worst <= 1e-5}


ROW = Row(
    "from step 15 to 30 on 1, 2, 3, 8 devices and by other strategies",
    "losses within 1e-5 relative",
    resumed,
    lambda r: f"{r['worst']:.1e} at most, {len(r['cases'])} ways",
)
