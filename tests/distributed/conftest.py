"""The command line, for tests of what stands behind one command."""

from tests.cli.conftest import gtjax, out

__all__ = ["gtjax", "out"]
