"""Imports follow the arrows of the design, so that model, strategy and kernel never multiply."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Who may import whom, of ours, beside itself and (but for the kernels and the models) gtjax.core.
ARROWS = {
    "pallas_kernels": "",
    "gtjax.core": "",
    "gtjax.remote": "",
    "gtjax.nn": "core",
    "gtjax.graph": "remote",
    "gtjax.datasets": "graph remote",
    "gtjax.partition": "graph remote",
    "gtjax.strategies": "graph partition pallas_kernels",
    "gtjax.hardware": "pallas_kernels",
    "gtjax.planner": "graph hardware partition sharding strategies pallas_kernels",
    "gtjax.sharding": "remote strategies pallas_kernels",
    "gtjax.distributed": "remote",
    "gtjax.tasks": "graph nn",
    "gtjax.recipes": "nn tasks",
    # nn for `Inputs`, which is what a model reads of a batch.
    "gtjax.batching": "distributed graph nn partition remote sharding strategies pallas_kernels",
    # planner for what the gradient of an op reads.
    "gtjax.chunks": "graph planner sharding pallas_kernels",
    "gtjax.runs": (
        "batching chunks datasets distributed graph hardware nn partition planner recipes remote "
        "sharding strategies tasks pallas_kernels"
    ),
    "gtjax.tuning": "batching datasets graph nn recipes remote runs tasks",
    "gtjax.cli": (
        "gtjax batching datasets distributed graph hardware nn partition planner remote runs "
        "sharding strategies tuning"
    ),
    "gtjax": "batching datasets graph nn partition recipes runs sharding tasks tuning",
    # Models and the op by their names, the user's cache folder, steps to compile and not run, and
    # partitions that are stored.
    "experiments": (
        "gtjax batching distributed graph hardware nn partition planner remote runs sharding "
        "strategies tasks pallas_kernels"
    ),
}
ALONE = {"pallas_kernels"}
MAY_IMPORT = {
    own: {name if name in ARROWS else f"gtjax.{name}" for name in others.split()}
    | (set() if own in ALONE else {"gtjax.core"})
    for own, others in ARROWS.items()
}


def layer(module: str) -> str | None:
    top, _, rest = module.partition(".")
    if top != "gtjax" or not rest:
        return top if top in MAY_IMPORT else None
    return f"gtjax.{rest.split('.')[0]}"


def our_files():
    return [
        path
        for top in ("gtjax", "pallas_kernels", "experiments")
        for path in (ROOT / top).rglob("*.py")
    ]


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: absolute imports only"
            yield node.module or ""


@pytest.mark.parametrize("path", our_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_arrows(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    own = layer(".".join(parts)) or parts[0]
    if parts == ("gtjax", "__init__"):
        own = "gtjax"
    for module in imports(path):
        other = layer(module)
        assert other in {None, own} | MAY_IMPORT[own], f"{own} imports {module}"


def test_the_rule_can_fail():
    assert layer("gtjax.runs.loop") == "gtjax.runs"
    assert layer("gtjax.runs.loop") not in MAY_IMPORT["gtjax.batching"]
    assert layer("gtjax.graph.graph") not in MAY_IMPORT["gtjax.nn"]


def test_the_arrows_have_no_circle():
    left = {own: set(others) - {own} for own, others in MAY_IMPORT.items()}
    while left:
        free = {own for own, others in left.items() if not others & set(left)}
        assert free, f"these import each other: {sorted(left)}"
        left = {own: others for own, others in left.items() if own not in free}


def test_no_module_of_ours_unpickles():
    for path in our_files():
        for module in imports(path):
            assert module.split(".")[0] not in {"pickle", "dill", "joblib", "shelve"}, path
        assert "allow_pickle=True" not in path.read_text(encoding="utf-8"), path
