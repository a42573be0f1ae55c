"""gtjax: train graph transformers on graphs too large for one device.

The public names are loaded when they are first used, so `import gtjax` and `gtjax --help` do not
wait for jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gtjax.datasets import load, save_npz
    from gtjax.graph import (
        Graph,
        GraphFormatError,
        UserError,
        from_edges,
        from_jraph,
        from_networkx,
        from_scipy,
        locality_order,
        statistics,
    )
    from gtjax.nn import GraphTransformer, ModelConfig
    from gtjax.partition import Partition, partition_graph
    from gtjax.sharding.config import ParallelConfig
    from gtjax.training.config import (
        OptimConfig,
        PrepareConfig,
        RuntimeConfig,
        TrainConfig,
        read_config,
    )
    from gtjax.training.loop import fit
    from gtjax.training.planning import Sizes, plan
    from gtjax.training.result import Result
    from gtjax.training.step_cost import StepCost, step_cost

__version__ = "0.1.0"

_HOME = {
    "Graph": "gtjax.graph",
    "GraphFormatError": "gtjax.graph",
    "GraphTransformer": "gtjax.nn",
    "ModelConfig": "gtjax.nn.config",
    "OptimConfig": "gtjax.training.config",
    "ParallelConfig": "gtjax.sharding.config",
    "Partition": "gtjax.partition",
    "PrepareConfig": "gtjax.training.config",
    "Result": "gtjax.training.result",
    "RuntimeConfig": "gtjax.training.config",
    "Sizes": "gtjax.training.planning",
    "StepCost": "gtjax.training.step_cost",
    "TrainConfig": "gtjax.training.config",
    "UserError": "gtjax.graph",
    "fit": "gtjax.training.loop",
    "from_edges": "gtjax.graph",
    "from_jraph": "gtjax.graph",
    "from_networkx": "gtjax.graph",
    "from_scipy": "gtjax.graph",
    "load": "gtjax.datasets",
    "locality_order": "gtjax.graph",
    "partition_graph": "gtjax.partition",
    "plan": "gtjax.training.planning",
    "read_config": "gtjax.training.config",
    "save_npz": "gtjax.datasets",
    "statistics": "gtjax.graph",
    "step_cost": "gtjax.training.step_cost",
}

__all__ = [
    "Graph",
    "GraphFormatError",
    "GraphTransformer",
    "ModelConfig",
    "OptimConfig",
    "ParallelConfig",
    "Partition",
    "PrepareConfig",
    "Result",
    "RuntimeConfig",
    "Sizes",
    "StepCost",
    "TrainConfig",
    "UserError",
    "fit",
    "from_edges",
    "from_jraph",
    "from_networkx",
    "from_scipy",
    "load",
    "locality_order",
    "partition_graph",
    "plan",
    "read_config",
    "save_npz",
    "statistics",
    "step_cost",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gtjax' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
