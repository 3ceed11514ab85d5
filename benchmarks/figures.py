"""What every benchmark prints: its rows as JSON on stdout; the machine, the versions and the runs on stderr.

Work in the background (`netdfl claims run`) is stopped first, if a benchmark is the program, and no test that reads
one.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("netdfl", "torch", "grpcio", "numpy")
if Path(sys.argv[0]).resolve().parent == Path(__file__).resolve().parent:
    with suppress(ModuleNotFoundError):  # an older version, measured beside this one, has no work in the background
        import_module("netdfl.study.background").stop_background()
LOAD = os.getloadavg()[0]  # before the benchmark, which makes load of its own


class Row(NamedTuple):
    """One figure beside what it is compared with."""

    name: str
    value: float
    unit: str
    reference: str
    reference_value: float
    ratio: float


def show(rows: Iterable[Row], runs: str) -> None:
    """Print the rows, and beside them where they were taken and what `runs` says of how."""
    print(about(runs), file=sys.stderr)
    print(json.dumps([row._asdict() for row in rows], indent=1))


def about(runs: str) -> str:
    """The machine, its load, the versions and the runs, in one line."""
    where = (machine(), f"load {LOAD:.1f} before", f"Python {platform.python_version()}", *versions())
    return f"{', '.join(where)}; {runs}"


def machine() -> str:
    """The processor and how many cores of it there are."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{os.cpu_count()} cores of {name or platform.processor() or platform.machine()}"


def versions() -> Iterable[str]:
    """The packages that matter, where they are installed."""
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
