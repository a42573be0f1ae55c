"""What is an address, and what is said where one cannot be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gtjax.core.errors import UserError
from gtjax.remote.address import address_of, inside, shown
from gtjax.remote.store import ObjectStore


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("s3://bucket/run/", "s3://bucket/run"),
        (Path("s3://bucket/run"), "s3://bucket/run"),
        (Path("memory://a/b"), "memory://a/b"),
        (Path("file:///tmp/a"), "file:///tmp/a"),
        ("runs/a", None),
        (Path("runs/a"), None),
        ("s3:/bucket", None),
        ("C:/runs", None),
        (Path("/s3:/bucket"), None),
        ("rmat:nodes=1e6", None),
    ],
)
def test_addresses_are_told_from_paths(given, address):
    assert address_of(given) == address


def test_places_inside():
    assert inside("s3://bucket/run", "parts", "a") == "s3://bucket/run/parts/a"
    assert inside(Path("runs"), "parts", "a") == Path("runs/parts/a")
    assert shown(Path("s3://bucket/run")) == "s3://bucket/run"


def test_an_unknown_kind_is_refused():
    with pytest.raises(UserError, match=r"s3://, gs://.*found nowhere://bucket"):
        ObjectStore.open("nowhere://bucket/run")


@pytest.mark.parametrize(("kind", "extra"), [("s3", "s3"), ("gs", "gcs")])
def test_a_missing_package_names_the_extra(monkeypatch, kind, extra):
    for name in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf'pip install "gtjax\[{extra}\]"'):
        ObjectStore.open(f"{kind}://bucket/run")


def test_local_paths_import_no_client():
    code = "import sys, gtjax.partition.store; assert 'fsspec' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
