"""How much a file may ask for: a small file must not be able to take the whole machine."""

from __future__ import annotations

from dataclasses import dataclass

from gtjax.core.errors import GraphFormatError

GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Caps on what reading and downloading may use; raise them for data you trust.

    max_bytes:          of any one array, and of any one file after decompression.
    max_download_bytes: of one downloaded file, and of what one archive unpacks to.
    max_members:        files in one archive.
    """

    max_bytes: int = 64 * GIB
    max_download_bytes: int = 64 * GIB
    max_members: int = 100_000

    def check_bytes(self, field: str, num_bytes: int) -> None:
        """Refuse an array or file that needs more than `max_bytes`."""
        if num_bytes > self.max_bytes:
            rule = f"at most {self.max_bytes} bytes (Limits.max_bytes; raise it if you trust this)"
            raise GraphFormatError(field, rule, f"{num_bytes} bytes")
