"""Signals: the first asks for a stop, the second acts as ever; also on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from gtjax.runs import loop
from gtjax.runs.interrupt import StopRequest
from gtjax.runs.loop import fit, resume
from gtjax.runs.run_folder import RunFolder
from tests.marks import slow
from tests.runs.small_run import small_config

LONG = 400  # steps: seconds, with a checkpoint after every few of them


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_acts(number):
    seen = []
    before = signal.signal(number, lambda *_: seen.append("acted"))
    try:
        with StopRequest() as stop:
            assert not stop.asked
            os.kill(os.getpid(), number)
            assert stop.asked
            assert seen == []
            os.kill(os.getpid(), number)
            assert seen == ["acted"]
        os.kill(os.getpid(), number)
        assert seen == ["acted", "acted"]
    finally:
        signal.signal(number, before)


def test_who_is_supervised_takes_two_signals_for_one_request(monkeypatch):
    """SLURM sends one to every process, and the supervisor passes its own on."""
    monkeypatch.setenv("GTJAX_SUPERVISED", "1")
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("acted"))
    try:
        with StopRequest(ends=True) as stop:
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGTERM)
            assert stop.asked
            assert seen == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert seen == ["acted"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_threads_may_train_too():
    errors = []

    def work():
        try:
            with StopRequest() as stop:
                assert not stop.asked
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []


@pytest.mark.parametrize(
    ("doing", "said"),
    [("", "after the current step"), ("planning", "as soon as planning is done")],
)
def test_the_first_signal_is_acknowledged_once(capfd, doing, said):
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with StopRequest() as stop, stop.during(doing):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.asked
    finally:
        signal.signal(signal.SIGTERM, before)
    line = f"gtjax: stopping {said}; press again to end at once\n"
    assert capfd.readouterr().err.count(line) == 1


def native_code():
    """A process that is within native code for ever, as a compiler is for minutes."""
    code = (
        "import ctypes, sys\n"
        "from gtjax.runs.interrupt import StopRequest\n"
        "lock, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)\n"
        "with StopRequest(ends=True) as stop, stop.during('compiling'):\n"
        "    libc.pthread_mutex_lock(lock)\n"
        "    print('ready', flush=True)\n"
        "    libc.pthread_mutex_lock(lock)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_heard_within_native_code(number):
    process = native_code()
    try:
        process.send_signal(number)
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said == "gtjax: stopping as soon as compiling is done; press again to end at once\n"
        process.send_signal(number)
        # By itself, or by the signal where Python came to give that back already.
        assert process.wait(timeout=30) in (128 + number, -number)
    finally:
        process.kill()
        process.communicate()


def test_planning_and_preparing_stop_between_their_pieces(graph, out, monkeypatch):
    stop, made = StopRequest(), []
    config = small_config(out)

    def asked(*arguments, progress, **named):
        stop.ask()
        progress(0.5, "a piece")
        made.append(arguments)

    monkeypatch.setattr(loop, "batches_of", asked)
    with pytest.raises(loop.Interrupted, match="stopped at step 0; continue with: gtjax resume"):
        fit(graph, config=config, show_progress=False, stop=stop)
    stop.asked = False

    def decided(config, graph, progress, *rest):
        stop.ask()
        progress(0.5, "a piece")
        made.append(graph)

    monkeypatch.setattr("gtjax.runs.settled.decided", decided)
    config = small_config(out.parent / "other")
    with pytest.raises(loop.Interrupted, match="stopped while planning; nothing is saved yet"):
        fit(graph, config=config, show_progress=False, stop=stop)
    assert not config.out.exists()
    assert not made


@pytest.fixture(scope="module")
def whole(graph, tmp_path_factory):
    config = small_config(tmp_path_factory.mktemp("whole") / "run", steps=LONG, eval_every=50)
    return fit(graph, config=config, show_progress=False)


def start(out):
    """The same run as `whole`, as a process of its own; returns once it has a checkpoint."""
    settings = json.dumps({"steps": LONG, "eval_every": 50})
    code = (
        "import json, sys; from pathlib import Path\n"
        "from gtjax.cli.outcome import report_outcome\n"
        "from gtjax.datasets import load; from gtjax.runs.loop import fit\n"
        "from gtjax.runs.config import RuntimeConfig\n"
        "from tests.runs.small_run import DATA, small_config\n"
        "runtime = RuntimeConfig(checkpoint_seconds=0.0)\n"
        "config = small_config(Path(sys.argv[1]), runtime=runtime, **json.loads(sys.argv[2]))\n"
        "sys.exit(report_outcome(lambda: fit(load(DATA), config=config)))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(out), settings],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not any(path.name.isdigit() for path in (out / "checkpoints").glob("*")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


@pytest.mark.parametrize(
    "number",
    [slow(signal.SIGINT), signal.SIGTERM, slow(signal.SIGKILL)],
)
def test_a_run_stopped_by_a_signal_ends_like_one_that_was_not(graph, whole, out, number):
    process = start(out)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert not (out / "result.json").exists()
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 0
        assert f"continue with: gtjax resume {out}" in said
        assert "gtjax: stopping after the current step; press again to end at once" in said
        assert "Traceback" not in said
    assert resume(*RunFolder.open(out), graph, show_progress=False)["losses"] == whole["losses"]
