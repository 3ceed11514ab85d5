"""`python -IS warm_client.py DOOR PYTHON WORDS...` stands in front of a process that does what `PYTHON WORDS...` does.

It imports little: that process is forked from the one behind DOOR (`tests.warm_python`), which has imported the rest.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

FOLLOWS = ("-m", "netdfl.study.forks")
"""Asks for its parent's pid, to die with it: the one here does, and what it stands for dies with that."""
PR_SET_PDEATHSIG = 1
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(door: str, python: str, *words: str) -> None:
    """Ask for it, pass signals on to it, and end as it ends."""
    ignored = [number for number in PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]
    if words[:2] == FOLLOWS:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    wanted = {
        "words": words,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "place": place(),
        "asks": os.getpid(),
        "ignored": ignored,
        "parent": os.getppid(),
    }
    with socket.socket(socket.AF_UNIX) as way:
        try:
            way.connect(door)
        except OSError:
            os.execv(python, [python, *words])
        socket.send_fds(way, [json.dumps(wanted).encode() + b"\n"], [0, 1, 2])
        for number in PASSED_ON:  # those ignored here too: what it stands for may listen to them again
            signal.signal(number, lambda got, _: way.sendall(bytes([got])))
        answer = way.recv(16)
    if not answer or answer == b"cold":
        for number in PASSED_ON:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        os.execv(python, [python, *words])
    code = int(answer)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def place() -> list[object]:
    """Who this process is, and what the numbers of processes and of users mean there."""
    return [os.getuid(), *(os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "user"))]


if __name__ == "__main__":
    main(*sys.argv[1:])
