"""Data sets by name: fetched once into the cache, unpacked, listed, and checked on every use."""

from __future__ import annotations

import functools
import http.server
import threading
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from sample_files import NODES, gnn_benchmark_arrays, write_ogb

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets import cache_folder, listing, load
from gtjax.datasets.catalogue import CATALOGUE, Entry


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder served on 127.0.0.1, with a catalogue of two entries that point to it."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    site = tmp_path / "site"
    site.mkdir()
    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    base = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setitem(CATALOGUE, "toy-file", Entry("toy-file", "one file", f"{base}/toy.npz"))
    archive = Entry("toy-zip", "an archive", f"{base}/toy.zip", "toy", size_bytes=123)
    monkeypatch.setitem(CATALOGUE, "toy-zip", archive)
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path / "cache"))
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def zip_folder(folder, target):
    with zipfile.ZipFile(target, "w") as archive:
        for file in folder.rglob("*"):
            archive.write(file, file.relative_to(folder.parent))


def test_a_file_is_fetched_once(site, tmp_path):
    np.savez(site / "toy.npz", **gnn_benchmark_arrays())
    first = load("toy-file")
    (site / "toy.npz").unlink()
    assert load("toy-file").fingerprint == first.fingerprint
    assert (tmp_path / "cache" / "datasets" / "toy-file" / "toy.npz").is_file()


def test_a_rotten_file_in_the_cache_is_noticed(site, tmp_path):
    np.savez(site / "toy.npz", **gnn_benchmark_arrays())
    load("toy-file")
    cached = tmp_path / "cache" / "datasets" / "toy-file" / "toy.npz"
    cached.write_bytes(cached.read_bytes()[:-1])
    with pytest.raises(UserError, match="sha256"):
        load("toy-file")


def test_an_archive_is_unpacked_and_then_gone(site, tmp_path):
    zip_folder(write_ogb(tmp_path / "toy"), site / "toy.zip")
    assert load("toy-zip").num_nodes == NODES
    home = tmp_path / "cache" / "datasets" / "toy-zip"
    assert sorted(f.name for f in home.iterdir()) == [".lock", "extracted", "toy.zip.sha256"]
    (site / "toy.zip").unlink()
    assert load("toy-zip").num_nodes == NODES


def test_an_archive_placed_by_hand_is_used(site, tmp_path):
    home = tmp_path / "cache" / "datasets" / "toy-zip"
    home.mkdir(parents=True)
    zip_folder(write_ogb(tmp_path / "toy"), home / "toy.zip")
    assert load("toy-zip").num_nodes == NODES


def test_an_archive_of_something_else_is_reported(site, tmp_path):
    zip_folder(write_ogb(tmp_path / "other"), site / "toy.zip")
    with pytest.raises(UserError, match="does not hold toy/"):
        load("toy-zip")


def test_a_broken_archive_names_itself(site, tmp_path):
    (site / "toy.zip").write_bytes(b"not a zip")
    with pytest.raises(GraphFormatError) as caught:
        load("toy-zip")
    assert caught.value.file == str(tmp_path / "cache" / "datasets" / "toy-zip" / "toy.zip")


def test_a_set_that_is_not_there_says_where_to_put_it(site, tmp_path):
    place = tmp_path / "cache" / "datasets" / "toy-zip" / "toy.zip"
    with pytest.raises(UserError, match=f"404.*place it at {place}"):
        load("toy-zip")


def test_a_cache_that_cannot_be_written_says_so(site, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Set GTJAX_CACHE_DIR"):
        load("toy-zip", cache_dir=tmp_path / "file")


@pytest.mark.usefixtures("fake_generators")
def test_the_listing_tells_generators_downloads_and_what_is_cached(site, tmp_path):
    np.savez(site / "toy.npz", **gnn_benchmark_arrays())
    load("toy-file", cache_dir=tmp_path / "other")
    infos = {info.name: info for info in listing(tmp_path / "other")}
    assert infos["ring"].kind == "generator"
    assert infos["ring"].description == "A cycle."
    assert infos["toy-file"].cached_path == tmp_path / "other/datasets/toy-file/toy.npz"
    assert infos["toy-file"].bytes == (site / "toy.npz").stat().st_size
    assert (infos["toy-zip"].cached_path, infos["toy-zip"].bytes) == (None, 123)
    assert {"ogbn-arxiv", "ogbn-products", "ogbn-proteins", "coauthor-cs"} <= set(infos)


@pytest.mark.usefixtures("fake_generators")
def test_the_size_of_an_unpacked_set_is_that_of_its_files(site, tmp_path):
    source = write_ogb(tmp_path / "toy")
    zip_folder(source, site / "toy.zip")
    load("toy-zip")
    info = next(info for info in listing() if info.name == "toy-zip")
    assert info.bytes == sum(f.stat().st_size for f in source.rglob("*") if f.is_file())


def test_every_entry_is_https_and_names_a_file():
    for name, entry in CATALOGUE.items():
        assert entry.name == name
        assert urlsplit(entry.url).scheme == "https"
        assert entry.file_name.endswith((".npz", ".zip"))
        assert entry.description


def test_the_cache_folder_is_argument_then_variable_then_user(monkeypatch, tmp_path):
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path / "variable"))
    folder = cache_folder.cache_folder
    assert folder(tmp_path / "argument") == tmp_path / "argument" / "datasets"
    assert folder() == tmp_path / "variable" / "datasets"
    monkeypatch.delenv("GTJAX_CACHE_DIR")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: Path("/home/me") / name)
    assert folder() == Path("/home/me/gtjax/datasets")
