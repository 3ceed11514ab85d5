"""A browser for the tests: Debian's Chromium, installed where CI runs as root and has none.

`python -m tests.chromium REPORT` installs one, and writes into REPORT what went wrong, or nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import debian

REPORT = "NETDFL_CHROMIUM_REPORT"
"""Names the file in which the run of all tests says whether a browser is ready."""
MOST_S = 240
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """The path of a browser; skips the test where there is none. Waits for what `main` prepares."""
    report = os.environ.get(REPORT)
    until = time.monotonic() + MOST_S
    while report and not Path(report).exists() and time.monotonic() < until:
        time.sleep(0.5)
    path = _found()
    if path is None:
        said = Path(report).read_text(encoding="utf-8") if report and Path(report).exists() else ""
        pytest.skip(said or "there is no chromium: apt-get install chromium")
    return path


def _found() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def install() -> str:
    """Install what is missing from Debian's packages, where this is CI's machine; returns what went wrong."""
    if _found() is not None:
        return ""
    if not os.environ.get("CI"):
        return "there is no chromium: apt-get install chromium"
    return "" if debian.install(debian.BROWSER, MOST_S) and _found() is not None else "chromium could not be installed"


def main(report: Path) -> None:
    """Install, and report."""
    try:
        said = install()
    except (OSError, subprocess.SubprocessError) as error:
        said = f"chromium could not be installed: {error}"
    written = report.with_suffix(".new")
    written.write_text(said, encoding="utf-8")
    written.rename(report)
    print(f"== Chromium: {said or 'ready'}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
