"""Settings of the property tests, and the folder of real graphs."""

from tests.datasets.conftest import real_graphs
from tests.graph import conftest as _settings  # noqa: F401

__all__ = ["real_graphs"]
