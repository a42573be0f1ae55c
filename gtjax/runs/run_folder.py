"""The folder of a run: resolved config, metrics as they come, the result; written atomically.

At an address such as s3://bucket/run it is worked on in a folder of this machine, and stored from
there (`gtjax.remote.run_store`): when `flush` is called, and with every checkpoint.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError
from gtjax.nn.models import register_model
from gtjax.remote.address import address_of
from gtjax.remote.run_store import RunStore
from gtjax.runs.config import TrainConfig, read_config, to_mapping

PACKAGES = ("gtjax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "scipy")


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what it did; of several processes, only the first writes.

    Nobody but the user may look into a new folder: labels and metrics may be confidential.
    """

    path: Path
    writes: bool = True
    store: RunStore | None = None  # where it is kept, if that is not `path`

    @property
    def shown(self) -> str:
        """Where it is, as a user would name it."""
        return str(self.path) if self.store is None else self.store.address

    @staticmethod
    def create(config: TrainConfig) -> RunFolder:
        """A new folder with the resolved config; never one that holds another run."""
        path = config.out or new_run_path(config)
        if (address := address_of(path)) is not None:
            store = RunStore(address, writes=True)
            store.create()
            folder = RunFolder(store.local, store=store)
            folder.write_json("config.json", to_mapping(config))
            folder.flush()
            return folder
        if any((path / name).exists() for name in ("config.json", "metrics.jsonl", "checkpoints")):
            raise UserError(f"--out names a new folder; {path} holds a run. Remove or rename it.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
            folder = RunFolder(path)
            folder.write_json("config.json", to_mapping(config))
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            why = getattr(error, "strerror", None) or error
            raise UserError(f"--out {path}: cannot write there: {why}") from error
        return folder

    @staticmethod
    def open(path: str | Path, model: type | None = None) -> tuple[RunFolder, TrainConfig]:
        """The folder of an earlier run, and its config.

        `model` is the class of the model, where it cannot be imported by the name that is stored.
        """
        folder = RunFolder.at(path)
        if not (folder.path / "config.json").is_file():
            raise UserError(f"{folder.shown}: not the folder of a run (it has no config.json)")
        if model is not None:
            stored = folder.read_json("config.json")
            register_model(stored["model"]["name"], model)
        return folder, read_config(folder.path / "config.json")

    @staticmethod
    def at(path: str | Path, *, writes: bool = True) -> RunFolder:
        """The folder at a path or an address, whether a run is there or not."""
        if (address := address_of(path)) is None:
            return RunFolder(Path(path), writes)
        store = RunStore(address, writes=False)
        store.pull()
        return RunFolder(store.local, writes, store)

    def to_train(self) -> RunFolder:
        """As the process that writes has it: of a run in a store it becomes the only writer."""
        if self.store is None or self.store.writes:
            return self
        store = RunStore(self.store.address, writes=True)
        store.pull()
        return RunFolder(store.local, store=store)

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file; a reader sees the old one or the new one, never a part."""
        self.write_text(name, json.dumps(_finite(value), indent=1, allow_nan=False) + "\n")

    def read_json(self, name: str) -> Any:
        """Read a JSON file of the run, or None where it is not there."""
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        except ValueError as error:
            raise UserError(f"{path}: damaged: {error}") from error

    def write_text(self, name: str, text: str) -> None:
        """Write a text file atomically."""
        if not self.writes:
            return
        target = self.path / name
        part = target.with_name(f".{name}.{os.getpid()}.part")
        with self.writing(name):
            part.write_text(text, encoding="utf-8")
            part.replace(target)
        self.changed(name)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self.writes:
            (self.path / name).unlink(missing_ok=True)
            self.changed(name)

    def changed(self, name: str) -> None:
        """A file was written or removed: it is stored with the next `flush`."""
        if self.store is not None and self.writes:
            self.store.changed(name)

    def flush(self) -> None:
        """Store what was written since the last time, where the run is in a store."""
        if self.store is not None and self.writes:
            self.store.flush()

    def append_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Add lines to metrics.jsonl."""
        if not self.writes:
            return
        lines = [json.dumps(_finite(row), allow_nan=False) + "\n" for row in rows]
        with (
            self.writing("metrics.jsonl"),
            (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file,
        ):
            file.writelines(lines)
        self.changed("metrics.jsonl")

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """A disk that is full or read-only is told in a line; what was written before is whole."""
        try:
            yield
        except OSError as error:
            raise UserError(
                f"{self.path / name} cannot be written: {error.strerror}. Checkpoints that are "
                f"whole stay so: make room, then gtjax resume {self.shown}"
            ) from error

    def metrics(self, up_to_step: int | None = None) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; what a killed run wrote after its checkpoint is cut off."""
        path = self.path / "metrics.jsonl"
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                row = json.loads(line)
            except ValueError:  # the last line of a run that was killed while writing it
                break
            if up_to_step is not None and row["step"] > up_to_step:
                break
            rows.append(row)
        return rows

    def rewrite_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Replace metrics.jsonl."""
        self.write_text("metrics.jsonl", "".join(json.dumps(_finite(r)) + "\n" for r in rows))


def versions() -> dict[str, str]:
    """What the run was made with."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def new_run_path(config: TrainConfig) -> Path:
    """Where a run goes that was not told."""
    word = re.sub(r"[^A-Za-z0-9.-]+", "-", Path(config.data).stem).strip("-.") or "run"
    return _unused(Path("runs") / f"{word[:40]}-{time.strftime('%Y%m%d-%H%M%S')}")


def _unused(path: Path) -> Path:
    candidate, number = path, 2
    while candidate.exists():
        candidate, number = path.with_name(f"{path.name}-{number}"), number + 1
    return candidate


def _finite(value: Any) -> Any:
    """JSON has no NaN: a metric that does not exist is null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value
