"""The runner of this machine, and the base of runners that leave their work to another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from netdfl.core.errors import RunError
from netdfl.study.runners.base import Runner, StudyOrder

GRACE_S = 10.0
"""The time in s that containers get to stop; all other runs end at once."""


class ProcessRunner(Runner):
    """A runner that leaves its work to another process, `python -m MODULE PID`, which dies with this process.

    The other process reads the order from stdin. It writes a line of JSON for each ended run, with its directory and
    exit code, or an object whose `broke` says why everything has ended. It has a session of its own, so that Ctrl-C
    reaches only this process, which then ends the other one.
    """

    module: ClassVar[str]

    def __init__(self) -> None:
        """Create the runner; its process is not started yet."""
        self._forks: subprocess.Popen[bytes] | None = None

    @override
    def start(self, order: StudyOrder) -> None:
        self._forks = forks = subprocess.Popen(
            [sys.executable, "-m", self.module, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        assert forks.stdin is not None
        forks.stdin.write(order.to_json().encode())
        forks.stdin.close()

    @override
    def ended(self) -> Iterator[tuple[Path, int | None]]:
        assert self._forks is not None
        assert self._forks.stdout is not None
        with self._forks as forks:
            assert forks.stdout is not None
            for line in forks.stdout:
                told = json.loads(line)
                if isinstance(told, dict):
                    raise RunError(told["broke"])
                yield Path(told[0]), told[1]
        self._forks = None

    @override
    def stop(self) -> None:
        """End the other process, which first ends the runs.

        If it has not ended after `GRACE_S`, kill it and its children.
        """
        if self._forks is None:
            return
        self._forks.terminate()
        try:
            self._forks.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._forks.pid, signal.SIGKILL)
            self._forks.wait()


class LocalRunner(ProcessRunner):
    """A runner that makes each run in a process of its own on this machine.

    A separate process forks these processes, because a process that has used grpc, or has threads, must not fork.
    """

    module = "netdfl.study.forks"
