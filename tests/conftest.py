"""Several simulated devices in every test process, and programs that are compiled once for all.

Most of the time of a test is the compilation of a program that runs for a millisecond. So LLVM is
told not to try hard, fusions reach it the short way (XLA's own passes, which decide on memory and
collectives, run as ever), and what one test compiles the others find, in all processes of a
session. GTJAX_TEST_OPTIMISED=1 has everything compiled as users have it.
"""

import functools
import gc
import os
from collections import Counter

import jax
import jaxlib.version
import pytest

jax.config.update("jax_num_cpu_devices", 8)
OPTIMISED = bool(os.environ.get("GTJAX_TEST_OPTIMISED"))
# Of XLA's two ways from a fusion to LLVM, the older one, which goes through fewer passes: tests of
# strategies take 28 % less time. jaxlib 0.12 has one way, and ends the process over the flag.
SHORT_WAY = "xla_cpu_use_fusion_emitters"


def pytest_configure(config: pytest.Config) -> None:
    """What has to be said before the first program is compiled."""
    flags = os.environ.get("XLA_FLAGS", "")
    wanted = (
        not OPTIMISED and not config.option.markexpr.startswith("aot") and SHORT_WAY not in flags
    )
    if wanted and jaxlib.version.__version_info__[:2] == (0, 10):
        os.environ["XLA_FLAGS"] = f"{flags} --{SHORT_WAY}=false".strip()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test that is marked `quick_every(n)`, all but one in n are slow."""
    seen: Counter[str] = Counter()
    for item in items:
        mark, test = item.get_closest_marker("quick_every"), item.nodeid.partition("[")[0]
        if mark is None or item.get_closest_marker("slow"):
            continue
        if seen[test] % mark.args[0]:
            item.add_marker(pytest.mark.slow)
        seen[test] += 1


def pytest_collection_finish() -> None:
    """Collect garbage seldom: tracing makes a million objects, and few of them are in cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


@pytest.fixture(scope="session", autouse=True)
def compiled_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A folder of compiled programs, for this process and those that tests start."""
    if request.config.option.markexpr.startswith(
        "aot"
    ):  # what other compilers make is what is tested
        yield
        return
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    settings = {
        "jax_compilation_cache_dir": str(base / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_traceback_in_locations_limit": 0,
        "jax_disable_most_optimizations": not OPTIMISED,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name.upper(), str(value))
            jax.config.update(name, value)
        yield


@pytest.fixture(scope="module", autouse=True)
def figures_drawn_once():
    """Draw a figure of a report once for all runs: it takes a fifth of the time of a small run.

    Tests of reports put a fixture of this name in its place, and have every figure drawn.
    """
    from gtjax.runs.report import drawing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "drawn_figure", drawn_once(drawing.drawn_figure))
        yield


@functools.cache
def drawn_once(draw):
    """`draw`, which gives what it gave before for the same name and size."""
    drawn = {}

    def draw_once(name, content, width, height):
        if (name, width, height) not in drawn:
            drawn[name, width, height] = draw(name, content, width, height)
        return drawn[name, width, height]

    return draw_once
