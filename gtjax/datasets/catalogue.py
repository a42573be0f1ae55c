"""Public data sets by name, where they come from, and how they get into the cache.

We state no checksum that we have not verified ourselves, so `sha256` is still empty below:
`download` records the digest of the first download and holds later ones to it. That protects
against files that change, not against a first download that was already wrong.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from gtjax.core.errors import UserError, in_file
from gtjax.datasets.archives import extract
from gtjax.datasets.cache_folder import cache_folder, locked
from gtjax.datasets.limits import Limits


@dataclass(frozen=True)
class Entry:
    """One downloadable data set.

    folder:     for an archive, the folder inside it to read; None for a file read as it is.
    size_bytes: roughly, of the download; None where not known.
    """

    name: str
    description: str
    url: str
    folder: str | None = None
    sha256: str | None = None
    size_bytes: int | None = None

    @property
    def file_name(self) -> str:
        """Name of the downloaded file."""
        return self.url.rpartition("/")[2]

    def path_in(self, cache: Path) -> Path:
        """Where the data set is, once it is there: a file or a folder."""
        if self.folder is None:
            return cache / self.name / self.file_name
        return cache / self.name / "extracted" / self.folder


_OGB = "https://snap.stanford.edu/ogb/data/nodeproppred"
_GNN_BENCHMARK = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
_GRAPH2GAUSS = "https://github.com/abojchevski/graph2gauss/raw/master/data"


def _ogb(name: str, description: str, size_bytes: int) -> Entry:
    folder = name.removeprefix("ogbn-")
    return Entry(name, description, f"{_OGB}/{folder}.zip", folder, size_bytes=size_bytes)


_ENTRIES = (
    _ogb("ogbn-arxiv", "169,343 papers, 40 subjects, official split by year", 81_000_000),
    _ogb("ogbn-products", "2,449,029 products, 47 categories, by sales rank", 1_380_000_000),
    _ogb("ogbn-proteins", "132,534 proteins, 112 yes/no tasks, edge features", 216_000_000),
    Entry(
        "amazon-computers",
        "13,752 goods bought together, 10 categories",
        f"{_GNN_BENCHMARK}/amazon_electronics_computers.npz",
    ),
    Entry(
        "amazon-photo",
        "7,650 goods bought together, 8 categories",
        f"{_GNN_BENCHMARK}/amazon_electronics_photo.npz",
    ),
    Entry(
        "coauthor-cs",
        "18,333 authors in computer science, 15 fields",
        f"{_GNN_BENCHMARK}/ms_academic_cs.npz",
    ),
    Entry(
        "coauthor-physics",
        "34,493 authors in physics, 5 fields",
        f"{_GNN_BENCHMARK}/ms_academic_phy.npz",
    ),
    Entry("cora_full", "19,793 papers, 70 classes", f"{_GRAPH2GAUSS}/cora.npz"),
    Entry("cora_ml", "2,995 papers on machine learning, 7 classes", f"{_GRAPH2GAUSS}/cora_ml.npz"),
    Entry("dblp", "17,716 papers, 4 classes", f"{_GRAPH2GAUSS}/dblp.npz"),
    Entry("pubmed", "19,717 papers on diabetes, 3 classes", f"{_GRAPH2GAUSS}/pubmed.npz"),
)
CATALOGUE = {entry.name: entry for entry in _ENTRIES}


def fetch(entry: Entry, limits: Limits, cache_dir: str | Path | None = None) -> Path:
    """The path of a data set in the cache, downloaded and unpacked if it is not there yet."""
    from gtjax.datasets.download import download, verify  # urllib is slow to import

    cache = cache_folder(cache_dir)
    path, home = entry.path_in(cache), cache / entry.name
    try:
        home.mkdir(parents=True, exist_ok=True)
        with locked(home / ".lock"):
            archive = home / entry.file_name
            if entry.folder is None or not path.exists():
                if archive.exists():
                    verify(archive, entry.sha256)
                else:
                    download(entry.url, archive, limits, sha256=entry.sha256)
            if entry.folder is not None and not path.exists():
                with in_file(archive):
                    shutil.rmtree(home / "extracted", ignore_errors=True)
                    extract(archive, home / "extracted", limits)
                if not path.exists():
                    raise UserError(f"{archive} does not hold {entry.folder}/: delete it, retry.")
                archive.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write to the cache {home}: {error}. Set GTJAX_CACHE_DIR to another folder."
        ) from error
    return path
