"""The batch file for SLURM; `tests/cluster` submits it to a real one."""

from __future__ import annotations

import pytest

from gtjax.distributed.slurm_batch import slurm_time

TRAIN = ("train", "--data", "a b.npz", "--out", "runs/first")


def test_the_file_is_printed_and_nothing_submitted(gtjax, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    options = ("--nodes", "4", "--time", "2h", "--gpus-per-node", "8", "--sbatch", "partition=p")
    code, out, _ = gtjax("launch", "--slurm", *options, "--dry-run", "--", *TRAIN)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "#!/bin/bash"
    wanted = ("nodes=4", "ntasks-per-node=1", "time=120", "gpus-per-node=8", "partition=p")
    assert {f"#SBATCH --{option}" for option in (*wanted, "signal=TERM@120", "requeue")} <= set(
        lines
    )
    assert lines[-1].startswith("exec srun --kill-on-bad-exit=0 ")
    assert lines[-1].endswith(f" -- train --data 'a b.npz' --out {tmp_path}/runs/first")
    assert not list(tmp_path.iterdir())
    code, _, err = gtjax("launch", "--slurm", "--", *TRAIN)
    assert code == 2
    assert "sbatch, which is not here" in err


def test_a_run_without_a_folder_is_given_one_that_all_tasks_know(gtjax, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = gtjax("launch", "--slurm", "--dry-run", "--", "train")
    assert code == 0
    assert f"--out {tmp_path}/runs/" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--nodes", "2"), "--nodes: only with --slurm"),
        (("--slurm", "--nodes", "0"), "--nodes is at least 1; found 0"),
        (("--slurm", "--time", "soon"), "--time is such as 2h"),
        (("--slurm", "--processes", "2"), "--processes is for one machine"),
        (("--slurm", "--sbatch", "exclusive=\n#"), "partition=gpu"),
    ],
)
def test_mistakes(gtjax, options, said):
    code, _, err = gtjax("launch", *options, "--", *TRAIN)
    assert code == 2
    assert said in err


def test_limits():
    times = ("30m", "2h", "1.5h", "1d", "90", "1-12:00:00")
    assert [slurm_time(time) for time in times] == ["30", "120", "90", "1440", "90", "1-12:00:00"]
