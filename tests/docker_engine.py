"""An engine of Docker for the tests: installed from Debian's packages and started, where CI runs as root and has none.

`python -m tests.docker_engine REPORT` prepares one and the image of a node, and writes into REPORT what went wrong, or
nothing. At the end of its input it ends the engine that it started.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from netdfl.core.errors import NetdflError
from netdfl.scenario.load import loads
from netdfl.worlds.containers.docker import Docker
from netdfl.worlds.containers.image import image_for
from tests import debian

REPORT = "NETDFL_DOCKER_REPORT"
"""Names the file in which the run of all tests says whether Docker is ready."""
MOST_S = 900
SMALL = """
schema: netdfl/1
name: image
nodes: 2
rounds: 1
world: containers
task: consensus
algorithm: dpsgd
topology: ring
"""
"""What the image is for that all tests need. One with PyTorch takes minutes more; the soaks that need it make it."""


def missing() -> str:
    """Why there is no Docker to test with; empty where there is. Waits for what `main` prepares."""
    report = os.environ.get(REPORT)
    if report:
        until = time.monotonic() + MOST_S
        while not Path(report).exists() and time.monotonic() < until:
            time.sleep(0.5)
        return Path(report).read_text(encoding="utf-8") if Path(report).exists() else "Docker was not ready in time"
    return _lacks()


def main(report: Path) -> None:
    """Prepare, report, and stay until the input ends."""
    engine = None
    try:
        if _lacks() and os.geteuid() == 0:
            debian.install(debian.DOCKER)
            engine = start()
        said = _lacks() or _build()
    except (OSError, subprocess.SubprocessError) as error:
        said = f"no engine of Docker can be had: {error}"
    written = report.with_suffix(".new")
    written.write_text(said, encoding="utf-8")
    written.rename(report)
    print(f"== Docker: {said or 'ready'}", flush=True)
    sys.stdin.read()
    if engine is not None:
        engine.terminate()
        engine.wait(30)


def start() -> subprocess.Popen[bytes] | None:
    """Start an engine and wait until it answers; None where there is none."""
    if shutil.which("dockerd") is None:
        return None
    log = Path(os.environ.get("TMPDIR", "/tmp"), "netdfl-dockerd.log").open("wb")
    engine = subprocess.Popen(["nice", "dockerd"], stdout=log, stderr=log, start_new_session=True)
    until = time.monotonic() + 60
    while _lacks() and engine.poll() is None and time.monotonic() < until:
        time.sleep(0.5)
    return engine


def _lacks() -> str:
    try:
        asyncio.run(Docker.find())
    except NetdflError as error:
        return str(error)
    return ""


def _build() -> str:
    try:
        asyncio.run(image_for(loads(SMALL, file="image.yaml"), print))
    except NetdflError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
