"""Turn what third-party parsers raise on bad bytes into the one error a user sees.

Put `parsing` around the call into the parser and nothing else, so that a mistake in our own code
still shows as what it is.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from gtjax.core.errors import GraphFormatError, UserError

_PARSER_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,  # also gzip.BadGzipFile, and seeks to where a broken offset points
    ValueError,  # also UnicodeDecodeError
    OverflowError,
    MemoryError,
    NotImplementedError,  # a zip compressed in a way that zipfile does not know
    RuntimeError,  # an encrypted zip
)


@contextmanager
def parsing(field: str, rule: str, *more_errors: type[Exception]) -> Iterator[None]:
    """Raise `GraphFormatError(field, rule)` for a parser's error inside."""
    try:
        yield
    except UserError:
        raise
    except (*_PARSER_ERRORS, *more_errors) as error:
        found = f"{type(error).__name__}: {error}"
        raise GraphFormatError(field, rule, found) from error
