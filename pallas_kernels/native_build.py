"""Builds the native kernels when the package is installed; without a compiler, leaves them out.

Used by setuptools alone (see pyproject.toml). Imports nothing of jax: the headers are found beside
jaxlib without loading it. The passes are compiled once for each set of instructions, and the
library chooses among them when it runs, so that a wheel works on every processor of its kind.
"""

from __future__ import annotations

import importlib.util
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools.command.build_ext import build_ext

NATIVE = "pallas_kernels/native"
PASSES = [f"{NATIVE}/{name}.cc" for name in ("softmax", "sums", "extremes", "propagation")]
VARIANTS = {"baseline": []}
if platform.machine() in ("x86_64", "AMD64"):
    VARIANTS |= {"avx2": ["-march=x86-64-v3"], "avx512": ["-march=x86-64-v4"]}

FLAGS = [
    "-std=c++17",
    "-O3",
    "-g0",  # symbols of the templates would double the time
    "-w",  # what warns is XLA's headers
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-wrapv",  # which Python's own flags ask for: loops over 64-bit places get a fifth slower
]


class BuildKernels(build_ext):
    """`build_ext` with the headers of XLA's foreign-function interface, and flags for speed."""

    def build_extensions(self) -> None:
        """Add what only the machine at hand can tell, then build."""
        spec = importlib.util.find_spec("jaxlib")
        if spec is None or spec.origin is None:
            self.warn("jaxlib is not there: the native kernels are left out")
            return
        if self.compiler.compiler_type != "unix":
            self.warn("the native kernels need GCC or Clang: they are left out")
            return
        for extension in self.extensions:
            extension.include_dirs.append(str(Path(spec.origin).parent / "include"))
            extension.extra_compile_args += FLAGS
            if len(VARIANTS) > 1:
                extension.define_macros.append(("GTJAX_X86", "1"))
        super().build_extensions()

    def build_extension(self, ext) -> None:
        """Compile every variant of the passes, then the rest, and link them."""
        if not ext.name.startswith("pallas_kernels."):
            super().build_extension(ext)
            return
        with ThreadPoolExecutor(max_workers=2) as pool:
            for objects in pool.map(self._compile_variant, VARIANTS):
                ext.extra_objects += objects
        super().build_extension(ext)

    def _compile_variant(self, name: str) -> list[str]:
        return self.compiler.compile(
            PASSES,
            output_dir=str(Path(self.build_temp) / name),
            macros=[("GTJAX_VARIANT", name)],
            extra_postargs=FLAGS + VARIANTS[name],
        )

    def get_export_symbols(self, ext: object) -> list[str]:
        """None: the libraries hold handlers for XLA and plain functions, not Python modules."""
        return []
