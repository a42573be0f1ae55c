"""Imports follow the arrows of the design, so that model, strategy and kernel never multiply."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Who may import whom, of ours. A layer may always import itself.
MAY_IMPORT = {
    "pallas_kernels": set(),
    "gtjax.nn": set(),
    "gtjax.graph": set(),
    "gtjax.datasets": {"gtjax.graph"},
    "gtjax.partition": {"gtjax.graph"},
    "gtjax.strategies": {"gtjax.graph", "gtjax.partition", "pallas_kernels"},
    "gtjax.hardware": {"gtjax.graph", "pallas_kernels"},
    "gtjax.planner": {"gtjax.graph", "gtjax.hardware", "gtjax.partition", "gtjax.strategies"},
    "gtjax.sharding": {"gtjax.graph", "gtjax.strategies", "pallas_kernels"},
    "gtjax.distributed": {"gtjax.graph"},
    "gtjax.training": {
        "gtjax.distributed",
        "gtjax.graph",
        "gtjax.hardware",
        "gtjax.nn",
        "gtjax.partition",
        "gtjax.planner",
        "gtjax.sharding",
        "gtjax.strategies",
        "pallas_kernels",
    },
    "gtjax.cli": {
        "gtjax",
        "gtjax.distributed",
        "gtjax.graph",
        "gtjax.datasets",
        "gtjax.hardware",
        "gtjax.nn",
        "gtjax.partition",
        "gtjax.planner",
        "gtjax.sharding",
        "gtjax.strategies",
        "gtjax.training",
    },
    "gtjax": {
        "gtjax.graph",
        "gtjax.datasets",
        "gtjax.nn",
        "gtjax.partition",
        "gtjax.sharding",
        "gtjax.training",
    },
    # Models and the op by their names, the user's cache folder, and steps to compile and not run.
    "experiments": {
        "gtjax",
        "gtjax.distributed",
        "gtjax.graph",
        "gtjax.hardware",
        "gtjax.nn",
        "gtjax.planner",
        "gtjax.sharding",
        "gtjax.strategies",
        "gtjax.training",
        "pallas_kernels",
    },
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
    assert layer("gtjax.training.loop") == "gtjax.training"
    assert layer("gtjax.training.loop") not in MAY_IMPORT["gtjax.nn"]


def test_no_module_of_ours_unpickles():
    for path in our_files():
        for module in imports(path):
            assert module.split(".")[0] not in {"pickle", "dill", "joblib", "shelve"}, path
        assert "allow_pickle=True" not in path.read_text(encoding="utf-8"), path
