"""What `load` knows by name, for people to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gtjax.datasets.cache_folder import cache_folder
from gtjax.datasets.catalogue import CATALOGUE
from gtjax.datasets.generated import generators


@dataclass(frozen=True)
class DatasetInfo:
    """One name. `bytes`: on disk if cached, else roughly of the download; None if not known."""

    name: str
    kind: Literal["generator", "download"]
    description: str
    cached_path: Path | None = None
    bytes: int | None = None


def listing(cache_dir: str | Path | None = None) -> list[DatasetInfo]:
    """Every generator, then every data set of the catalogue with its place in the cache."""
    infos = []
    for name, generator in generators().items():
        first_line = (generator.__doc__ or "").strip().partition("\n")[0]
        infos.append(DatasetInfo(name, "generator", first_line))
    cache = cache_folder(cache_dir)
    for entry in CATALOGUE.values():
        path = entry.path_in(cache)
        cached = path if path.exists() else None
        size = entry.size_bytes if cached is None else _size_on_disk(cached)
        infos.append(DatasetInfo(entry.name, "download", entry.description, cached, size))
    return infos


def _size_on_disk(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
