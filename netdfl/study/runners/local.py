"""The runner of this machine: a process that forks a process for each run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from netdfl.study.runners.base import Runner, StudyOrder

GRACE_S = 10.0
"""Time for containers to leave; all else ends at once."""


class LocalRunner(Runner):
    """Processes of this machine.

    Another process forks them: a process that has used grpc, or has threads, must not fork. It has its own session, so
    that Ctrl-C reaches this process alone, which then ends the other.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._forks: subprocess.Popen[bytes] | None = None

    @override
    def start(self, order: StudyOrder) -> None:
        self._forks = forks = subprocess.Popen(
            [sys.executable, "-m", "netdfl.study.forks", str(os.getpid())],
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
                path, code = json.loads(line)
                yield Path(path), code
        self._forks = None

    @override
    def stop(self) -> None:
        """End the process that forks runs, which ends the runs first; after the grace, kill all at once."""
        if self._forks is None:
            return
        self._forks.terminate()
        try:
            self._forks.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._forks.pid, signal.SIGKILL)
            self._forks.wait()
