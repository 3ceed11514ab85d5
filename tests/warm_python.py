"""What commands of netdfl and fork servers are forked from: a process that has imported torch, and nobody's threads.

`python -m tests.warm_python DOOR PARENT PYTHON` becomes what is asked for at the socket DOOR, each time in a new fork:
its words, environment, working directory and pipes are those of the request, and it calls PYTHON what it starts itself.
Between it and who asked stays another fork, which passes signals on, tells how it ended, and ends it when nobody asks
any more. What is asked for from a machine of its own, with its files, network, name and clock, goes there.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from netdfl.core import process
from netdfl.testing.leftovers import MARK
from tests.warm_client import place

MODULES = ("netdfl.study.resumable", "netdfl.cli.commands", "netdfl.report.html", "duckdb")
FOR_THE_START = ("PYTHON", "OPENBLAS_", "ATEN_", "TORCH_", "DNNL_", "LD_", "MALLOC_", MARK)
MACHINE = {"mnt": 0x00020000, "net": 0x40000000, "uts": 0x04000000, "time": 0x00000080}
"""The namespaces that make a machine, and what `setns` calls them."""
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
Work = Callable[[], object]


def serve(door: socket.socket, parent: int) -> Work:
    """Import, and fork for whoever comes, until `parent` ends. Returns in a fork alone, with what it is to do.

    The kernel would tell of the end of the thread that started this process, which may be one of a test's.
    """
    from netdfl.worlds import preload

    preload.warm()
    for name in MODULES:
        importlib.import_module(name)
    assert "grpc" not in sys.modules, "a process must not fork after grpc"
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    its_end = os.pidfd_open(parent)
    while True:
        if its_end in select.select([door, its_end], [], [])[0]:
            os._exit(0)
        way, _ = door.accept()
        if os.fork() == 0:
            door.close()
            os.close(its_end)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _attend(way)
        way.close()


def _attend(way: socket.socket) -> Work:
    """Fork what is asked for, and stay between it and who asked, until one of them ends."""
    data, files, *_ = socket.recv_fds(way, 1 << 16, 3)
    while not data.endswith(b"\n"):
        if not (more := way.recv(1 << 16)):
            os._exit(0)  # who asked is gone
        data += more
    wanted: dict[str, Any] = json.loads(data)
    if wanted.pop("place") != place() or not _can(wanted["words"], wanted["environment"]):
        way.sendall(b"cold")
        os._exit(0)
    asks = wanted.pop("asks")
    pid = os.fork()
    if pid == 0:
        way.close()
        process.follow_parent()
        _go_to(asks)
        return _become(files, **wanted)
    for file in files:
        os.close(file)
    end = os.pidfd_open(pid)
    while end not in (ready := select.select([way, end], [], [])[0]):
        assert ready
        for number in way.recv(16) or [signal.SIGKILL]:
            signal.pidfd_send_signal(end, number)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        way.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _can(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a fork of this process can be what such a command would be."""

    def settings(of: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in of.items() if key.startswith(FOR_THE_START) and key != "PYTHONPATH"}

    started = words[:1] == ["-m"] or (bool(words) and not words[0].startswith("-"))
    one_thread = all(environment.get(key, "1") == "1" for key in ONE_THREAD)
    return started and one_thread and settings(environment) == settings(os.environ)


def _go_to(asks: int) -> None:
    """Enter the machine of the process that asked, if it is another than this one's."""
    away = [kind for kind in MACHINE if os.readlink(f"/proc/{asks}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")]
    if away:
        its = os.pidfd_open(asks)
        if ctypes.CDLL(None, use_errno=True).setns(its, sum(MACHINE[kind] for kind in away)):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(its)


def _become(
    files: Sequence[int],
    words: Sequence[str],
    environment: Mapping[str, str],
    directory: str,
    ignored: Sequence[int],
    parent: int,
) -> Work:
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)
    follow = process.die_with_parent
    process.die_with_parent = lambda of: follow(os.getppid() if of == parent else of)
    os.chdir(directory)
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [each for each in sys.path[1:] if each not in own]
    os.environ.clear()
    os.environ.update(environment)
    asked = [os.path.abspath(each) for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    module = words[1] if words[0] == "-m" else ""
    sys.argv = list(words[1:] if module else words)
    sys.path[:] = [directory if module else str(Path(words[0]).resolve().parent), *asked, *kept]
    warnings.filterwarnings("ignore", module="runpy")
    if module:
        return lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)
    return lambda: runpy.run_path(words[0], run_name="__main__")


def _do(work: Work) -> None:
    """Work, and end as Python does, but for taking down what it has loaded."""
    atexit.register(gc.unfreeze)
    code: int | str | None = 0
    try:
        work()
    except SystemExit as ended:
        code = ended.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    fileno, its_parent, sys.executable = sys.argv[1:]
    _do(serve(socket.socket(fileno=int(fileno)), int(its_parent)))
