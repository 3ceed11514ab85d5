"""A server of runs as a user starts it, and the runs that the tests look at."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

from tests.warm import warm_python

QUIET = {"OMP_NUM_THREADS": "1", "DISPLAY": "", "WAYLAND_DISPLAY": ""}


@contextmanager
def started(*arguments: str | Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `netdfl`, and yield the address that it prints; it is ended afterwards."""
    command = [warm_python(), "-m", "netdfl", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | QUIET)
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/\S+", line):
                yield found[0], process
                return
        raise AssertionError(f"it printed no address: {lines}")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def ask(address: str, path: str = "", method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
    """One request to a server's address, or to a `path` from its root."""
    parts = urlsplit(address)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.request(
            method, path or parts.path, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def first_data(address: str) -> dict[str, object]:
    """What the events of a run's page say first: its data, or the trouble."""
    parts = urlsplit(address)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.request("GET", f"{parts.path}events")
        answer = connection.getresponse()
        for line in answer:
            name = line.decode().strip().removeprefix("event: ")
            if name in ("data", "trouble"):
                text = answer.readline().decode().removeprefix("data: ")
                return {name: json.loads(text)}
        return {}
    finally:
        connection.close()
