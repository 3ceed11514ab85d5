"""Commands and fork servers that begin with everything imported, each forked from one process that did so once.

Most of what a small run costs, as a command or in processes, is the import of torch. For a user that is once a run;
here it would be hundreds of times. What takes the place of `sys.executable` is a real process, with its own pid, pipes,
exit code and signals, in front of a fork that does what it is asked to. What can't be had so is run as usual: other
than modules and scripts, among other processes or users, or with other settings of Python and of threads in the
environment.
Who kills it knows only by the end of its output that what it stood for has ended too.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import cast
from unittest import mock

from netdfl.worlds.fork_client import ENVIRONMENT, ONE_THREAD, ForkServer
from tests.warm_client import place

ROOT = Path(__file__).resolve().parent.parent
POSSIBLE = sys.platform == "linux"


def warm_python() -> str:
    """What takes the place of `sys.executable`; `python` and `netdfl` lie in its folder."""
    return (_OWN[-1] if _OWN else own_of_this_process()).python if POSSIBLE else sys.executable


@contextmanager
def all_warm() -> Iterator[None]:
    """Have all that is started come from a source of its own, which has the environment of now."""
    with own_source(), mock.patch.object(sys, "executable", warm_python()):
        yield


@contextmanager
def own_source() -> Iterator[None]:
    """Have fork servers, and `warm_python`, come from a source of their own, which has the environment of now."""
    own = Source()
    _OWN.append(own)
    if POSSIBLE:
        own.start()  # or a test that looks for what a fleet leaves would find it
    try:
        with warm_fork_servers(own):
            yield
    finally:
        _OWN.remove(own)
        own.close()


@contextmanager
def warm_fork_servers(source: Source) -> Iterator[None]:
    """Have `ForkServer.open` give warm ones."""
    cold = ForkServer.open

    def warm(through: Sequence[str] = ()) -> ForkServer:
        return ForkServer(source.fork_server()) if POSSIBLE and not through else cold(through)

    with mock.patch.object(ForkServer, "open", side_effect=warm):
        yield


class Source:
    """The process that they come from, as tests see it; it starts when it is first asked for something."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._folder: Path | None = None
        self._starting = Lock()

    def start(self) -> None:
        """Start it now."""
        self._started()

    @property
    def python(self) -> str:
        """The path of what takes the place of `sys.executable`."""
        return str(self._started() / "python")

    def fork_server(self) -> subprocess.Popen[bytes]:
        """A new fork server, with pipes to its input and from its output."""
        wanted = {
            "words": ["-m", "netdfl.worlds.forkserver"],
            "environment": {**ENVIRONMENT, **os.environ, **ONE_THREAD},
            "directory": os.getcwd(),
            "place": place(),
            "asks": os.getpid(),
            "ignored": [],
            "parent": os.getpid(),
        }
        way = socket.socket(socket.AF_UNIX)
        way.connect(str(self._started() / "door"))
        its_input, stdin = os.pipe()
        stdout, its_output = os.pipe()
        socket.send_fds(way, [json.dumps(wanted).encode() + b"\n"], [its_input, its_output, 2])
        os.close(its_input)
        os.close(its_output)
        return cast("subprocess.Popen[bytes]", _Process(way, stdin, stdout))

    def close(self) -> None:
        """End it, and all that was forked from it."""
        if self._folder is not None:
            self._its.kill()
            self._its.wait()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _started(self) -> Path:
        with self._starting:
            if self._folder is None:
                self._folder = self._start(Path(tempfile.mkdtemp(prefix="netdfl-warm-", dir="/var/tmp")))
        return self._folder

    def _start(self, folder: Path) -> Path:
        client = [sys.executable, "-IS", str(ROOT / "tests" / "warm_client.py"), str(folder / "door"), sys.executable]
        for name, words in (("python", client), ("netdfl", [*client, "-m", "netdfl"])):
            (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (folder / name).chmod(0o755)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(folder / "door"))
            door.listen(100)
            told = [str(door.fileno()), str(os.getpid()), str(folder / "python")]
            self._its = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_python", *told],
                cwd=ROOT,
                pass_fds=[door.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        while not Path(f"/proc/{self._its.pid}/environ").read_bytes():
            time.sleep(0.001)  # Popen returns a moment before the mark in it can be read
        return folder


_OWN: list[Source] = []
"""Those of `own_source` that there are now."""


@cache
def own_of_this_process() -> Source:
    """The one of this process."""
    found = Source()
    atexit.register(found.close)
    return found


class _Process:
    """What a `ForkServer` asks of its process; `way` is readable once that has ended."""

    def __init__(self, way: socket.socket, stdin: int, stdout: int) -> None:
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb", 0)
        self._way = way

    def kill(self) -> None:
        """End it, if it has not ended."""
        with suppress(OSError):
            self._way.shutdown(socket.SHUT_WR)

    def wait(self, timeout: float | None = None) -> None:
        """Return once it has ended. Raises TimeoutExpired."""
        if self._way.fileno() < 0:
            return
        look = select.poll()
        look.register(self._way, select.POLLIN)
        if not look.poll(None if timeout is None else 1000 * timeout):
            raise subprocess.TimeoutExpired("fork server", timeout or 0)
        self._way.close()
