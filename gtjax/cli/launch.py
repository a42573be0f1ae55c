"""`gtjax launch -- COMMAND ...`: run a command in several processes, and keep it running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gtjax.cli.arguments import parse
from gtjax.core.errors import UserError
from gtjax.sharding.config import check_simulated

if TYPE_CHECKING:
    from gtjax.distributed.supervisor import Job

COMMANDS = ("train", "resume", "profile")


@dataclass(frozen=True)
class Launch:
    """Run a command of gtjax in several processes on this machine, and start them again from the
    last checkpoint when one is lost. The command and its options follow after "--".

    Without --processes: one process, which finds the others by itself. That is the way to run each
    task under SLURM or Kubernetes."""

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

    def __post_init__(self) -> None:
        for name in ("processes", "devices_per_process"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} is at least 1; found {value}")
        check_simulated(self.devices_per_process or 1, "--devices-per-process")
        for name in ("restarts", "grace"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name} is not negative; found {getattr(self, name)}")


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

    job = _job(rest[0], rest[1:], shared=arguments.processes is None)
    local = Local(arguments.processes, arguments.devices_per_process, arguments.pin)
    supervisor = Supervisor(
        job,
        local,
        restarts=arguments.restarts,
        grace=arguments.grace,
        say=lambda text: say(f"gtjax launch: {text}"),
    )
    return supervisor.run()


def _job(command: str, options: list[str], *, shared: bool) -> Job:
    """The command, its mistakes found before any process is started, and how to continue it."""
    from gtjax.distributed.supervisor import Job

    if command == "train":
        from gtjax.cli.train import parsed
        from gtjax.runs.run_folder import new_run_path

        config = parsed(options).config
        if config.out is None and shared:
            raise UserError(
                "launch without --processes needs --out FOLDER, the same for all tasks, so that "
                "each knows what to continue"
            )
        out = config.out or new_run_path(config)
        first = (command, *options, *(() if config.out else ("--out", str(out))))
        return Job(first, ("resume", str(out)), out)
    if command == "resume":
        from gtjax.cli.resume import parsed as parsed_resume

        return Job((command, *options), (command, *options), parsed_resume(options).run)
    return Job((command, *options), (), None)
