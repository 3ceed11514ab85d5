"""A shell on a separated machine, as a person has one by ssh: files go there and back through its two pipes alone."""

from __future__ import annotations

import base64
import io
import subprocess
import tarfile
from pathlib import Path

from tests.machines.separated import Separated

_END = "-- end of what this command says --"


class Shell:
    """One machine's shell. Its background jobs live as long as it does."""

    def __init__(self, machines: Separated, name: str) -> None:
        """Open it; the machine's disk is empty but for what all machines have installed."""
        command = [*machines.through(name), "sh"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, command: str) -> str:
        """What `command` says, once it has ended. Fails where it does."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f'{{ {command}\n}}; echo "{_END}$?"\n')
        self.process.stdin.flush()
        said = ""
        for line in self.process.stdout:
            if line.startswith(_END):
                assert line.strip() == f"{_END}0", f"{command}: {said}{line}"
                return said
            said += line
        raise AssertionError(f"the machine is gone: {said}")

    def put(self, file: Path, place: str) -> None:
        """Copy `file` there, readable by its owner alone."""
        data = base64.b64encode(file.read_bytes()).decode()
        self.run(f"umask 077; echo {data} | base64 -d > {place}")

    def get(self, folder: str, here: Path) -> None:
        """Copy a folder from there into `here`."""
        data = base64.b64decode(self.run(f"tar -c -C {folder} . | base64 -w 0; echo"))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(here, filter="data")

    def close(self) -> None:
        """Leave; what runs there is killed with the machine."""
        self.process.kill()
        self.process.communicate()
