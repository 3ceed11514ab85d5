"""A Slurm cluster for tests: a controller here, and a slurmd on each of some separated machines."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.machines import separated
from tests.machines.separated import Separated, ip

NEEDED = ("slurmctld", "slurmd", "srun", "munged", "scontrol", "salloc")
IPV6 = "CommunicationParameters=EnableIPv6,DisableIPv4"
CONF = """
ClusterName={name}
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir=/tmp/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile=/tmp/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
ReturnToService=2
SlurmdTimeout=10
KillWait=2
{family}
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing() -> str:
    """Why there can't be such a cluster here; empty where there can."""
    if absent := [name for name in NEEDED if shutil.which(name) is None]:
        return f"not installed: {', '.join(absent)} (Debian: slurmctld slurmd slurm-client munge)"
    return separated.missing()


class Cluster:
    """Some machines that Slurm gives."""

    kind = "slurm"

    def __init__(self, machines: Separated) -> None:
        """Nothing runs yet."""
        self.machines = machines
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/var/tmp"))  # /tmp is another on each machine
        self.environment = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        """Start it, and wait until every machine is idle."""
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        names, folder = self.machines.names, self.folder
        nodes = [
            f"NodeName={name} NodeAddr={self.machines.address(number)} CPUs=2 RealMemory=1000 "
            f"Feature=place-{number} State=UNKNOWN"
            for number, name in enumerate(names)
        ]
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(
            CONF.format(
                name=self.machines.name,
                host=os.uname().nodename,
                address=self.machines.here,
                port=20000 + os.getpid() % 10000,
                folder=folder,
                family=IPV6 if ":" in self.machines.here else "",
                nodes="\n".join(nodes),
            )
        )
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainCores=no\n")
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        folder.chmod(0o755)
        self._start(
            "munged", "-F", "-f", f"--key-file={key}", f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed",
        )  # fmt: skip
        _until(lambda: (folder / "munge.socket").exists(), "munged")
        self._start("slurmctld", "-D", "-i")
        for name in names:
            self.boot(name)
        _until(lambda: self.call("sinfo", "-h", "-o", "%T %D").split() == ["idle", str(len(names))], "all idle")

    def boot(self, name: str) -> None:
        """Start the slurmd of a machine."""
        self._start(*self.machines.through(name), "sh", "-c", f"mkdir -p /tmp/spool; exec slurmd -D -N {name}")

    def sees(self, name: str, path: str) -> Path:
        """A path of a machine's own, as it is found from here."""
        for pid in ip("netns", "pids", name).split():
            if Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() == "slurmd":
                return Path(f"/proc/{pid}/root{path}")
        raise AssertionError(f"no slurmd on {name}")

    def call(self, *command: str) -> str:
        """Call one of Slurm's commands."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60).stdout

    def __exit__(self, *_: object) -> None:
        """End all of it."""
        for daemon in reversed(self._daemons):
            with suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        shutil.rmtree(self.folder)

    def _start(self, *command: str) -> None:
        log = (self.folder / "daemons.log").open("ab")
        self._daemons.append(
            subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)
        )
        log.close()


def _until(condition: object, what: str, patience_s: float = 60) -> None:
    assert callable(condition)
    until = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {patience_s} s"
        time.sleep(0.1)
