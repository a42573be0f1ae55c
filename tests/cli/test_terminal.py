"""What people see at a real terminal of 80 columns: everything, in lines that fit."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios

import pytest

COLUMNS = 80
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BOTH = """
import sys
from gtjax.cli.main import main
for arguments in sys.argv[1].split(";"):
    try:
        main(arguments.split())
    except SystemExit as end:
        assert not end.code, end.code
"""
PLAN = "plan --nodes 1e6 --edges 2e7 --cut 0.3 --features 64 --devices 8 --hardware tpu-v5e"
TRAIN = (
    "train --data synthetic-citation:nodes=200 --model gcn --model.layers 1 --model.hidden 8 "
    "--steps 4 --eval-every 2 --out"
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What a plan and a training run write to a terminal, line by line, redrawn ones too."""
    folder = tmp_path_factory.mktemp("terminal")
    first, second = pty.openpty()
    termios.tcsetwinsize(second, (24, COLUMNS))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-c", BOTH, f"{PLAN};{TRAIN} {folder / 'run'}"],
        stdin=second,
        stdout=second,
        stderr=second,
        env=environment | {"TERM": "xterm-256color"},
    )
    os.close(second)
    read = b""
    while True:
        try:
            more = os.read(first, 65536)
        except OSError:  # how a terminal says that nobody writes to it any more
            break
        if not more:
            break
        read += more
    os.close(first)
    text = read.decode("utf-8")
    assert process.wait() == 0, text
    return [line.rstrip() for line in re.split(r"[\r\n]+", CONTROL.sub("", text))]


def test_lines_fit_and_words_stay_whole(shown):
    for line in shown:
        paths = " " not in line.strip()  # which have no words to break between
        assert len(line) <= COLUMNS or paths, line
    assert "\u2026" not in "".join(shown)


def test_a_plan_says_what_was_chosen_why_and_what_the_others_cost(shown):
    text = " ".join(" ".join(shown).split())
    assert " chosen " in text
    assert "not taken because: " in text
    for words in ("s/step", "of it moving", "MB received", "GiB a device", "hardware: tpu-v5e"):
        assert words in text, words
    assert re.search(r"\w+ on node=\d+,feature=\d+ with supposed parts: 30 % of the edges", text)


def test_a_training_run_says_all_that_it_knows(shown):
    last = max(i for i, line in enumerate(shown) if line.startswith("training "))
    assert " 4/4 " in shown[last] + " "
    text = " ".join(" ".join(shown[last:]).split())
    for words in (
        r"loss \d\.\d{4}, best val accuracy 0\.\d{4} at step [24], [\d.e-]+ s/step",
        r"(no checkpoint yet|checkpoint of step \d)",
        r"nodes/s, [\d.]+ GiB",
    ):
        assert re.search(words, text), text
