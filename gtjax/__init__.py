"""gtjax: train graph neural networks and transformers on graphs too large for one device.

The public names are loaded when they are first used, so `import gtjax` and `gtjax --help` do not
wait for jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gtjax.batching.bind import bind
    from gtjax.batching.config import BatchesConfig, PrepareConfig
    from gtjax.core.errors import GraphFormatError, UserError
    from gtjax.datasets import from_pandas, load, save_npz
    from gtjax.datasets.conversion import ConvertOptions, convert
    from gtjax.graph import (
        Graph,
        Names,
        StoredGraph,
        from_dgl,
        from_edges,
        from_jraph,
        from_networkx,
        from_pyg,
        from_scipy,
        locality_order,
        many_graphs,
        statistics,
        to_pyg,
    )
    from gtjax.nn import (
        DecoupledConfig,
        GATConfig,
        GATv2Config,
        GCNConfig,
        GINConfig,
        GPSConfig,
        GRANDConfig,
        GraphTransformer,
        ModelConfig,
        PolynormerConfig,
        RelationalConfig,
        SAGEConfig,
        SGFormerConfig,
        TransformerConfig,
        register_model,
    )
    from gtjax.partition import Partition, partition_graph
    from gtjax.recipes.config import RecipeConfig, SmoothConfig
    from gtjax.runs.config import OptimConfig, RuntimeConfig, TrainConfig, read_config
    from gtjax.runs.loop import fit
    from gtjax.runs.planning import Sizes, plan
    from gtjax.runs.result import Result
    from gtjax.runs.step_cost import StepCost, step_cost
    from gtjax.runs.trained import TrainedRun, load_run
    from gtjax.runs.weights import load_weights, save_weights
    from gtjax.sharding.config import ParallelConfig
    from gtjax.tasks.base import Task, register_task
    from gtjax.tasks.config import TaskConfig
    from gtjax.tuning.config import TuneConfig
    from gtjax.tuning.tune import tune

__version__ = "0.1.0"

_HOME = {
    "ConvertOptions": "gtjax.datasets.conversion",
    "DecoupledConfig": "gtjax.nn.config",
    "GATConfig": "gtjax.nn.config",
    "GATv2Config": "gtjax.nn.config",
    "GCNConfig": "gtjax.nn.config",
    "GINConfig": "gtjax.nn.config",
    "GPSConfig": "gtjax.nn.config",
    "GRANDConfig": "gtjax.nn.config",
    "BatchesConfig": "gtjax.batching.config",
    "Graph": "gtjax.graph",
    "GraphFormatError": "gtjax.core.errors",
    "GraphTransformer": "gtjax.nn",
    "ModelConfig": "gtjax.nn.config",
    "Names": "gtjax.graph",
    "OptimConfig": "gtjax.runs.config",
    "ParallelConfig": "gtjax.sharding.config",
    "Partition": "gtjax.partition",
    "PolynormerConfig": "gtjax.nn.config",
    "PrepareConfig": "gtjax.batching.config",
    "RecipeConfig": "gtjax.recipes.config",
    "RelationalConfig": "gtjax.nn.config",
    "Result": "gtjax.runs.result",
    "RuntimeConfig": "gtjax.runs.config",
    "SAGEConfig": "gtjax.nn.config",
    "SGFormerConfig": "gtjax.nn.config",
    "Sizes": "gtjax.runs.planning",
    "SmoothConfig": "gtjax.recipes.config",
    "StepCost": "gtjax.runs.step_cost",
    "StoredGraph": "gtjax.graph",
    "Task": "gtjax.tasks.base",
    "TaskConfig": "gtjax.tasks.config",
    "TrainConfig": "gtjax.runs.config",
    "TrainedRun": "gtjax.runs.trained",
    "TransformerConfig": "gtjax.nn.config",
    "TuneConfig": "gtjax.tuning.config",
    "UserError": "gtjax.core.errors",
    "bind": "gtjax.batching.bind",
    "convert": "gtjax.datasets.conversion",
    "fit": "gtjax.runs.loop",
    "from_dgl": "gtjax.graph",
    "from_edges": "gtjax.graph",
    "from_jraph": "gtjax.graph",
    "from_networkx": "gtjax.graph",
    "from_pandas": "gtjax.datasets",
    "from_pyg": "gtjax.graph",
    "from_scipy": "gtjax.graph",
    "load": "gtjax.datasets",
    "load_run": "gtjax.runs.trained",
    "load_weights": "gtjax.runs.weights",
    "locality_order": "gtjax.graph",
    "many_graphs": "gtjax.graph",
    "partition_graph": "gtjax.partition",
    "plan": "gtjax.runs.planning",
    "read_config": "gtjax.runs.config",
    "register_model": "gtjax.nn.models",
    "register_task": "gtjax.tasks.base",
    "save_npz": "gtjax.datasets",
    "save_weights": "gtjax.runs.weights",
    "statistics": "gtjax.graph",
    "step_cost": "gtjax.runs.step_cost",
    "to_pyg": "gtjax.graph",
    "tune": "gtjax.tuning.tune",
}

__all__ = [
    "BatchesConfig",
    "ConvertOptions",
    "DecoupledConfig",
    "GATConfig",
    "GATv2Config",
    "GCNConfig",
    "GINConfig",
    "GPSConfig",
    "GRANDConfig",
    "Graph",
    "GraphFormatError",
    "GraphTransformer",
    "ModelConfig",
    "Names",
    "OptimConfig",
    "ParallelConfig",
    "Partition",
    "PolynormerConfig",
    "PrepareConfig",
    "RecipeConfig",
    "RelationalConfig",
    "Result",
    "RuntimeConfig",
    "SAGEConfig",
    "SGFormerConfig",
    "Sizes",
    "SmoothConfig",
    "StepCost",
    "StoredGraph",
    "Task",
    "TaskConfig",
    "TrainConfig",
    "TrainedRun",
    "TransformerConfig",
    "TuneConfig",
    "UserError",
    "bind",
    "convert",
    "fit",
    "from_dgl",
    "from_edges",
    "from_jraph",
    "from_networkx",
    "from_pandas",
    "from_pyg",
    "from_scipy",
    "load",
    "load_run",
    "load_weights",
    "locality_order",
    "many_graphs",
    "partition_graph",
    "plan",
    "read_config",
    "register_model",
    "register_task",
    "save_npz",
    "save_weights",
    "statistics",
    "step_cost",
    "to_pyg",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gtjax' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
