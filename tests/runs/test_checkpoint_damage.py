"""Damaged checkpoints: never wrong numbers, always an older one or an error that names them."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.runs.checkpoint import Checkpoints
from gtjax.runs.checkpoint_files import DamagedCheckpointError
from tests.runs.damage import bit_flips, files_in, removals, truncations
from tests.runs.test_checkpoint import assert_same, names_in, snapshot, written

FLIPS = 300


@pytest.fixture
def two(out):
    """Checkpoints of the steps 1 and 2, and the folder of the newer one."""
    written(out, 1, 2)
    return out, out / "checkpoints" / "2"


def outcome(out):
    """The newest, or the older one and word of the newer; anything else fails."""
    with Checkpoints(out) as checkpoints:
        found = checkpoints.restore(snapshot(0))
        if not checkpoints.damaged:
            assert_same(found, snapshot(2, np.pi * 2))
            return "unharmed"
        (message,) = checkpoints.damaged
        assert message.startswith(f"{checkpoints.folder / '2'} is damaged: ")
        assert "\n" not in message
        assert_same(found, snapshot(1, np.pi))
        return "passed over"


def test_no_flipped_bit_gives_wrong_numbers(two):
    out, newest = two
    outcomes = [outcome(out) for _ in bit_flips(newest, FLIPS, seed=0)]
    assert outcome(out) == "unharmed"
    # Some bits are of no consequence, such as those of files that only have to be there.
    assert outcomes.count("passed over") > FLIPS / 4


def test_a_bit_flipped_in_the_numbers_is_noticed_by_its_hash(out):
    """Orbax does not notice this one, or the hashes would be of no use."""
    with Checkpoints(out) as checkpoints:
        checkpoints.save(snapshot(1, 1.5, size=64))
        checkpoints.save(snapshot(2, 2.5, size=64))
    said = set()
    for _ in bit_flips(out / "checkpoints" / "2" / "arrays", 60, seed=1):
        with Checkpoints(out) as checkpoints:
            checkpoints.restore(snapshot(0, size=64))
            said |= {message.rpartition("array ")[2][2:] for message in checkpoints.damaged}
    assert "does not give its hash" in said


@pytest.mark.parametrize("harm", [removals, truncations])
def test_files_that_are_missing_or_cut_off_are_noticed(two, harm):
    out, newest = two
    outcomes = [outcome(out) for _ in harm(newest)]
    assert outcomes.count("passed over") >= 4
    assert outcome(out) == "unharmed"


def test_a_damaged_one_is_refused_by_its_name_and_reason(two):
    out, newest = two
    shutil.rmtree(newest / "arrays")
    with Checkpoints(out) as checkpoints:
        with pytest.raises(DamagedCheckpointError, match=rf"{newest} is damaged: \w"):
            checkpoints.read(2, snapshot(0))
        assert_same(checkpoints.read(1, snapshot(0)), snapshot(1, np.pi))


def test_a_checkpoint_under_the_number_of_another_is_damaged(two):
    out, newest = two
    newest.rename(newest.with_name("3"))
    with Checkpoints(out) as checkpoints:
        assert_same(checkpoints.restore(snapshot(0)), snapshot(1, np.pi))
        assert "it is the checkpoint of step 2" in checkpoints.damaged[0]


def test_if_none_is_whole_all_are_named(two):
    out, newest = two
    for path in files_in(newest.parent):
        path.write_bytes(b"?")
    with Checkpoints(out) as checkpoints:
        assert checkpoints.steps()
        with pytest.raises(UserError, match="no checkpoint that is whole") as caught:
            checkpoints.restore(snapshot(0))
    assert all(f"{newest.parent / each} is damaged" in str(caught.value) for each in "12")


@pytest.mark.parametrize("step", [2, 3, 9])
def test_a_damaged_one_takes_no_place_from_good_ones(two, step):
    """Neither where training comes to its step again, nor before, nor after."""
    out, newest = two
    newest.rename(newest.with_name("3"))  # which makes it a damaged one
    with Checkpoints(out) as checkpoints:
        checkpoints.restore(snapshot(0))
        assert checkpoints.durable == 1
        checkpoints.save(snapshot(step, np.pi * step))
    assert names_in(out / "checkpoints") == ["1", str(step)]
    with Checkpoints(out) as checkpoints:
        assert_same(checkpoints.restore(snapshot(0)), snapshot(step, np.pi * step))
        assert checkpoints.damaged == []


def test_other_files_in_the_folder_are_left_alone(two):
    out, newest = two
    others = [newest.with_name(name) for name in ("7", "notes.txt", "007", "٣")]
    for path in others:
        path.write_text("not a checkpoint")
    with Checkpoints(out) as checkpoints:
        assert checkpoints.steps() == [2, 1]
        checkpoints.save(snapshot(3))
    assert all(path.is_file() for path in others)
