"""`gtjax watch`: what is seen of a run from outside."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from gtjax.distributed.failures import note_failure
from gtjax.runs.prometheus import exposition, served
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.status import Status
from gtjax.runs.watching import Sight, described, look
from tests.cli.small_options import SMALL

HOSTS = [{"host": "a", "processes": 1, "devices": 4}, {"host": "b", "processes": 1, "devices": 4}]


@pytest.fixture
def trained(gtjax, out):
    """A run that has failed once and finished."""
    assert gtjax("train", *SMALL, "--out", out).code == 0
    note_failure(out, "process 1 (pid 7) was ended by SIGKILL", "starting again in 1 s")
    return out


def test_a_finished_run(gtjax, trained):
    code, said, _ = gtjax("watch", trained)
    assert code == 0
    lines = said.splitlines()
    assert lines[0] == f"{trained}: finished"
    assert lines[1].startswith("step 3 of 3, loss ")
    assert "hosts: " in lines[2]
    assert "last checkpoint: step 3" in lines
    assert "failures: 1" in lines
    assert "process 1 (pid 7) was ended by SIGKILL; starting again in 1 s" in lines[-1]
    known = json.loads(gtjax("watch", trained, "--json").out)
    assert known["status"]["phase"] == "finished"
    assert known["checkpoint"] == 3
    (trained / "result.json").unlink()  # and it is measured again, with the report
    assert gtjax("resume", trained).code == 0
    assert "was ended by SIGKILL" in (trained / "report.html").read_text(encoding="utf-8")


def test_what_is_no_run(gtjax, tmp_path):
    code, _, err = gtjax("watch", tmp_path)
    assert code == 2
    assert "is not the folder of a run" in err


def test_mistakes(gtjax, tmp_path):
    assert "--every is positive" in gtjax("watch", tmp_path, "--every", "0").err
    assert (
        "--metrics-port is in 0..65535" in gtjax("watch", tmp_path, "--metrics-port", "70000").err
    )


def sight(state="running", **status):
    known = {"phase": "training", "step": 50, "steps": 200, "loss": 0.5, "hosts": HOSTS}
    known |= {"metric": "accuracy", "best": 0.75, "best_step": 40, "seconds_per_step": 0.1}
    return Sight("runs/a", state, known | {"updated": 1000.0} | status, 40, now=1003.0)


def test_what_is_said_of_a_run_under_way():
    lines = described(sight(slow={"1": 1.7}, communication=0.25))
    assert lines == [
        "runs/a: running (training)",
        "step 50 of 200, loss 0.5000, best val accuracy 0.7500 at step 40, 0.1 s/step, 15 s left, "
        "communication 25%",
        "hosts: a (1 p., 4 dev.), b (1 p., 4 dev.)",
        "slow: process 1 computes 1.7x as long as the median",
        "last checkpoint: step 40",
    ]
    assert "last heard of 103 s ago" in described(sight(updated=900.0))[0]


@pytest.mark.parametrize(
    ("state", "status", "over"),
    [
        ("running", {}, False),
        ("finished", {}, True),
        ("interrupted", {}, False),  # a supervisor may start it again
        ("interrupted", {"phase": "stopped at step 50"}, True),
        ("interrupted", {"updated": 100.0}, True),
        ("interrupted", {"updated": None}, True),
        ("unknown", {}, False),  # on another host, and heard of
    ],
)
def test_when_there_is_nothing_more_to_wait_for(state, status, over):
    assert sight(state, **status).is_over == over


def test_figures_for_prometheus(tmp_path):
    text = exposition(sight(slow={"1": 1.5}))
    assert 'gtjax_step{run="runs/a"} 50\n' in text
    assert 'gtjax_devices{run="runs/a"} 8\n' in text
    assert 'gtjax_straggler{run="runs/a",process="1"} 1.5\n' in text
    assert 'gtjax_failures_total{run="runs/a"} 0\n' in text
    for line in text.splitlines():
        assert line.startswith("# ") or len(line.rsplit(" ", 1)) == 2
    with served(0, lambda: text) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.read().decode() == text
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other")
        missing.value.close()


def test_the_status_is_written_now_and_then(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    status = Status(RunFolder(tmp_path), 10, HOSTS)
    status.doing("training")
    status.reached(1, loss=2.0)
    assert "step" not in look(tmp_path).status  # too soon after what was written before
    status.doing("report")
    assert look(tmp_path).status["loss"] == 2.0
