"""The floor under every CPU kernel: reading the rows that the op reads, and nothing else.

The forward pass reads a row of K and of V for every edge; the backward pass reads both again for
dQ, and a row of Q and of dOut for dK and dV. `gather_seconds` times such reads in native code, with
prefetch and on all cores (FFI target `gtjax_gather_rows`: table f32 [N, F] and index s32 [E] to the
sum f32 [F] of the rows, so that the reads cannot be left out). Builds without it have no bound.
"""

from __future__ import annotations

import ctypes
import functools
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from contenders.case import CaseFolder
from contenders.jax_attention import PACKAGES
from contenders.work import Absent, Work
from pallas_kernels.segment_attention import cpu

TARGET = "gtjax_gather_rows"


@functools.cache
def _register() -> None:
    if reason := cpu.why_not():
        raise Absent(reason)
    library = ctypes.CDLL(str(next(Path(cpu.__file__).parent.glob(cpu.LIBRARY))))
    if not hasattr(library, TARGET):
        raise Absent(f"the native kernels of this build have no {TARGET}")
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(getattr(library, TARGET)), platform="cpu")


@jax.jit
def _sum_of_rows(table_nf: jax.Array, index_e: jax.Array) -> jax.Array:
    _register()
    shape = jax.ShapeDtypeStruct(table_nf.shape[1:], jnp.float32)
    return jax.ffi.ffi_call(TARGET, shape)(table_nf, index_e)


def gather_seconds(table_nf: Any, index_e: Any) -> float:
    """Seconds to read the rows `index_e` of `table_nf` once, in that order."""
    start = time.perf_counter()
    _sum_of_rows(table_nf, index_e).block_until_ready()
    return time.perf_counter() - start


def work(folder: CaseFolder) -> Work:
    """The reads of the case's forward pass, and of its forward and backward passes."""
    _register()
    case = folder.case
    if case.kind != "attention":
        raise Absent("it bounds the op alone")
    tables = {
        name: jnp.asarray(folder.array(name).reshape(case.nodes, -1))
        for name in ("q_nhd", "k_nhd", "v_nhd", "dout_nhd")
    }
    senders_e, receivers_e = folder.array("senders_e"), folder.array("receivers_e")
    by_receiver_e = jnp.asarray(senders_e)
    by_sender_e = jnp.asarray(receivers_e[np.argsort(senders_e, kind="stable")])

    def forward() -> None:
        for name in ("k_nhd", "v_nhd"):
            gather_seconds(tables[name], by_receiver_e)

    def both() -> None:
        forward()
        forward()  # the backward pass recomputes from the same rows
        for name in ("q_nhd", "dout_nhd"):
            gather_seconds(tables[name], by_sender_e)

    def results() -> dict[str, np.ndarray]:
        both()
        table_nf = np.asarray(tables["k_nhd"], np.float64)
        wanted_f = np.bincount(senders_e, minlength=case.nodes) @ table_nf
        found_f = np.asarray(_sum_of_rows(tables["k_nhd"], by_receiver_e))
        # Sums of many float32 of both signs: wrong rows would be off by far more than rounding.
        error = np.abs(found_f - wanted_f).max() / np.sqrt(max(case.edges, 1))
        if not error < 0.05:
            raise AssertionError(f"{TARGET} did not read the rows it was asked for: off by {error}")
        return {}

    return Work({"forward": forward, "both": both}, results, 0, PACKAGES)
