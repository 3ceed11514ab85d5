"""The search for what an ended run left behind: processes, sockets, threads, and network devices of this machine."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

MARK = "NETDFL_TEST_MARK"
"""The name of an environment variable whose value identifies the processes that a test started."""
MOST_S = 10.0
"""The most seconds that a process or other resource of an ended run may take to disappear."""

GRPCS = "_poll_wrapper"
SOCKETS_OF_POLLING = 2

Found = Mapping[str, set[str]]
Look = Callable[[], Found]

_DOCKERS = re.compile(r"docker0|br-[0-9a-f]{12}|veth[0-9a-f]{7}")


def left_over(look: Look, before: Found, most_s: float = MOST_S) -> dict[str, set[str]]:
    """Return, by kind, the resources (such as processes) that `look` returns now and that are not in `before`.

    It calls `look` repeatedly until there are none, for at most `most_s` seconds.
    """
    until = time.monotonic() + most_s
    while left := _new(look(), before):
        if time.monotonic() > until:
            return left | {what: {_named(pid) for pid in left[what]} for what in left.keys() & {"processes"}}
        time.sleep(0.05)
    return left


def _named(pid: str) -> str:
    """Return the process id `pid` as text with the process's command line, if the process still exists."""
    try:
        return f"{pid}: {Path('/proc', pid, 'cmdline').read_bytes().replace(bytes(1), b' ').decode(errors='replace')}"
    except OSError:
        return pid


def _new(now: Found, before: Found) -> dict[str, set[str]]:
    new = {what: found - before.get(what, set()) for what, found in now.items()}
    return {what: found for what, found in new.items() if found}


def marked(mark: str) -> set[int]:
    """Return the ids of processes that have the environment variable `MARK` set to `mark`, which children inherit."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.add(int(path.name))
        except OSError:
            continue
    return found


def network() -> dict[str, set[str]]:
    """Return the devices, named namespaces and routes of this machine's network, except Docker's."""
    named = Path("/run/netns")
    return {
        "devices": {name for name in os.listdir("/sys/class/net") if not _DOCKERS.match(name)},
        "named namespaces": set(os.listdir(named)) if named.is_dir() else set(),
        "routes": {line for line in Path("/proc/net/route").read_text().splitlines() if not _DOCKERS.match(line)},
    }


def containers() -> dict[str, set[str]]:
    """Return the names of Docker containers and networks that runs of fleets created, found by their common label."""
    labelled = ["--filter", "label=netdfl.launcher", "--format"]
    listed = {
        "containers": ["docker", "ps", "--all", *labelled, "{{.Names}}"],
        "networks": ["docker", "network", "ls", *labelled, "{{.Name}}"],
    }
    return {
        what: set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
        for what, command in listed.items()
    }


def own() -> dict[str, set[str]]:
    """Return the threads and sockets of this process, except a polling thread that gRPC keeps, and its sockets."""
    names = [each.name for each in threading.enumerate()]
    polling = [name for name in names if GRPCS in name]
    sockets = sum(name.startswith("socket:") for name in _open_files())
    return {
        "threads": {*names} - {*polling[:1]},
        "sockets": {f"one more than {number}" for number in range(sockets - SOCKETS_OF_POLLING * len(polling))},
    }


def _open_files() -> set[str]:
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.add(os.readlink(path))
        except OSError:
            continue
    return found
