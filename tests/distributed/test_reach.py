"""Waiting for a coordinator: said at once, said again, and given up with advice."""

from __future__ import annotations

import socket
import time

import pytest

from gtjax.core.errors import UserError
from gtjax.distributed import reach as module
from gtjax.distributed.reach import reach, waiting_aloud
from gtjax.distributed.supervisor import free_port


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Lines that come every tenth of a second."""
    monkeypatch.setattr(module, "LINE_SECONDS", 0.1)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.02)
    monkeypatch.delenv("GTJAX_SUPERVISED", raising=False)


@pytest.mark.parametrize("index", [0, 1])
def test_a_name_that_does_not_resolve(capsys, index):
    address = "no-such-host.invalid:4321"
    started = time.monotonic()
    with pytest.raises(UserError, match=r"within 0\.5 s: the name does not resolve .*address"):
        reach(address, index, 2, 0.5)
    assert time.monotonic() - started < 5
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"gtjax: waiting for the coordinator at {address}, as process {index} of 2"
    assert said[-1].startswith(f"gtjax: still waiting for the coordinator at {address}")


def test_a_port_that_nobody_listens_on(capsys):
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(UserError, match=r"no connection \(Connection refused\).*--join-seconds"):
        reach(address, 1, 2, 0.5)
    assert "no connection (Connection refused)" in capsys.readouterr().err


def test_a_port_that_opens_later_is_reached(capsys):
    """And the coordinator itself does not wait for its own port."""
    port = free_port()
    reach(f"127.0.0.1:{port}", 0, 2, 0.5)
    assert capsys.readouterr().err == ""
    with socket.create_server(("127.0.0.1", port)):
        reach(f"127.0.0.1:{port}", 1, 2, 5.0)


def test_who_is_supervised_says_nothing_of_the_first_seconds(capsys, monkeypatch):
    monkeypatch.setenv("GTJAX_SUPERVISED", "1")
    with waiting_aloud("the others"):
        assert capsys.readouterr().err == ""
        time.sleep(0.3)
    assert capsys.readouterr().err.startswith("gtjax: still waiting for the others, 0 s\n")
