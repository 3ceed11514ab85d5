"""A Ray cluster for tests: a head without cores here, and a raylet on each of some separated machines."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from tests.machines import separated
from tests.machines.separated import Separated

RAY = [sys.executable, "-m", "ray.scripts.scripts"]
NOTHING: Mapping[str, str] = MappingProxyType({})
_SMALL = ["--object-store-memory=80000000", "--disable-usage-stats"]


def missing() -> str:
    """Why there can't be such a cluster here; empty where there can."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed (pip install ray)"
    return separated.missing()


def no_jobs() -> str:
    """Why a cluster takes no jobs here; empty where it does."""
    lacks = importlib.util.find_spec("ray") is not None and importlib.util.find_spec("aiohttp_cors") is None
    return "Ray's dashboard, which takes jobs, is not installed (pip install 'ray[default]')" if lacks else missing()


class Cluster:
    """Some machines that Ray gives."""

    kind = "ray"

    def __init__(self, machines: Separated, *, lean: bool = False, data: Path | None = None) -> None:
        """Nothing runs yet. Where Ray's dashboard is installed it takes jobs, at the address `jobs`.

        A `lean` one takes no jobs and passes on no output of actors, and so starts with half as many processes. Each
        machine has its datasets in its own folder below `data`, which has the machine's name.
        """
        self._data = data
        port = 30000 + os.getpid() % 1000
        self.jobs = "" if lean or no_jobs() else f"http://127.0.0.1:{port}"
        self._small = [*_SMALL, "--include-log-monitor=false"] if lean else _SMALL
        self._dashboard = ["--dashboard-host=127.0.0.1", f"--dashboard-port={port}"]
        self._dashboard.append(f"--dashboard-agent-listen-port={port + 1000}")
        if not self.jobs:
            self._dashboard = ["--include-dashboard=false"]
        self.machines = machines
        self.folder = Path(tempfile.mkdtemp(prefix="r", dir="/var/tmp"))  # sockets in it have short names
        self.port = 20000 + os.getpid() % 10000
        self.address = f"{machines.here}:{self.port}"

    def __enter__(self) -> Cluster:
        """Start it."""
        try:
            head = ["--head", f"--node-ip-address={self.machines.here}", f"--port={self.port}", "--num-cpus=0"]
            self._ray("start", *head, *self._dashboard, f"--temp-dir={self.folder}", *self._small)
            with ThreadPoolExecutor() as pool:
                list(pool.map(self.boot, self.machines.names))
        except BaseException:
            self.__exit__()
            raise
        return self

    def boot(self, name: str) -> None:
        """Start the raylet of a machine."""
        number = self.machines.names.index(name)
        at = [f"--address={self.address}", f"--node-ip-address={self.machines.address(number)}", "--num-cpus=2"]
        at.append("--resources=" + json.dumps({f"place-{number}": 1}))
        own = {} if self._data is None else {"NETDFL_DATA": str(self._data / name)}
        self._ray("start", *at, "--temp-dir=/tmp/ray", *self._small, through=self.machines.through(name), own=own)

    def __exit__(self, *_: object) -> None:
        """End all of it."""
        for name in self.machines.names:
            self.machines.kill(name)
        self._kill_head()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill_head(self) -> None:
        """Kill what names this cluster's folder or address: `ray stop` would kill every cluster of this machine."""
        for found in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                command = found.read_bytes().decode(errors="replace")
                if (str(self.folder) in command or self.address in command) and "ray" in command:
                    os.kill(int(found.parent.name), signal.SIGKILL)

    def left(self) -> list[str]:
        """Every process that still names this cluster, in its command or its environment, and its folder."""
        found = [str(self.folder)] if self.folder.exists() else []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                named = any(each.encode() in told for each in (str(self.folder), self.address))
                if named and state != "Z" and int(process.name) != os.getpid():
                    found.append(f"{process.name}: {told[:200]!r}")
        return found

    def _ray(self, *arguments: str, through: list[str] | None = None, own: Mapping[str, str] = NOTHING) -> None:
        command = [*(through or []), *RAY, *arguments]
        none = {"RAY_prestart_worker_first_driver": "0"}  # or there is one a core for nothing
        environment = (
            os.environ | none | {"RAY_AUTH_MODE": "disabled"} | own
        )  # a token of this user's is none of theirs
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
