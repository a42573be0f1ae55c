"""Checkpoints that cannot be written: said aloud, and the ones before them stay."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from gtjax.runs.checkpoint import CheckpointError, Checkpoints
from tests.runs.test_checkpoint import assert_same, names_in, snapshot

HEAD = """
import os, resource, sys, time
from pathlib import Path
import jax
from gtjax.runs.checkpoint import CheckpointError, Checkpoints
from tests.runs.test_checkpoint import assert_same, snapshot
out = Path(sys.argv[1])
"""
LARGE = 300  # rows and columns: 700 KB in all


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + code, *map(str, arguments)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip


def finish(process):
    said, complained = process.communicate(timeout=120)
    assert process.returncode == 0, complained
    return said, complained


def wait_for_failure(checkpoints):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        checkpoints.check()
        time.sleep(0.01)
    pytest.fail("nothing failed")


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MB, where making one is allowed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(["mount", *options], capture_output=True, check=False)
    except OSError:
        pytest.skip("there is no mount")
    if mounted.returncode:
        pytest.skip("mounting is not allowed")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_reported_and_the_older_checkpoint_stays(small_disk, capfd):
    run = small_disk / "run"
    with Checkpoints(run) as checkpoints:
        checkpoints.save(snapshot(1, 1.0))
        checkpoints.save(snapshot(2, 2.0, LARGE))  # fits, and then there is no place for another
        checkpoints.save(snapshot(3, 3.0, LARGE))
        with pytest.raises(CheckpointError) as caught:
            wait_for_failure(checkpoints)
        assert str(caught.value) == (
            f"the checkpoint of step 3 could not be written to {run / 'checkpoints'}: "
            "No space left on device. The last good checkpoint (step 2) is intact."
        )
        assert names_in(run / "checkpoints") == ["1", "2"]
        checkpoints.check()  # it is said once
        checkpoints.save(snapshot(4, 4.0))  # small enough
    with Checkpoints(run) as checkpoints:
        assert checkpoints.steps() == [4, 2]
        assert_same(checkpoints.read(2, snapshot(0, size=LARGE)), snapshot(2, 2.0, LARGE))
        assert_same(checkpoints.restore(snapshot(0)), snapshot(4, 4.0))
    assert capfd.readouterr().err == ""


def test_a_read_only_disk_is_reported_and_can_be_read(small_disk):
    run = small_disk / "run"
    with Checkpoints(run) as checkpoints:
        checkpoints.save(snapshot(1, 1.0))
        checkpoints.read(1, snapshot(0))  # waits for it
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        checkpoints.save(snapshot(2, 2.0))
        with pytest.raises(CheckpointError, match=r"step 2 .*Read-only file system.*step 1\) is"):
            checkpoints.save(snapshot(3, 3.0))
    with Checkpoints(run) as checkpoints:
        assert_same(checkpoints.restore(snapshot(0)), snapshot(1, 1.0))


def test_a_write_that_fails_half_way_leaves_the_older_checkpoint(out):
    """The same where nothing can be mounted: files may only be so large."""
    code = f"""
with Checkpoints(out) as checkpoints:
    checkpoints.save(snapshot(1, 1.0, {LARGE}))
    checkpoints.read(1, snapshot(0, size={LARGE}))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    checkpoints.save(snapshot(2, 2.0, {LARGE}))
    try:
        checkpoints.save(snapshot(3, 3.0, {LARGE}))
    except CheckpointError as error:
        print(error)
    print(sorted(path.name for path in (out / "checkpoints").iterdir()))
    try:
        with Checkpoints(out) as others:  # do not know the one there is, and would replace it
            others.save(snapshot(1, 9.0, {LARGE}))
    except CheckpointError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert_same(checkpoints.restore(snapshot(0, size={LARGE})), snapshot(1, 1.0, {LARGE}))
    checkpoints.save(snapshot(3, 3.0, {LARGE}))
    assert_same(checkpoints.restore(snapshot(0, size={LARGE})), snapshot(3, 3.0, {LARGE}))
"""
    said, complained = finish(start(code, out))
    first, names, second = said.splitlines()
    assert first == (
        f"the checkpoint of step 2 could not be written to {out / 'checkpoints'}: "
        "File too large. The last good checkpoint (step 1) is intact."
    )
    assert names == "['1']"
    assert "step 1 could not be written" in second
    assert complained == ""


def test_a_file_in_the_place_of_the_folder_is_reported_at_the_end(out):
    out.mkdir()
    (out / "checkpoints").write_text("not a folder")
    said = r"step 1 could not be written to .*: File exists\. There is none before it"
    with pytest.raises(CheckpointError, match=said), Checkpoints(out) as checkpoints:
        checkpoints.save(snapshot(1))


def test_an_error_is_not_hidden_by_that_of_the_checkpoint(out):
    out.write_text("not a folder")

    def fail():
        with Checkpoints(out) as checkpoints:
            checkpoints.save(snapshot(1))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()


def test_a_killed_process_leaves_whole_checkpoints(out):
    """Of one that writes all the time; what it said is durable is there, and right."""
    code = f"""
import gtjax.runs.orbax_files  # or it would be killed while that is imported
with Checkpoints(out) as checkpoints:
    step = checkpoints.steps()[0] if checkpoints.steps() else 0
    while True:
        step += 1
        checkpoints.save(snapshot(step, 0.5 * step, {LARGE}))
        print(checkpoints.durable, flush=True)
"""
    rng, incomplete = np.random.default_rng(0), 0
    like = snapshot(0, size=LARGE)
    for killed in range(16):
        if killed >= 4 and incomplete:
            break
        process = start(code, out)
        process.stdout.readline()  # the first one is being written
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
        known = [int(line) for line in said.split() if line != "None"]
        with Checkpoints(out) as checkpoints:
            for step in checkpoints.steps():
                assert_same(checkpoints.read(step, like), snapshot(step, 0.5 * step, LARGE))
            assert max(checkpoints.steps(), default=0) >= max(known, default=0)
        if (out / "checkpoints").exists():
            incomplete += any(not name.isdigit() for name in names_in(out / "checkpoints"))
    with Checkpoints(out) as checkpoints:
        step = max(checkpoints.steps(), default=0) + 1
        checkpoints.save(snapshot(step))
    assert all(name.isdigit() for name in names_in(out / "checkpoints"))
    assert incomplete  # or they were killed while nothing was written


@pytest.mark.slow
def test_of_two_processes_one_writes_and_neither_waits(out):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    code = """
number = int(sys.argv[3])
jax.distributed.initialize(sys.argv[2], 2, number)
assert jax.process_count() == 2
checkpoints = Checkpoints(out)
with checkpoints:
    if number == 0:
        checkpoints.save(snapshot(1, 1.0))  # the other has nothing to do with it
        assert_same(checkpoints.read(1, snapshot(0)), snapshot(1, 1.0))
        print("wrote", flush=True)
        while not (out / "seen").exists():
            time.sleep(0.01)
    else:
        checkpoints.save(snapshot(7, 7.0))  # not for it to write
        while not checkpoints.steps():
            time.sleep(0.01)
        assert checkpoints.steps() == [1]
        assert_same(checkpoints.restore(snapshot(0)), snapshot(1, 1.0))
        assert checkpoints.durable == 1
        print("read", flush=True)
        (out / "seen").touch()
"""
    processes = [start(code, out, address, number) for number in range(2)]
    assert [finish(process)[0] for process in processes] == ["wrote\n", "read\n"]
    assert names_in(out / "checkpoints") == ["1"]
