"""Fork servers that begin with everything imported, each forked from one process that did so once.

A fork server spends seconds of the processor on importing torch before it forks any node. For a user that is once a
run; here it would be a hundred times. `python -m tests.warm DOOR` imports what fork servers import, and becomes a new
one for every request at the socket DOOR. From there on all is as if it had been started by `ForkServer.open`: its
session, environment, working directory, pipes, and whom it dies with.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import NoReturn, cast
from unittest import mock

from netdfl.core.orphans import die_with_parent
from netdfl.worlds.fork_client import ENVIRONMENT, ONE_THREAD, ForkServer

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 1 << 17
POSSIBLE = sys.platform == "linux"


@contextmanager
def warm_fork_servers(*, at_once: bool = False) -> Iterator[None]:
    """Have `ForkServer.open` give warm ones; what gives them starts `at_once`, or with the first of them."""
    if not POSSIBLE:
        yield
        return
    source, cold = Source(), ForkServer.open
    if at_once:
        source.start()

    def warm(through: Sequence[str] = ()) -> ForkServer:
        return cold(through) if through else ForkServer(source.process())

    try:
        with mock.patch.object(ForkServer, "open", side_effect=warm):
            yield
    finally:
        source.close()


class Source:
    """The process that they come from, as tests see it."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._door: socket.socket | None = None
        self._asking = Lock()

    def process(self) -> subprocess.Popen[bytes]:
        """A new fork server, with pipes to its input and from its output."""
        with self._asking:
            door = self._door or self.start()
            its_input, stdin = os.pipe()
            stdout, its_output = os.pipe()
            wanted = {"environment": dict(os.environ), "directory": os.getcwd()}
            socket.send_fds(door, [json.dumps(wanted).encode()], [its_input, its_output])
            os.close(its_input)
            os.close(its_output)
            _, (end,), *_ = socket.recv_fds(door, 1, 1)
        return cast("subprocess.Popen[bytes]", _Process(end, stdin, stdout))

    def close(self) -> None:
        """End it; the fork servers that it became are no longer its own."""
        if self._door is not None:
            self._door.close()
            self._its.wait()

    def start(self) -> socket.socket:
        """Have it import; returns the way to it."""
        door, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._its = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(its.fileno()), str(os.getpid())],
                cwd=ROOT,
                env={**os.environ, **ONE_THREAD},
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
        self._door = door
        return door


class _Process:
    """What a `ForkServer` asks of its process; `end` is readable once that has ended."""

    def __init__(self, end: int, stdin: int, stdout: int) -> None:
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb", 0)
        self._end = os.fdopen(end, "rb", 0)

    def kill(self) -> None:
        """End it, if it has not ended."""
        if not self._end.closed:
            signal.pidfd_send_signal(self._end.fileno(), signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> None:
        """Return once it has ended. Raises TimeoutExpired."""
        if self._end.closed:
            return
        look = select.poll()
        look.register(self._end, select.POLLIN)
        if not look.poll(None if timeout is None else 1000 * timeout):
            raise subprocess.TimeoutExpired("fork server", timeout or 0)
        self._end.close()


def main(door: socket.socket) -> None:
    """Import, and fork for every request until there are no more."""
    from netdfl.worlds import preload

    preload.warm()
    assert "grpc" not in sys.modules, "a process must not fork after grpc"
    while True:
        request, files, *_ = socket.recv_fds(door, MOST_BYTES, 2)
        _reap()
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            door.close()
            _become(files, **json.loads(request))
        for file in files:
            os.close(file)
        end = os.pidfd_open(pid)
        socket.send_fds(door, [b"."], [end])
        os.close(end)


def _reap() -> None:
    """Let go of those that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(files: list[int], environment: Mapping[str, str], directory: str) -> NoReturn:
    """Be a fork server that `ForkServer.open` started there."""
    code = 1
    try:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(directory)
        sys.path[0] = directory
        os.environ.clear()
        os.environ.update({**ENVIRONMENT, **environment, **ONE_THREAD})
        from netdfl.worlds.forkserver import main

        main()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    main(socket.socket(fileno=int(sys.argv[1])))
