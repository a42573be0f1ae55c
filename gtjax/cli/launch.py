"""`gtjax launch -- COMMAND ...`: run a command in several processes, and keep it running."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gtjax.cli.arguments import parse
from gtjax.core.errors import UserError
from gtjax.distributed.elastic import Hosts
from gtjax.distributed.join import Processes
from gtjax.distributed.slurm_batch import Batch
from gtjax.remote.address import address_of, shown
from gtjax.sharding.config import check_simulated

if TYPE_CHECKING:
    from gtjax.distributed.supervisor import Job

COMMANDS = ("train", "resume", "profile")


@dataclass(frozen=True)
class Launch:
    """Run a command of gtjax in several processes on this machine, and start them again from the
    last checkpoint when one is lost. The command and its options follow after "--".

    Without --processes: one process, which finds the others by itself. That is the way to run each
    task under SLURM or Kubernetes; --slurm writes and submits the batch file that does it."""

    processes: int | None = None
    """Processes on this machine."""
    devices_per_process: int | None = None
    """Devices of each process; on a CPU so many are simulated."""
    restarts: int = 3
    """How often to start again without a new checkpoint in between."""
    grace: float = 20.0
    """Seconds that the others have to end by themselves after one is lost."""
    pin: bool = True
    """Give each process its own cores, if there are as many."""
    elastic: str | None = None
    """The least and the most hosts, such as "2:4": started on each of them with the same command,
    the run goes on with those that are there. --out is a folder that all see."""
    elastic_seconds: float = 60.0
    """With --elastic: how long to wait for the most hosts at first, and for one that was lost."""
    batch: Annotated[Batch, tyro.conf.arg(name="")] = field(default_factory=Batch)

    def __post_init__(self) -> None:
        for name in ("processes", "devices_per_process"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} is at least 1; found {value}")
        check_simulated(self.devices_per_process or 1, "--devices-per-process")
        for name in ("restarts", "grace"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name} is not negative; found {getattr(self, name)}")
        if self.batch.slurm and self.processes is not None:
            raise ValueError("--processes is for one machine; with --slurm, say --nodes")
        if self.elastic is not None:
            Hosts.parsed(self.elastic, self.elastic_seconds)
            if self.processes is not None:
                raise ValueError(
                    "--elastic is started once on each host, with a process there; leave out "
                    "--processes"
                )
            if self.batch.slurm:
                raise ValueError(
                    "--slurm starts all nodes or none; for --elastic write srun --no-kill "
                    "--kill-on-bad-exit=0 gtjax launch --elastic ... in a batch file of your own"
                )


def run(argv: list[str]) -> int:
    """Start, watch, start again."""
    own, rest = argv, []
    if "--" in argv:
        at = argv.index("--")
        own, rest = argv[:at], argv[at + 1 :]
    arguments = parse(Launch, "launch", own)
    if not rest or rest[0] not in COMMANDS:
        found = f"found {rest[0]!r}" if rest else "there is none"
        raise UserError(
            f"a command follows after --, one of {', '.join(COMMANDS)}; {found}. "
            f"Such as: gtjax launch --processes 2 -- train"
        )

    from gtjax.core.progress import say
    from gtjax.distributed.supervisor import Local, Supervisor

    shared = arguments.processes is None and not arguments.batch.slurm
    job = _job(rest[0], rest[1:], shared=shared)
    if arguments.batch.slurm:
        return _submit(arguments, job)
    if arguments.elastic is not None:
        return _elastic(arguments, job)
    local = Local(arguments.processes, arguments.devices_per_process, arguments.pin)
    supervisor = Supervisor(
        job,
        local,
        restarts=arguments.restarts,
        grace=arguments.grace,
        say=lambda text: say(f"gtjax launch: {text}"),
    )
    return supervisor.run()


def _elastic(arguments: Launch, job: Job) -> int:
    """One host of several that come and go; mistakes are found before it meets the others."""
    from gtjax.core.progress import say
    from gtjax.distributed.elastic import Elastic

    if job.run is None or address_of(job.run) is not None:
        found = job.command[0] if job.run is None else shown(job.run)
        raise UserError(
            "--elastic is for train and resume, with a run folder that all hosts see; found "
            f"{found}. An object store has no hard links, by which hosts agree."
        )
    command, options = job.command[0], list(job.command[1:])
    if command == "train":
        from gtjax.cli.train import parsed

        train = parsed(options)
        fixed, processes, steps = train.config.parallel, train.processes, None
    else:
        from gtjax.cli.resume import parsed as parsed_resume

        fixed = parsed_resume(options)
        processes, steps = fixed.processes, fixed.steps
    if fixed.devices is not None or fixed.mesh is not None:
        raise UserError(
            "--elastic takes all devices of the hosts that are there: leave out --devices and "
            "--mesh; --devices-per-process before the -- says how many each host has"
        )
    if processes.coordinator is not None:
        raise UserError("--elastic chooses the coordinator among the hosts: leave it out")
    assert arguments.elastic is not None
    return Elastic(
        job,
        Hosts.parsed(arguments.elastic, arguments.elastic_seconds),
        finished=lambda: _is_finished(job.run, steps),
        restarts=arguments.restarts,
        grace=arguments.grace,
        devices=arguments.devices_per_process,
        say=lambda text: say(f"gtjax launch: {text}"),
    ).run()


def _is_finished(run: Path | None, steps: int | None) -> bool:
    """Whether a process that ended well has nothing left to do; it may have been stopped."""
    from gtjax.runs.listing import finished_result
    from gtjax.runs.run_folder import RunFolder

    assert run is not None
    try:
        result = finished_result(RunFolder(run, writes=False))
    except UserError:  # it is damaged, and will be written anew
        return False
    return result is not None and steps in (None, result["steps"], result["config"]["steps"])


def _submit(arguments: Launch, job: Job) -> int:
    """Print the batch file, or hand it to SLURM."""
    from gtjax.core.progress import say
    from gtjax.distributed.slurm_batch import batch_file, log_of, submit
    from gtjax.distributed.workers import ENTRY

    run = job.run or Path(job.command[0])
    # The log of a run in a store is written here.
    run = (run if address_of(run) is None else Path(run.name)).absolute()
    # Tasks may start elsewhere than here, and all have to find the same.
    words = [str(run) if word == str(job.run) else word for word in job.command]
    own = [f"--restarts={arguments.restarts}", f"--grace={arguments.grace:g}"]
    if arguments.devices_per_process is not None:
        own.append(f"--devices-per-process={arguments.devices_per_process}")
    script = Path(sys.executable).with_name("gtjax")
    entry = (str(script),) if script.is_file() else ENTRY
    text = batch_file(arguments.batch, [*entry, "launch", *own, "--", *words], run)
    if arguments.batch.dry_run:
        print(text, end="")
        return 0
    run.parent.mkdir(parents=True, exist_ok=True)
    number = submit(text)
    say(
        f"job {number}; its output goes to {log_of(run).replace('%j', number)}, the run to "
        f"{shown(job.run or run)}. "
        f"scancel --signal=TERM {number} saves and ends it; scancel {number} ends it."
    )
    print(number)
    return 0


def _words(processes: Processes) -> tuple[str, ...]:
    """Options that say the same: what is continued has the same place among others."""
    plain = Processes()
    return tuple(
        word
        for each in dataclasses.fields(processes)
        if (value := getattr(processes, each.name)) != getattr(plain, each.name)
        for word in (f"--{each.name.replace('_', '-')}", str(value))
    )


def _job(command: str, options: list[str], *, shared: bool) -> Job:
    """The command, its mistakes found before any process is started, and how to continue it."""
    from gtjax.distributed.supervisor import Job

    if command == "train":
        from gtjax.cli.train import parsed
        from gtjax.runs.run_folder import new_run_path

        train = parsed(options)
        config = train.config
        if config.out is None and shared:
            raise UserError(
                "launch without --processes needs --out FOLDER, the same for all tasks, so that "
                "each knows what to continue"
            )
        out = config.out or new_run_path(config)
        first = (command, *options, *(() if config.out else ("--out", str(out))))
        return Job(first, ("resume", shown(out), *_words(train.processes)), out)
    if command == "resume":
        from gtjax.cli.resume import parsed as parsed_resume

        return Job((command, *options), (command, *options), parsed_resume(options).run)
    return Job((command, *options), (), None)
