"""Every strategy on 2 and 4 processes, against one process."""

from __future__ import annotations

from typing import Any

from disturbances.runs import Chaos, Row, apart, done, launch, result, start, train_options

STRATEGIES = (
    ("node_all_gather", ()),
    ("node_halo", ()),
    ("node_ring", ()),
    ("feature_all_to_all", ()),
    ("node_by_feature", ()),
    ("isolated", ("--repartition", "5")),
)


def losses(chaos: Chaos) -> dict[str, Any]:
    """Every strategy on 2 and 4 processes gives the losses of one process."""
    cases = []
    with chaos.new_folder() as folder:
        for strategy, options in STRATEGIES[1:2] if chaos.short else STRATEGIES:
            for count in (2,) if chaos.short else (2, 4):
                name = f"{strategy}-{count}"
                how = ("--strategy", strategy, *options, "--devices", str(count), "--steps", "20")
                one, many = folder / f"{name}-one", folder / f"{name}-many"
                log = folder / f"{name}.log"
                # One device, or for isolated, whose losses are those of parts, as many simulated.
                alone = how if strategy == "isolated" else ("--steps", "20", "--strategy", "single")
                one = one if strategy == "isolated" else folder / "single"
                if not one.exists():
                    done(start(*train_options(one, *alone), log=log))
                code = done(launch(count, *train_options(many, *how), log=log))
                off = apart(result(many)["losses"], result(one)["losses"]) if code == 0 else None
                case = {"strategy": strategy, "processes": count, "apart": off}
                print(case, flush=True)
                cases.append(case)
    worst = max((c["apart"] if c["apart"] is not None else float("inf")) for c in cases)
    return {"cases": cases, "worst": worst, "held": worst <= 2e-5}


ROW = Row(
    "losses of 20 steps on 2 and 4 processes, every strategy, against one process",
    "2e-5 relative",
    losses,
    lambda r: f"{r['worst']:.1e} at most, {len(r['cases'])} cases",
)
