"""Coming together before joining: said aloud, and every way of doing it wrong has its error."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time

import pytest

from gtjax.core.errors import UserError
from gtjax.distributed import roll_call
from gtjax.distributed.place import Place
from gtjax.distributed.roll_call import Card, answer
from gtjax.distributed.supervisor import free_port


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Lines that come every tenth of a second."""
    monkeypatch.setattr(roll_call, "LINE_SECONDS", 0.1)
    monkeypatch.setattr(roll_call, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(roll_call, "TAKEN_SECONDS", 0.1)
    monkeypatch.setattr(roll_call, "CONNECT_SECONDS", 0.2)
    monkeypatch.delenv("GTJAX_SUPERVISED", raising=False)


def place(index, count=2, port=None, host="127.0.0.1", **more):
    return Place(f"{host}:{port or free_port()}", index, count, "--coordinator", **more)


def together(*calls):
    """What each call, in a thread of its own, ends with: None or the text of its error."""
    ends = [None] * len(calls)

    def run(number, call):
        try:
            call()
        except UserError as error:
            ends[number] = str(error)

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return ends


def came(*places, seconds=5.0, **options):
    return together(
        *(lambda one=one: answer(one, seconds, local=True, **options) for one in places)
    )


def test_all_come_in_any_order_and_it_is_said_at_once(capsys):
    port = free_port()
    assert came(*(place(index, 3, port) for index in (2, 1, 0))) == [None] * 3
    said = capsys.readouterr().err
    where = f"on {socket.gethostname()}, coordinator 127.0.0.1:{port} (told by --coordinator)"
    assert all(f"gtjax: process {index} of 3 {where}" in said for index in range(3))


def test_who_is_missing_is_named_by_all_who_wait(capsys):
    port = free_port()
    first, third = came(place(0, 4, port), place(2, 4, port), seconds=0.7)
    wanted = f"processes 1, 3 of 4 did not come to 127.0.0.1:{port} within 0.7 s"
    assert first.startswith(wanted)
    assert "--join-seconds" in first
    assert third == first
    said = capsys.readouterr().err
    assert "gtjax: process 0 waits for processes 1, 3, 0 s" in said
    assert "process 2 waits at the coordinator" in said
    assert "it waits for processes 1, 3" in said


def test_many_who_are_missing_are_counted():
    assert (
        "processes 1, 2, 3, 4, 5, 6, 7, 8 and 55 more of 64" in came(place(0, 64), seconds=0.1)[0]
    )


@pytest.mark.parametrize("index", [0, 1])
def test_a_name_that_does_not_resolve(index):
    with pytest.raises(UserError, match=r"the name does not resolve"):
        answer(place(index, host="no-such-host.invalid"), 0.5)


def test_a_port_that_nobody_listens_on():
    with pytest.raises(UserError, match=r"connection refused.*firewall.*--join-seconds"):
        answer(place(1), 0.5)


def test_what_is_sent_is_dropped():
    """As by a firewall: a queue that is full does not answer either."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        filling = [socket.socket() for _ in range(4)]
        for one in filling:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        with pytest.raises(UserError, match=r"timed out\): a firewall may drop what is sent"):
            answer(place(1, port=port), 1.0)
        for one in filling:
            one.close()


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(UserError, match=r"cannot listen at port \d+: .*in use.*another one in"):
            answer(place(0, port=other.getsockname()[1]), 5.0, local=True)
        slurm = dataclasses.replace(place(0, port=other.getsockname()[1]), told_by="SLURM")
        with pytest.raises(UserError, match=r"Set JAX_COORDINATOR_PORT"):
            answer(slurm, 5.0, local=True)


def test_a_port_where_another_program_answers():
    with socket.create_server(("127.0.0.1", 0)) as other:

        def speak():
            for _ in range(3):
                link = other.accept()[0]
                link.sendall(b"220 mail.example\r\n")
                link.close()

        threading.Thread(target=speak, daemon=True).start()
        with pytest.raises(UserError, match=r"another program has that port|closed the connection"):
            answer(place(1, port=other.getsockname()[1]), 0.5)


def test_another_count():
    port = free_port()
    ends = came(place(0, 3, port), place(1, 2, port))
    assert "was told of 3 processes" in ends[0]
    assert "the same --num-processes" in ends[0]
    assert ends[1] == ends[0]


def test_the_same_number_twice():
    port = free_port()
    twin = Card(1, 3, pid=1, host="elsewhere")

    def come_as_another():
        roll_call._Caller(place(1, 3, port), twin, None).come(5.0)

    first = lambda: answer(place(0, 3, port), 5.0, local=True)  # noqa: E731
    ends = together(first, lambda: answer(place(1, 3, port), 5.0), come_as_another)
    assert "say that they are the same process. Give each its own --process-id" in ends[0]
    assert "elsewhere" in ends[0]
    assert ends[1:] == ends[:1] * 2


def test_who_is_left_over_of_an_earlier_start_is_sent_away_alone():
    port = free_port()
    job = "job 7, step 0, started {} times".format
    old = place(1, 2, port, time=job(1))
    now = [place(index, 2, port, time=job(2)) for index in range(2)]

    def first():
        answer(now[0], 5.0, local=True)

    def later():
        time.sleep(0.5)
        answer(now[1], 5.0)

    ends = together(first, lambda: answer(old, 5.0), later)
    assert ends[0] is None
    assert ends[2] is None
    assert "is of job 7, step 0, started 1 times; this is" in ends[1]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"versions": {"jax": "0.1"}}, "all processes need the same jax: process 0 (pid 5 on a)"),
        ({"clock": 1500.0}, "is 500 s ahead of that of process 0 (pid 5 on a). Set them by NTP"),
        ({"clock": 500.0}, "is 500 s behind"),
        ({"clock": 1059.0}, None),
        ({"index": 3}, "is none of 2"),
        ({"problem": "no such folder"}, "process 1 (pid 6 on b): no such folder"),
        ({}, None),
    ],
)
def test_what_does_not_fit(other, said):
    fields = {"versions": {"jax": "0.10"}, "clock": 1000.0}
    first = Card(0, 2, host="a", pid=5, **fields)
    second = Card(**{"index": 1, "count": 2, "host": "b", "pid": 6, **fields} | other)
    found = roll_call.misfit(first, second, 1000.0)
    assert found is None if said is None else said in found


@pytest.mark.parametrize("index", [0, 1])
def test_a_problem_of_one_is_told_to_all(monkeypatch, index):
    monkeypatch.setattr(roll_call, "GREETING_SECONDS", 2.0)
    port = free_port()
    ends = together(
        *(
            lambda i=i: answer(
                place(i, 2, port), 5.0, local=True, problem="no run here" if i == index else None
            )
            for i in range(2)
        )
    )
    assert all("no run here" in end for end in ends)


def test_who_is_supervised_on_one_machine_says_nothing_of_the_first_seconds(capsys, monkeypatch):
    monkeypatch.setattr(roll_call, "LINE_SECONDS", 5.0)
    monkeypatch.setenv("GTJAX_SUPERVISED", "1")
    port = free_port()
    assert came(place(0, 2, port), place(1, 2, port)) == [None, None]
    assert capsys.readouterr().err == ""
