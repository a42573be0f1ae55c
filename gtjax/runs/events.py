"""TensorBoard events of a run, on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError


class EventWriter:
    """Writes every number of the metrics as a TensorBoard scalar, or nothing if not wanted."""

    def __init__(self, run: Path, wanted: bool):
        self._writer = _summary_writer(run) if wanted else None

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Add rows of metrics."""
        if self._writer is None:
            return
        for row in rows:
            for name, value in row.items():
                if name not in ("step", "seeds"):
                    self._writer.add_scalar(name, value, row["step"])

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()


def _summary_writer(run: Path) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        install = 'pip install "gtjax[tensorboard]"'
        raise UserError(f"--tensorboard needs tensorboardX: {install}") from error
    return SummaryWriter(str(run / "tensorboard"))
