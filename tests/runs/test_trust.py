"""A kernel that is wrong, raises or hangs on the device is told, and the run goes on without it."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from gtjax.core.errors import UserError
from gtjax.distributed.team import this_team
from gtjax.runs import trust as trust_module
from gtjax.runs.loop import fit
from gtjax.runs.trust import Tried, tried, trust, trust_measured
from pallas_kernels import DOT_PRODUCT, op
from pallas_kernels.op import DISTRUSTED
from pallas_kernels.passes.xla import XLA
from pallas_kernels.trial import RowShapes, awkward_edges
from tests.runs.small_run import small_config

WIDE = jax.ShapeDtypeStruct((2, 4), jnp.float32)
ROWS = RowShapes(WIDE, (WIDE, WIDE))
DONE = threading.Event()


def wrong_result(*rows):
    right = XLA.forward(*rows)
    return right._replace(acc_rhd=right.acc_rhd * 1.01)


def wrong_gradient(*rows):
    d_receiver, (d_key, d_value), *others = XLA.backward(*rows)
    return d_receiver, (d_key.at[:1].multiply(2.0), d_value), *others


def not_a_number(*rows):
    right = XLA.forward(*rows)
    return right._replace(acc_rhd=right.acc_rhd * jnp.nan)


def raises(*rows):
    raise RuntimeError("no such instruction\nin line 7")


def hangs(*rows):
    DONE.wait(60)  # as a compiler that does not come back
    return XLA.forward(*rows)


CASES = {
    "result": ({"forward": wrong_result}, "its result differs from XLA's by"),
    "gradient": ({"backward": wrong_gradient}, "its gradient sender 0 differs from XLA's by"),
    "not a number": ({"forward": not_a_number}, "its result differs from XLA's by nan"),
    "raises": ({"forward": raises}, "it raised RuntimeError: no such instruction"),
    "hangs": ({"forward": hangs}, "it did not finish within 2 s"),
}


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """Puts a kernel in front of the others of attention, on this platform."""
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(op.KERNEL_PLATFORMS, "new", ("cpu",))
    monkeypatch.setattr(trust_module, "LIMIT_SECONDS", 30.0)
    before, doubts = DOT_PRODUCT.kernels, dict(DISTRUSTED)
    DONE.clear()

    def put(**changes):
        made = replace(XLA, name="new", **changes)
        object.__setattr__(DOT_PRODUCT, "kernels", (made, *before))
        return made

    yield put
    DONE.set()
    object.__setattr__(DOT_PRODUCT, "kernels", before)
    DISTRUSTED.clear()
    DISTRUSTED.update(doubts)


def calls():
    return [Tried(DOT_PRODUCT, ROWS)]


def test_the_graph_that_kernels_are_tried_on_has_all_that_is_awkward():
    senders, receivers = awkward_edges(521)
    degrees, out = (jnp.bincount(ends, length=521) for ends in (receivers, senders))
    assert degrees.max() > 4 * 128  # several pieces, and two levels of tiles
    assert out.max() > 4 * 128
    assert (degrees == 0).sum() >= 50
    assert (senders == receivers).any()
    pairs = set(zip(senders.tolist(), receivers.tolist(), strict=True))
    assert len(pairs) < len(senders)


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_that_cannot_be_trusted_is_replaced_and_reported(
    kernel, monkeypatch, capsys, case
):
    changes, said = CASES[case]
    kernel(**changes)
    if case == "hangs":
        monkeypatch.setattr(trust_module, "LIMIT_SECONDS", 2.0)
    assert DOT_PRODUCT.kernel("auto").name == "new"
    trust("auto", calls(), "cpu", this_team())
    assert DOT_PRODUCT.kernel("auto").name != "new"
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"kernel new of dot_product is not trusted on this device: {said}")
    path = line.split("Please attach ")[1].split(" to a bug report")[0]
    report = json.loads(Path(path).read_text())
    assert report["kernel"] == "new"
    assert report["device"] == jax.devices()[0].device_kind
    assert report["versions"]["jax"] == jax.__version__
    assert "raise" not in case or "in line 7" in report["details"]


def test_what_is_timed_for_a_plan_is_tried_too(kernel):
    kernel(forward=raises)
    trust_measured("auto", this_team(), show=False)
    assert DOT_PRODUCT.kernel("auto").name != "new"


def test_one_that_was_asked_for_by_name_is_refused(kernel):
    kernel(backward=wrong_gradient)
    with pytest.raises(UserError, match=r"kernel new of dot_product .* Use --kernel auto or xla"):
        trust("new", calls(), "cpu", this_team())


def test_agreement_is_remembered_for_these_rows_alone(kernel, monkeypatch):
    right, tries = kernel(), []
    trial = trust_module.trial
    monkeypatch.setattr(trust_module, "trial", lambda *given: tries.append(1) or trial(*given))
    for _ in range(2):
        assert tried(DOT_PRODUCT, right, ROWS, "cpu") is None
    assert len(tries) == 1
    half = jax.ShapeDtypeStruct((2, 4), jnp.bfloat16)
    assert tried(DOT_PRODUCT, right, RowShapes(half, (half, half)), "cpu") is None
    assert len(tries) == 2


def test_a_cache_that_cannot_be_written_stops_nobody(kernel, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert tried(DOT_PRODUCT, kernel(), ROWS, "cpu") is None
    doubt = tried(DOT_PRODUCT, kernel(forward=raises), ROWS, "cpu")
    assert doubt is not None
    assert "cache" not in doubt.report


def test_a_run_goes_on_without_a_wrong_kernel(kernel, capsys, tmp_path):
    kernel(forward=raises)
    started = time.monotonic()
    result = fit(small_config().data, config=small_config(tmp_path / "run", steps=2))
    assert result.values["kernels"]["dot_product"] != "new"
    said = capsys.readouterr().err
    assert said.count("kernel new of dot_product is not trusted on this device") == 1
    assert time.monotonic() - started < 60


def test_a_run_with_a_wrong_kernel_by_name_is_refused(kernel, tmp_path):
    kernel(forward=raises)
    config = small_config(tmp_path / "run", steps=2, kernel="new")
    with pytest.raises(UserError, match="kernel new of dot_product is not trusted"):
        fit(config.data, config=config)
    assert not (tmp_path / "run").exists()
