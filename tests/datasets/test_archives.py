"""Archives are unpacked inside their folder and within their limits, or not at all."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets import Limits, archives
from gtjax.datasets.archives import extract

LIMITS = Limits(max_download_bytes=1_000_000, max_members=10)
OUTSIDE = ["../evil", "a/../../evil", "/tmp/evil", "..", "C:\\evil", "a\\..\\..\\evil", "c:evil"]


def zip_of(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def tar_of(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for member, data in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def assert_refused(archive, match, limits=LIMITS):
    """Nothing but the archive is left, inside the folder or beside it."""
    folder = archive.parent / "out"
    with pytest.raises(GraphFormatError, match=match):
        extract(archive, folder, limits)
    assert [file.name for file in archive.parent.iterdir()] == [archive.name]
    assert not (archive.parent.parent / "evil").exists()


@pytest.mark.parametrize("make", [zip_of, tar_of])
def test_files_and_folders_come_out_as_they_went_in(tmp_path, make):
    archive = make(tmp_path / "a", [("arxiv/raw/edge.csv", b"0,1\n"), ("arxiv/empty", b"")])
    extract(archive, tmp_path / "out", LIMITS)
    assert (tmp_path / "out" / "arxiv" / "raw" / "edge.csv").read_bytes() == b"0,1\n"
    assert (tmp_path / "out" / "arxiv" / "empty").read_bytes() == b""


@pytest.mark.parametrize("make", [zip_of, tar_of])
@pytest.mark.parametrize("name", OUTSIDE)
def test_names_cannot_leave_the_folder(tmp_path, make, name):
    folder = tmp_path / "inner"
    folder.mkdir()
    assert_refused(make(folder / "a", [("fine", b"x"), (name, b"x")]), "stay inside")


def test_zip_symlinks_are_refused(tmp_path):
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert_refused(zip_of(tmp_path / "a", [(link, b"/etc")]), "plain files")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_tar_links_and_devices_are_refused(tmp_path, kind):
    member = tarfile.TarInfo("thing")
    member.type, member.linkname = kind, "/etc/passwd"
    assert_refused(tar_of(tmp_path / "a", [(member, b"")]), "plain files")


@pytest.mark.parametrize("make", [zip_of, tar_of])
def test_bombs_and_crowds_are_refused(tmp_path, make):
    assert_refused(make(tmp_path / "a", [("big", bytes(2_000_000))]), "at most 1000000 bytes")
    halves = [(f"half{i}", bytes(600_000)) for i in range(2)]
    assert_refused(make(tmp_path / "a", halves), "at most 1000000 bytes")
    assert_refused(make(tmp_path / "a", [(str(i), b"") for i in range(11)]), "at most 10")


def test_a_declared_size_is_refused_before_anything_is_unpacked(tmp_path):
    archive = zip_of(tmp_path / "a", [("small", b"x")])
    data = bytearray(archive.read_bytes())
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = (2**31).to_bytes(4, "little")
    archive.write_bytes(data)
    assert_refused(archive, "at most 1000000 bytes")


def test_what_is_unpacked_counts_whatever_was_declared(tmp_path, monkeypatch):
    make_member = archives._Member

    def declare_nothing(name, declared_bytes, is_folder, key):
        return make_member(name, 0, is_folder, key)

    monkeypatch.setattr(archives, "_Member", declare_nothing)
    assert_refused(zip_of(tmp_path / "a", [("big", bytes(2_000_000))]), "at most 1000000 bytes")


def test_a_full_disk_is_not_blamed_on_the_archive(tmp_path, monkeypatch):
    class FullDisk(io.BytesIO):
        name = "disk"

        def write(self, data):
            raise OSError(28, "No space left on device")

    archive = zip_of(tmp_path / "a", [("x", b"data")])
    real_open = Path.open

    def open_full(self, mode="r", *args, **kwargs):
        return FullDisk() if mode == "xb" else real_open(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(UserError, match="Free some space") as caught:
        extract(archive, tmp_path / "out", LIMITS)
    assert not isinstance(caught.value, GraphFormatError)


def test_a_zip_that_declares_too_little_is_caught(tmp_path):
    archive = zip_of(tmp_path / "a", [("big", bytes(900_000))])
    data = bytearray(archive.read_bytes())
    for marker, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = data.index(marker) + offset
        data[at : at + 4] = (10).to_bytes(4, "little")
    archive.write_bytes(data)
    assert_refused(archive, "readable zip")


@pytest.mark.parametrize("make", [zip_of, tar_of])
def test_a_member_stored_twice_is_refused(tmp_path, make, recwarn):
    assert_refused(make(tmp_path / "a", [("x", b"1"), ("x", b"2")]), "readable zip or tar")


@pytest.mark.parametrize("content", [b"", b"neither", b"PK\x03\x04 broken", b"\x1f\x8b broken"])
def test_what_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert_refused(tmp_path / "a", "readable zip or tar")


def test_truncation_leaves_nothing_behind(tmp_path):
    for make in (zip_of, tar_of):
        archive = make(tmp_path / "a", [("x", bytes(range(256)) * 100)])
        archive.write_bytes(archive.read_bytes()[:-200])
        assert_refused(archive, "readable zip or tar")
