"""A real SLURM of two nodes on one machine: Debian's daemons, all of their files in one folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

NODES = ("gtjax-a", "gtjax-b")
HOSTS = Path("/etc/hosts")  # jax takes the first node's name for the coordinator: it has to resolve
HOSTS_LINE = f"127.0.0.1 {' '.join(NODES)} # of the tests of gtjax\n"
SIZE = "CPUs=4 RealMemory=500 State=UNKNOWN"  # room for two jobs at once
CONFIG = """
ClusterName=gtjax
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=0
SlurmdParameters=config_overrides
SlurmdTimeout=15
KillWait=15
MinJobAge=600
ReturnToService=2
JobRequeue=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} {size}
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} {size}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """Starts the daemons, asks them, and ends those that it has started."""

    def __init__(self, folder: Path, ports: list[int]):
        self.folder = folder
        config = folder / "slurm.conf"
        # Both nodes and the controller share a machine: only their ports tell them apart.
        text = CONFIG.format(
            folder=folder,
            host=socket.gethostname().partition(".")[0],
            ports=ports,
            nodes=NODES,
            size=SIZE,
        )
        config.write_text(text)
        self.environment = os.environ | {"SLURM_CONF": str(config)}

    def start(self) -> None:
        """All daemons, until both nodes are idle."""
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        HOSTS.write_text(HOSTS.read_text() + HOSTS_LINE)
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log"}
        files |= {"seed-file": "seed"}
        named = [f"--{name}={self.folder}/munge.{end}" for name, end in files.items()]
        self.call("munged", "--force", *named)
        self.call("slurmctld")
        for node in NODES:
            self.start_node(node)
        self.until(lambda: self.states() == dict.fromkeys(NODES, "IDLE"), 60)

    def start_node(self, node: str) -> None:
        """The daemon of a node."""
        (self.folder / "spool" / node).mkdir(parents=True, exist_ok=True)
        self.call("slurmd", "-N", node)

    def stop(self) -> None:
        """Cancel what runs, and end every daemon by its number."""
        self.call("scancel", "--user", "root", check=False)
        self.until(lambda: not self.call("squeue", "-h"), 60, failing=False)
        for name in (*(f"slurmd.{node}" for node in NODES), "slurmctld", "munge"):
            self.kill(name, signal.SIGTERM)
        HOSTS.write_text(HOSTS.read_text().replace(HOSTS_LINE, ""))

    def kill(self, name: str, number: int) -> None:
        """Send a signal to a daemon."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self.folder / f"{name}.pid").read_text()), number)

    def call(self, *command: str, check: bool = True) -> str:
        """What a program of SLURM prints."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def submit(self, *options: str) -> str:
        """The number of a new job."""
        return self.call("sbatch", "--parsable", *options).partition(";")[0]

    def state(self, job: str) -> str:
        """What became of a job, or of all tasks of an array that are in the same state."""
        return ",".join(
            sorted(set(self.call("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").split()))
        )

    def states(self) -> dict[str, str]:
        """The state of every node."""
        lines = self.call("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        return {name: state.rstrip("*").upper() for name, state in map(str.split, lines)}

    def ended(self, job: str, seconds: float = 900) -> str:
        """The state of a job that is over."""
        over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
        self.until(lambda: self.state(job) in over, seconds)
        return self.state(job)

    def until(self, holds, seconds: float, *, failing: bool = True) -> None:
        """Wait."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                assert not failing, self.told()
                return
            time.sleep(0.3)

    def told(self) -> str:
        """The ends of all logs, for who has to find out."""
        tails = [f"{p}:\n{p.read_text()[-2000:]}" for p in self.folder.glob("*.log")]
        return "\n".join([str(self.states()), self.call("squeue", "-t", "all"), *tails])


def why_not() -> str | None:
    """Why SLURM cannot run here; installs what is missing where it can."""
    if os.geteuid() != 0:
        return "the daemons of SLURM need root"
    if shutil.which("apt-get") is None:
        return "this is not Debian: no apt-get"
    script = Path(__file__).with_name("install.sh")
    done = subprocess.run(["bash", script], capture_output=True, text=True)
    if done.returncode:
        return done.stdout.strip() or done.stderr.strip()
    return None if os.access(HOSTS, os.W_OK) else f"{HOSTS} cannot be written"
