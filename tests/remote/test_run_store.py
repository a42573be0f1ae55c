"""Checkpoints and files of a run in a store: whole or not there, whoever is killed when."""

from __future__ import annotations

import shutil
import uuid

import fsspec
import pytest

from gtjax.core.errors import UserError
from gtjax.remote.problems import StoreError
from gtjax.remote.run_index import RunIndex
from gtjax.remote.run_store import RunStore
from gtjax.remote.store import ObjectStore
from gtjax.runs.checkpoint import CheckpointError, Checkpoints
from gtjax.runs.run_folder import RunFolder
from tests.marks import slow
from tests.runs.small_run import small_config
from tests.runs.test_checkpoint import assert_same
from tests.runs.test_checkpoint import snapshot as snapshot_of


@pytest.fixture(params=["memory", slow("file")])
def address(request, tmp_path):
    if request.param == "file":
        return f"file://{tmp_path}/store/run"
    return f"memory://{uuid.uuid4().hex}/run"


@pytest.fixture
def begun(address):
    return RunFolder.create(small_config(address))


def snapshot(step):
    return snapshot_of(step, float(step))


def save(folder, *steps):
    with Checkpoints(folder.path, store=folder.store) as checkpoints:
        for step in steps:
            checkpoints.save(snapshot(step))
    return checkpoints


def restored(address):
    """As another machine would."""
    folder = RunFolder.at(address)
    with Checkpoints(folder.path, store=folder.store) as checkpoints:
        return checkpoints.restore(snapshot(0)), checkpoints


def objects(address):
    system, root = fsspec.core.url_to_fs(address)
    found = system.find(root)
    return system, {path.removeprefix(f"{root}/"): path for path in found}


def flip(address, part):
    """A bit of the largest object whose name has this part."""
    system, names = objects(address)
    path = max((p for n, p in names.items() if part in n), key=lambda p: system.info(p)["size"])
    data = bytearray(system.cat_file(path))
    data[len(data) // 2] ^= 16
    system.pipe_file(path, bytes(data))


def test_another_machine_gets_what_was_saved(address, begun, cache):
    begun.append_metrics([{"step": 1, "loss": 2.0}])
    assert save(begun, 1, 2, 3).durable == 3
    shutil.rmtree(cache)
    found, checkpoints = restored(address)
    assert_same(found, snapshot(3))
    assert checkpoints.steps() == [3, 2]
    assert RunFolder.at(address).metrics() == [{"step": 1, "loss": 2.0}]
    _, names = objects(address)
    folders = {name.split("/")[1] for name in names if name.startswith("checkpoints/")}
    assert [name.split("-")[0] for name in sorted(folders)] == ["2", "3"]  # 1 is gone, whole


def test_a_new_run_takes_no_other_ones_place(address, begun):
    with pytest.raises(UserError, match=r"--out names a new folder; .* holds a run"):
        RunFolder.create(small_config(address))


def test_a_damaged_checkpoint_is_passed_over(address, begun, cache):
    save(begun, 1, 2)
    flip(address, "checkpoints/2-")
    shutil.rmtree(cache)
    found, checkpoints = restored(address)
    assert_same(found, snapshot(1))
    assert "damaged" in checkpoints.damaged[0]


@pytest.mark.parametrize("name", ["run.json", "run.copy.json"])
def test_one_index_may_be_damaged(address, begun, name):
    save(begun, 1)
    flip(address, name)
    assert_same(restored(address)[0], snapshot(1))


def test_a_damaged_file_is_an_error(address, begun, cache):
    flip(address, "config.json")
    shutil.rmtree(cache)
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        RunFolder.open(address)


def test_what_the_folder_here_has_does_not_count(address, begun):
    save(begun, 1)
    with Checkpoints(begun.path) as local:  # of this machine alone
        local.save(snapshot(2))
    assert_same(restored(address)[0], snapshot(1))
    again = RunFolder.at(address).to_train()
    assert not (again.path / "checkpoints").exists()


@pytest.mark.parametrize("nth", [slow(n) if n not in (7, 16) else n for n in range(1, 40, 3)])
def test_killed_at_any_write_it_leaves_what_was_durable(address, begun, cache, monkeypatch, nth):
    save(begun, 1)
    write, count = ObjectStore.write, [0]

    class KilledError(BaseException):
        pass

    def dying(self, name, data):
        count[0] += 1
        if count[0] >= nth:
            raise KilledError
        write(self, name, data)

    monkeypatch.setattr(ObjectStore, "write", dying)
    begun.append_metrics([{"step": 2, "loss": 1.0}])
    try:
        durable = save(begun, 2).durable
    except KilledError:
        durable = 1
    monkeypatch.setattr(ObjectStore, "write", write)
    shutil.rmtree(cache)
    found, checkpoints = restored(address)
    step = int(found.state.step)
    assert step >= durable
    assert_same(found, snapshot(step))
    assert checkpoints.damaged == []
    rows = RunFolder.at(address).metrics()
    assert len(rows) == 1 if step == 2 else len(rows) <= 1
    save(RunFolder.at(address).to_train(), 3)  # and it goes on
    assert_same(restored(address)[0], snapshot(3))


def test_a_store_that_fails_is_told_and_nothing_is_lost(address, begun, monkeypatch):
    save(begun, 1)

    def failing(self, name, data):
        raise StoreError("no room.")

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "write", failing)
        with pytest.raises(CheckpointError, match=r"step 2.*no room\. There is none before it"):
            save(begun, 2)
    assert_same(restored(address)[0], snapshot(1))
    save(begun, 3)
    assert_same(restored(address)[0], snapshot(3))


def test_a_process_that_was_replaced_stores_nothing(address, begun):
    save(begun, 1)
    save(RunFolder.at(address).to_train(), 2)
    with pytest.raises(CheckpointError, match="taken over by another process"):
        save(begun, 5)
    assert restored(address)[1].steps() == [2, 1]


def test_files_are_the_old_or_the_new(address, begun, cache):
    """Killed between the index and the file, twice: a reader takes what is there."""
    begun.write_json("data.json", {"a": 1})
    begun.flush()
    for value in (2, 3):
        folder = RunFolder.at(address).to_train()
        folder.write_json("data.json", {"a": value})
        store = folder.store
        store._put = lambda files: None  # killed here
        store.flush()
        shutil.rmtree(cache)
        assert RunFolder.at(address).read_json("data.json") == {"a": 1}
    index = RunIndex.read(ObjectStore.open(address))
    assert index is not None
    assert RunStore.find(address.rpartition("/")[0]) == [address]
