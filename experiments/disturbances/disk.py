"""Disks that take nothing more."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from disturbances.runs import (
    STEPS,
    Chaos,
    Row,
    done,
    final_hash,
    last_step,
    start,
    train_options,
    until_interrupted,
    wait_until,
)
from gtjax.runs.checkpoint_files import steps_in


def disk(chaos: Chaos) -> dict[str, Any] | None:
    """A disk that is full or becomes read-only: a clear error, and a run that can go on."""
    cases = []
    with chaos.new_folder() as folder, until_interrupted():
        mount = folder / "disk"
        mount.mkdir()
        if subprocess.run(
            ["mount", "-t", "tmpfs", "none", str(mount)], capture_output=True
        ).returncode:
            print("disk: skipped, since file systems cannot be mounted here")
            return None
        subprocess.run(["umount", str(mount)], check=True)
        one = ("--strategy", "single")
        code = done(start(*train_options(folder / "whole", *one), log=folder / "whole.log"))
        assert code == 0
        wanted = final_hash(folder / "whole")
        taken = sum(p.stat().st_size for p in (folder / "whole").rglob("*") if p.is_file()) // 1024
        for number in range(2 * chaos.times(20, 1)):
            how = ("full", "read-only")[number % 2]
            run, log = mount / "run", folder / f"{number}.log"
            size = 10 * taken if how == "read-only" else int(taken * chaos.random.uniform(0.4, 1.0))
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(mount)], check=True
            )
            try:
                process = start(*train_options(run, *one), log=log)
                if how == "read-only":
                    step = chaos.random.randrange(1, STEPS - 8)
                    wait_until(lambda s=step, r=run: last_step(r) >= s, 120)
                    wait_until(lambda: _remounted(mount, "ro"), 20)
                code = done(process)
                text = log.read_text(errors="replace")
                clear = (
                    code == 2
                    and "Traceback" not in text
                    and ("No space left" in text or "Read-only file system" in text)
                )
                had = steps_in(run / "checkpoints") if (run / "checkpoints").is_dir() else []
                _remounted(mount, f"rw,size={20 * taken}k")
                begun = (run / "config.json").exists()
                if not begun:
                    shutil.rmtree(run, ignore_errors=True)
                command = ("resume", str(run)) if begun else train_options(run, *one)
                again = done(start(*command, log=folder / f"{number}-more.log"))
                case = {
                    "how": how,
                    "code": code,
                    "clear": clear,
                    "said": text.strip().splitlines()[-1].replace(str(mount), "DISK"),
                    "checkpoints": had,
                    "same": again == 0 and final_hash(run) == wanted,
                }
            finally:
                subprocess.run(["umount", "-l", str(mount)], check=True)
            print(number, case, flush=True)
            cases.append(case)
    held = all(case["clear"] and case["same"] for case in cases)
    return {
        "cases": cases,
        "times": len(cases),
        "clear": sum(case["clear"] for case in cases),
        "same": sum(case["same"] for case in cases),
        "held": held,
    }


def _remounted(mount: Path, how: str) -> bool:
    command = ["mount", "-o", f"remount,{how}", str(mount)]
    return subprocess.run(command, capture_output=True).returncode == 0


ROW = Row(
    "disk full, and a folder that becomes read-only",
    "clear error, last checkpoint restorable",
    disk,
    lambda r: f"{r['clear']} of {r['times']} clear, {r['same']} bit-equal after resume",
)
