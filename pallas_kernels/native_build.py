"""Builds the native kernels when the package is installed; without a compiler, leaves them out.

Used by setuptools alone (see pyproject.toml). Imports nothing of jax: the headers are found beside
jaxlib without loading it.
"""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path

from setuptools.command.build_ext import build_ext


class BuildKernels(build_ext):
    """`build_ext` with the headers of XLA's foreign-function interface, and flags for speed."""

    def build_extensions(self) -> None:
        """Add what only the machine at hand can tell, then build."""
        spec = importlib.util.find_spec("jaxlib")
        if spec is None or spec.origin is None:
            self.warn("jaxlib is not there: the native kernels are left out")
            return
        unix = self.compiler.compiler_type == "unix"
        for extension in self.extensions:
            extension.include_dirs.append(str(Path(spec.origin).parent / "include"))
            extension.extra_compile_args += _UNIX if unix else ["/std:c++17", "/O2"]
            if unix and platform.machine() == "x86_64":
                extension.extra_compile_args.append("-march=x86-64-v3")
        super().build_extensions()

    def get_export_symbols(self, ext: object) -> list[str]:
        """None: the library holds handlers for XLA, not a Python module."""
        return []


_UNIX = [
    "-std=c++17",
    "-O3",
    "-w",  # what warns is XLA's headers
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
]
