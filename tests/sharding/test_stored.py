"""Arrays that were stored by shard come back as if placed, or an error names the file."""

from __future__ import annotations

import contextlib
import json
import shutil
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.core import hashed_files, hashed_folder
from gtjax.core.errors import UserError
from gtjax.sharding import stored
from gtjax.sharding.mesh import make_mesh
from gtjax.sharding.place import place_parts, place_rows
from gtjax.sharding.stored import StoredArray, open_store, write_store
from gtjax.strategies import PADDING, MeshShape
from gtjax.strategies.exchange import Messages, Round

SHAPE = MeshShape(2, 2)
NUMBERS = np.array([[4, 0, PADDING, 2], [3, 1, 5, PADDING]])
ABOUT = {"graph": "a graph", "seed": 3, "fractions": [0.5, 0.25]}
DTYPES = ["bool", "int8", "int32", "uint32", "int64", "float16", "float32", "float64", "bfloat16"]
DTYPES += ["float8_e4m3fn", "float8_e5m2"]


def some_tree(rows, parts, mesh):
    """Arrays by row and by part, whatever places them."""
    many = np.arange(12).reshape(6, 2)
    round_ = Round(np.arange(10, dtype=np.int32).reshape(2, 5), Messages(((0, 1), (1, 0)), 5))
    return {
        "rows": rows(mesh, NUMBERS, many, -7, lambda x: x * 0.5),
        "mask": rows(mesh, NUMBERS, np.ones(6, bool), False),
        "nothing": None,
        "no rows": rows(mesh, np.zeros((2, 0), int), many),
        "parts": parts(mesh, (round_, np.zeros((2, 0, 3), np.float32), None)),
    }


def write(folder, shape=SHAPE, about=ABOUT):
    mesh = make_mesh(shape)

    def tree(to):
        return some_tree(to.rows, to.parts, mesh)

    write_store(folder, mesh, tree, holds="tree", about=about)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "stored")
    return tmp_path / "stored"


def place(folder, shape=SHAPE):
    return open_store(folder).place(make_mesh(shape))


def assert_as_placed(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype, a.sharding) == (b.shape, b.dtype, b.sharding)
        for one, other in zip(a.addressable_shards, b.addressable_shards, strict=True):
            assert (one.device, one.index) == (other.device, other.index)
            assert np.asarray(one.data).tobytes() == np.asarray(other.data).tobytes()


def all_files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("shape", [SHAPE, MeshShape(2, 1)])
def test_arrays_come_back_as_if_placed(tmp_path, shape):
    write(tmp_path / "new" / "stored", shape)
    mesh = make_mesh(shape)
    got = place(tmp_path / "new" / "stored", shape)
    assert_as_placed(got, some_tree(place_rows, place_parts, mesh))
    store = open_store(tmp_path / "new" / "stored")
    assert (store.holds, store.about) == ("tree", ABOUT)
    # Nothing temporary stays, and what is private on the way stays private.
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["stored"]
    folders = [store.folder, *(path for path in store.folder.iterdir() if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_devices_may_be_others_in_another_order(folder):
    there = make_mesh(SHAPE, jax.devices()[:3:-1])
    want = some_tree(place_rows, place_parts, there)
    assert_as_placed(open_store(folder).place(there), want)


def test_what_devices_share_is_written_and_read_once(folder, monkeypatch):
    names = [str(path.relative_to(folder)) for path in all_files(folder)]
    rows = [f"shard-{shard:05d}/{number}.npy" for shard in range(4) for number in range(3)]
    parts = [f"shard-{shard:05d}/{number}.npy" for shard in range(2) for number in (3, 4)]
    assert sorted(names) == sorted([stored.FORMAT.manifest, *rows, *parts])
    read = []
    original = hashed_folder.map_array
    monkeypatch.setattr(
        hashed_folder, "map_array", lambda path, *a: read.append(path) or original(path, *a)
    )
    place(folder)
    assert sorted(read) == [path for path in all_files(folder) if path.suffix == ".npy"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_types_of_numbers_come_back(tmp_path, dtype):
    mesh, values = make_mesh(SHAPE), np.arange(24).reshape(4, 6).astype(jnp.dtype(dtype))
    number_pr = np.arange(4).reshape(2, 2)
    for name, source in {"whole": values, "strided": values[:, ::2]}.items():
        want = (place_rows(mesh, number_pr, source), place_parts(mesh, source[::2]))
        write_store(
            tmp_path / name,
            mesh,
            lambda to, x=source: (to.rows(mesh, number_pr, x), to.parts(mesh, x[::2])),
            holds="tree",
            about={},
        )
        assert_as_placed(place(tmp_path / name), want)


def test_what_is_placed_does_not_depend_on_the_files(folder):
    got, want = place(folder), some_tree(place_rows, place_parts, make_mesh(SHAPE))
    for path in all_files(folder):
        with path.open("r+b") as stream:
            stream.write(bytes(path.stat().st_size))
    assert_as_placed(got, want)


def test_one_shard_is_held_at_a_time(tmp_path):
    mesh, source = make_mesh(MeshShape(8)), np.ones((80_000, 64), np.float64)
    number_pr = np.arange(80_000).reshape(8, -1)
    write(tmp_path / "before", MeshShape(2, 2))  # what is made once for all
    tracemalloc.start()
    try:
        write_store(
            tmp_path / "stored",
            mesh,
            lambda to: (to.rows(mesh, number_pr, source), to.parts(mesh, source.reshape(8, -1))),
            holds="tree",
            about={},
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A shard as it was, as float32, and what numpy writes of it at once.
    assert peak < 0.35 * source.nbytes


def test_a_flipped_bit_is_found_in_every_file(folder):
    rng = np.random.default_rng(0)
    want = some_tree(place_rows, place_parts, make_mesh(SHAPE))
    for path in all_files(folder):
        good = path.read_bytes()
        for at in {0, len(good) - 1, *rng.integers(0, len(good), 6).tolist()}:
            bad = bytearray(good)
            bad[at] ^= 1 << int(rng.integers(8))
            path.write_bytes(bad)
            if path.name != stored.FORMAT.manifest:
                with pytest.raises(UserError, match=rf"{path} is damaged.* Remove {folder}: it is"):
                    place(folder)
                continue
            # Between the tokens of JSON a byte may change and mean the same.
            with contextlib.suppress(UserError):
                assert_as_placed(place(folder), want)
        path.write_bytes(good)
    assert_as_placed(place(folder), want)


def test_a_truncated_file_is_found_wherever_it_ends(folder):
    rng = np.random.default_rng(1)
    for path in all_files(folder):
        good = path.read_bytes()
        for end in {0, 1, len(good) - 1, *rng.integers(0, len(good), 4).tolist()}:
            path.write_bytes(good[:end])
            with pytest.raises(UserError, match=f"{path} is damaged.* Remove {folder}: it is made"):
                place(folder)
        path.write_bytes(good)
    place(folder)


def test_a_missing_file_is_named(folder, tmp_path):
    for path in all_files(folder):
        shutil.move(path, tmp_path / "aside")
        with pytest.raises(UserError, match=rf"{path} cannot be read: No .*\. Remove {folder}"):
            place(folder)
        shutil.move(tmp_path / "aside", path)
    place(folder)


def test_files_of_another_shard_do_not_pass(folder):
    shutil.copy(folder / "shard-00000/0.npy", folder / "shard-00001/0.npy")
    with pytest.raises(UserError, match=r"shard-00001/0\.npy is damaged"):
        place(folder)


@pytest.mark.parametrize(
    ("shape", "name"), [(MeshShape(4), "node=4,feature=1"), (MeshShape(1, 4), "node=1,feature=4")]
)
def test_another_mesh_is_refused(folder, shape, name):
    with pytest.raises(UserError, match=f"for a mesh of node=2,feature=2; this mesh is {name}"):
        place(folder, shape)


def rewrite(folder, **changes):
    """A manifest that gives its hash and says something else."""
    path = folder / stored.FORMAT.manifest
    content = json.loads(path.read_text())["content"] | changes
    path.unlink()
    hashed_files.write_manifest(path, content)


def test_manifests_of_another_kind_are_refused(folder):
    rewrite(folder, version=3)
    with pytest.raises(UserError, match=r"version 3; this gtjax reads .* version 2\. Remove"):
        open_store(folder)
    rewrite(folder, version=2, tree={"class": "gtjax.strategies.exchange:Gone", "fields": {}})
    with pytest.raises(UserError, match=r"not of this gtjax: there is no class .*Gone"):
        open_store(folder)
    for text in ("[" * 100_000, "{}", "[]", "3", '{"content": 3}', '{"content": {}, "hash": ""}'):
        (folder / stored.FORMAT.manifest).write_text(text)
        with pytest.raises(UserError, match=r"stored\.json is damaged"):
            open_store(folder)


@pytest.mark.parametrize(
    "content", [np.zeros((2, 2), np.float32), np.zeros((2, 2), np.int32), "text", [None]]
)
def test_shape_and_type_are_checked_even_if_the_hash_is_right(tmp_path, content):
    path = tmp_path / "0.npy"
    if isinstance(content, str):
        path.write_text(content)
    else:
        np.save(path, content, allow_pickle=True)
    digest = hashed_files.new_digest()
    digest.update(path.read_bytes())
    for shape, dtype in [((2, 3), np.float32), ((2, 2), np.float16)]:
        with pytest.raises(UserError, match=r"0\.npy (has|is not a \.npy file)"):
            hashed_files.map_array(path, digest.hexdigest(), shape, np.dtype(dtype))


def test_mistakes_are_named_and_leave_nothing_behind(folder, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=f"written to a new folder; {folder} is there"):
        write(folder)
    place(folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        write(tmp_path / "file" / "folder")
    with pytest.raises(TypeError, match="not JSON serializable"):
        write(tmp_path / "other", about={"graph": object()})

    def fail(*_):
        raise OSError(28, "No space left on device")

    before = sorted(tmp_path.iterdir())
    for name in ("write_manifest", "save_array"):
        monkeypatch.setattr(hashed_folder, name, fail)
        with pytest.raises(UserError, match="No space left on device"):
            write(tmp_path / "other")
        assert sorted(tmp_path.iterdir()) == before


def test_keys_of_about_come_back_as_strings(tmp_path):
    write(tmp_path / "stored", about={"sizes": {2: "a", 10: "b"}})
    assert open_store(tmp_path / "stored").about == {"sizes": {"2": "a", "10": "b"}}


def test_a_stored_array_is_one_leaf():
    array = StoredArray(0, "row", (4,), "float32")
    assert jax.tree.leaves((array, None)) == [array]
