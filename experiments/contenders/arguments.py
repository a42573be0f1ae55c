"""The command line that `attention.py` and `ops.py` share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from contenders.comparison import CONTENDERS
from contenders.environments import PEERS
from gtjax.core.user_cache import user_cache


def add_arguments(parser: argparse.ArgumentParser, names: Sequence[str], rounds: int) -> None:
    """What both take: contenders of these names, so many rounds."""
    parser.add_argument("--contenders", nargs="+", choices=names)
    parser.add_argument("--rounds", type=int, help=f"timed runs of each; {rounds} if not given")
    parser.add_argument("--quick", action="store_true", help="smoke run: tiny graphs, only jax")
    parser.add_argument("--out", type=Path, help="folder of the results; see below")
    help_text = "where the environments of PyG and DGL are, or will be made"
    parser.add_argument("--peers-folder", type=Path, default=user_cache() / "peers", help=help_text)


def parsed(
    parser: argparse.ArgumentParser,
    argv: list[str] | None,
    names: Sequence[str],
    rounds: int,
    stored: Path,
) -> argparse.Namespace:
    """The arguments with their defaults; what is not the usual run is not put into `stored`."""
    arguments = parser.parse_args(argv)
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error(f"--rounds is at least 1; found {arguments.rounds}")
    quick, other = arguments.quick, getattr(arguments, "graph", None)
    asked = arguments.rounds or (2 if quick else rounds)
    usual = not (quick or other or arguments.contenders or asked < rounds)
    if arguments.out is None and usual:
        arguments.out = stored
    able = [name for name in names if not (quick and CONTENDERS[name].code in PEERS)]
    arguments.rounds, arguments.contenders = asked, arguments.contenders or able
    return arguments
