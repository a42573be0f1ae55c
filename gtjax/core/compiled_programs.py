"""Has jax keep compiled programs in the user's cache folder, so that the next run starts at once.

jax finds a program by all that went into it (its text, the compiler's version and options, the
devices), so one that is found is the one that would be compiled. The folder is for one kind of
processor, since programs for CPUs use the instructions that are there, and homes are shared. At
most 2 GiB, least recently used first out; a lock keeps processes that share it apart. A folder that
cannot be written, or a setting of jax's own (`JAX_COMPILATION_CACHE_DIR`,
`JAX_ENABLE_COMPILATION_CACHE=0`), leaves everything as it is.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

from gtjax.core.user_cache import user_cache

MOST_BYTES = 2 * 2**30
LEAST_SECONDS = 0.1  # of compiling: what takes less is compiled as fast as it is read


def keep_compiled() -> Path | None:
    """Ask for it; the folder, or None if it is not to be, or cannot."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    known: Any = jax.config  # its settings are not known to type checkers
    if known.jax_compilation_cache_dir or not known.jax_enable_compilation_cache:
        return None
    folder = compiled_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK | os.X_OK):
        return None
    if importlib.util.find_spec("filelock") is not None:  # which jax locks and counts with
        jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    compilation_cache.reset_cache()  # it may have looked before, and found that there is none
    return folder


def compiled_folder() -> Path:
    """Where programs for this kind of processor are kept."""
    return user_cache() / "compiled" / f"{platform.machine()}-{_processor()}"


def _processor() -> str:
    """A short name of the processor and its instructions."""
    info = Path("/proc/cpuinfo")
    words = platform.processor()
    if info.exists():
        lines = info.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0].splitlines()
        kept = ("model name", "flags", "Features", "CPU part")
        words = "\n".join(line for line in lines if line.startswith(kept))
    return hashlib.blake2b(words.encode(), digest_size=6).hexdigest()
