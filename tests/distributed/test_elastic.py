"""Supervisors of hosts that come and go, with workers that do what they are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from gtjax.distributed.elastic import Hosts
from gtjax.distributed.exits import FAILED, FINISHED, MISTAKE
from gtjax.distributed.failures import failures
from gtjax.distributed.meeting import Decision, Meeting
from gtjax.distributed.members import Members
from tests.distributed.test_supervisor import wait_for

# One host: argv is the folder of the run, what the worker does, least and most hosts, options.
HOST = """
import json, pathlib, sys
from gtjax.distributed.elastic import Elastic, Hosts, Pace
from gtjax.distributed.supervisor import Job
assert "jax" not in sys.modules
run, code, least, most, options = sys.argv[1:]
run, options = pathlib.Path(run), json.loads(options)
print("ready", flush=True)
sys.stdin.readline()
sys.exit(Elastic(
    Job(("train", str(run)), ("resume", str(run)), run),
    Hosts(int(least), int(most), options.get("seconds", 1.5)),
    finished=(run / "finished").exists,
    restarts=options.get("restarts", 3),
    grace=options.get("grace", 1.0),
    say=lambda text: print(text, flush=True),
    pace=Pace(poll=0.05, beat=0.1, silent=options.get("silent", 1.5), backoff=0.05),
    entry=(sys.executable, "-c", code),
).run())
"""
# A worker: which of how many, of which start; it leaves that and waits for what the test does.
WORKER = """
import os, pathlib, signal, sys, time
run = pathlib.Path(sys.argv[2]); run.mkdir(exist_ok=True)
told = dict(zip(sys.argv[3::2], sys.argv[4::2]))
index, count = int(told["--process-id"]), int(told["--num-processes"])
generation = int(os.environ["GTJAX_SUPERVISED"]) - 1
(run / "config.json").write_text("{}")
def checkpoint(step):
    (run / "checkpoints" / str(step)).mkdir(parents=True, exist_ok=True)
def asked(*_):
    (run / f"asked-{generation}").write_text("x")
signal.signal(signal.SIGTERM, asked)
(run / f"{generation}-{index}-of-{count}-{sys.argv[1]}").write_text(str(os.getppid()))
"""
# It saves and ends when one is asked, as real ones do; it fails when the test says so, or when
# another is gone, which the test tells by a file.
WAITS = """
while True:
    time.sleep(0.02)
    if (run / f"asked-{generation}").exists():
        if index == 0:
            checkpoint(generation)
        sys.exit(0)
    if (run / "finished").exists():
        sys.exit(0)
    if (run / f"lost-{generation}").exists():
        sys.exit(75)
"""


class Cluster:
    """Hosts that are started, and what they say."""

    def __init__(self, folder):
        self.folder, self.run, self.hosts = folder, folder / "run", []

    def start(self, count, code="", *, least=2, most=3, **options):
        """Start hosts, and let them in one after the other once all are ready."""
        worker = WORKER + textwrap.dedent(code) + WAITS
        command = [sys.executable, "-c", HOST, self.run, worker, least, most, json.dumps(options)]
        first = len(self.hosts)
        for number in range(first, first + count):
            with (self.folder / f"{number}.log").open("w") as log:
                host = subprocess.Popen(
                    [str(word) for word in command],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    text=True,
                )
            self.hosts.append(host)
        for number in range(first, first + count):
            wait_for(lambda n=number: "ready" in self.said(n), 60)
        for host in self.hosts[first:]:
            before = len(self.meeting.names("member"))
            host.stdin.write("\n")
            host.stdin.close()
            wait_for(lambda n=before: len(self.meeting.names("member")) > n)

    @property
    def meeting(self):
        return Meeting.beside(self.run)

    @property
    def alive(self):
        return [host for host in self.hosts if host.poll() is None]

    def said(self, number):
        return (self.folder / f"{number}.log").read_text()

    def runs(self, generation, count, how="resume"):
        names = [f"{generation}-{i}-of-{count}-{how}" for i in range(count)]
        wait_for(lambda: all((self.run / name).exists() for name in names))

    def checkpoint(self, step):
        (self.run / "checkpoints" / str(step)).mkdir(parents=True)

    def mark(self, name):
        (self.run / name).write_text("x")

    def kill(self, number):
        """The host with all that is on it."""
        host = self.hosts[number]
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(host.pid)], capture_output=True, text=True
        )
        for pid in [host.pid, *map(int, children.stdout.split())]:
            os.kill(pid, signal.SIGKILL)
        host.wait()

    def codes(self):
        return [host.wait(timeout=30) for host in self.hosts]


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    for number, host in enumerate(made.hosts):
        if host.poll() is None:
            made.kill(number)


def test_all_that_come_run_together_and_end_when_the_run_is_finished(cluster):
    cluster.start(3, seconds=60)
    cluster.runs(1, 3, "train")
    cluster.mark("finished")
    assert cluster.codes() == [FINISHED] * 3
    assert "begins with 3 of at most 3 hosts" in cluster.said(2)
    assert not cluster.meeting.folder.exists()


def test_the_run_goes_on_without_the_leader_and_takes_in_one_after_the_next_checkpoint(cluster):
    cluster.start(3)
    cluster.runs(1, 3, "train")
    cluster.checkpoint(40)
    cluster.kill(0)
    cluster.mark("lost-1")
    cluster.runs(2, 2)
    assert "did not come back within 1.5 s; from the checkpoint of step 40" in cluster.said(1)
    cluster.start(1)
    wait_for(lambda: "came to the 2 that run: after the next checkpoint" in cluster.said(1))
    assert not (cluster.run / "asked-2").exists()
    cluster.checkpoint(41)
    cluster.runs(3, 3)
    assert "from the checkpoint of step 41" in cluster.said(3)
    cluster.mark("finished")
    assert cluster.codes() == [-signal.SIGKILL, FINISHED, FINISHED, FINISHED]
    noted = [each["then"] for each in failures(cluster.run)]
    assert any("goes on with 2 of at most 3" in each for each in noted)
    assert any("goes on with 3 of at most 3" in each for each in noted)


def test_one_that_is_to_spare_takes_the_place_of_a_lost_one_at_once(cluster):
    cluster.start(3, most=2, seconds=300)
    cluster.runs(1, 2, "train")
    cluster.checkpoint(1)
    wait_for(lambda: "this host is to spare; " in cluster.said(2))
    cluster.kill(1)
    cluster.mark("lost-1")
    cluster.runs(2, 2)
    cluster.mark("finished")
    assert cluster.codes() == [FINISHED, -signal.SIGKILL, FINISHED]


def test_who_leaves_is_not_waited_for(cluster):
    cluster.start(3, seconds=300)
    cluster.runs(1, 3, "train")
    cluster.hosts[0].terminate()
    cluster.runs(2, 2)
    assert cluster.hosts[0].wait() == FINISHED
    assert " left; from the checkpoint of step 1" in cluster.said(1)
    for host in cluster.alive:
        host.terminate()
    assert cluster.codes() == [FINISHED] * 3
    assert not cluster.meeting.folder.exists()


def test_a_mistake_ends_all(cluster):
    code = f"""
    if index == 1:
        sys.exit({MISTAKE})
    """
    cluster.start(2, code, most=2)
    assert cluster.codes() == [MISTAKE] * 2
    assert "ended with code 2; it would happen again" in cluster.said(0)


def test_failures_without_a_new_checkpoint_are_counted_by_whoever_leads(cluster):
    cluster.start(2, "sys.exit(1)", most=2, restarts=2)
    assert cluster.codes() == [FAILED] * 2
    assert "giving up after 3 failures without a new checkpoint" in cluster.said(1)
    assert len(list(cluster.run.glob("*-0-of-2-*"))) == 3


def test_too_few_give_up_with_advice(cluster):
    cluster.start(1, seconds=0.3)
    assert cluster.codes() == [FAILED]
    assert "at least 2 are needed, and waited for 3 s" in cluster.said(0)
    assert "start the same command on more hosts, or allow fewer" in cluster.said(0)


def test_what_an_earlier_launch_left_neither_leads_nor_ends_this_one(cluster):
    stale = Members(cluster.meeting)
    stale.arrive()
    stale.tell(generation=7, running=True)
    assert cluster.meeting.decide(Decision(7, (1, 2), ("a", "b"), "a:1"))
    cluster.start(2, most=2)
    cluster.runs(8, 2, "train")
    assert cluster.meeting.newest().members == (3, 4)
    cluster.mark("finished")
    assert cluster.codes() == [FINISHED] * 2


def test_who_was_stopped_is_gone_on_without_and_comes_back(cluster):
    cluster.start(3)
    cluster.runs(1, 3, "train")
    cluster.checkpoint(1)
    cluster.hosts[0].send_signal(signal.SIGSTOP)
    cluster.mark("lost-1")
    cluster.runs(2, 2)
    cluster.hosts[0].send_signal(signal.SIGCONT)
    wait_for(lambda: "this host is to spare" in cluster.said(0))
    wait_for(lambda: "after the next checkpoint" in cluster.said(1))
    cluster.checkpoint(2)
    cluster.runs(3, 3)
    cluster.mark("finished")
    assert cluster.codes() == [FINISHED] * 3


def test_a_process_that_does_not_notice_that_another_failed_is_ended(cluster):
    code = """
    if index == 1 and generation == 1:
        checkpoint(1)
        sys.exit(75)
    if generation == 1:
        time.sleep(600)
    """
    cluster.start(2, code, most=2, grace=0.5)
    cluster.runs(2, 2)
    cluster.mark("finished")
    assert cluster.codes() == [FINISHED] * 2


@pytest.mark.parametrize("text", ["2", "0:2", "3:2", "a:b", "2:4:6"])
def test_hosts_are_the_least_and_the_most(text):
    with pytest.raises(ValueError, match=r'such as "2:4"; found'):
        Hosts.parsed(text, 60.0)
