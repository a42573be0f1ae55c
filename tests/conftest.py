"""Several simulated devices in every test process, and programs that are compiled once for all.

Most of the time of a test is the compilation of a program that runs for a millisecond. So LLVM is
told not to try hard (XLA's own passes, which decide on memory and collectives, run as ever), and
what one test compiles the others find, in all processes of a session. GTJAX_TEST_OPTIMISED=1 has
everything compiled as users have it.
"""

import os

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(scope="session", autouse=True)
def compiled_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A folder of compiled programs, for this process and those that tests start."""
    if request.config.option.markexpr == "aot":  # what other compilers make is what is tested
        yield
        return
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    settings = {
        "jax_compilation_cache_dir": str(base / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_traceback_in_locations_limit": 0,
        "jax_disable_most_optimizations": not os.environ.get("GTJAX_TEST_OPTIMISED"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name.upper(), str(value))
            jax.config.update(name, value)
        yield
