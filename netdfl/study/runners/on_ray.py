"""One run of a study on a machine of a Ray cluster: made in a folder of its own there, and sent back whole.

The machine shares no disk with the one that asks. Scenario, modules and data come with the order, and what it tells
goes back as it comes: that it has begun, how far it is, and in the end its directory, in parts.
"""

from __future__ import annotations

import errno
import fcntl
import importlib
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from netdfl.host.plan import SCENARIO, unpack
from netdfl.record.directory import LOCK, hold, is_held
from netdfl.study.keeping import Manner
from netdfl.study.runners.base import BROKE, CellOrder, StudyOrder, path_beside
from netdfl.training.data.dataset import data_root

PART_NBYTES = 8 << 20
LOOK_S, TELL_S = 0.2, 2.0


@dataclass(frozen=True)
class PackedRun:
    """A run with all that it needs elsewhere: files by name, and folders of datasets by name, as references of Ray's.

    A reference stands in a list, so that Ray hands over the reference: only a machine without the data asks for them.
    """

    files: Mapping[str, bytes]
    world: str
    manner: Manner
    data: Mapping[str, list[Any]] = field(default_factory=dict)
    work: str = ""
    argument: str = ""


@dataclass(frozen=True)
class RunBegin:
    """The run has begun, on this machine (of Ray's `node`)."""

    node: str
    machine: str


@dataclass(frozen=True)
class RunState:
    """The run's present state, as its `fleet.json` has it."""

    status: str


@dataclass(frozen=True)
class ArchivePart:
    """A part of the run's directory, an archive."""

    data: bytes


@dataclass(frozen=True)
class RunEnd:
    """The run has ended, with this exit code, and all parts of it have been sent; its scenario lay in `folder`."""

    code: int
    log: str
    folder: str


@dataclass(frozen=True)
class RunDeath:
    """The death of a run that could not report its own end: its process was killed, or the disk is full."""

    why: str


RunMessage: TypeAlias = RunBegin | RunState | ArchivePart | RunEnd | RunDeath


def make_run(packed: PackedRun) -> Iterator[RunMessage]:
    """Make the run on this machine; tell how it goes, and send its directory."""
    ray: Any = importlib.import_module("ray")
    yield RunBegin(ray.get_runtime_context().get_node_id(), socket.gethostname())
    for name, reference in packed.data.items():
        settle(name, lambda of=reference: ray.get(of[0]))
    yield from make_here(packed)


def make_here(packed: PackedRun) -> Iterator[RunMessage]:
    """Make the run in a folder of its own, which is removed however this ends."""
    with own_folder() as folder:
        unpack(packed.files, folder / "scenario")
        run = folder / "runs" / "run"
        run.parent.mkdir()
        file, called = folder / "scenario" / SCENARIO, (packed.work, packed.argument)
        order = StudyOrder([CellOrder(file, (), run, packed.world, 0.0, *called)], 0, packed.manner)
        (folder / "order.json").write_text(order.to_json(), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "netdfl.study.task", str(folder / "order.json"), "0", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            yield from _states(process, run / "fleet.json")
        finally:
            process.kill()
            process.wait()
        yield from _end(process.returncode, run)


def _states(process: subprocess.Popen[bytes], file: Path) -> Iterator[RunState]:
    """Yield the run's state now and then, until the run has ended."""
    said, next_s = "", time.monotonic()
    while process.poll() is None:
        time.sleep(LOOK_S)
        if time.monotonic() >= next_s and file.exists():
            next_s = time.monotonic() + TELL_S
            if (status := file.read_text(encoding="utf-8")) != said:
                said = status
                yield RunState(status)


def _end(code: int, run: Path) -> Iterator[RunMessage]:
    log = path_beside(run, "log").read_text(encoding="utf-8", errors="replace") if run.parent.exists() else ""
    if not path_beside(run, "exit").exists():
        yield RunDeath(f"its process ended by signal {-code}" if code < 0 else f"its process ended with {code}")
    elif code == BROKE and os.strerror(errno.ENOSPC) in log:
        yield RunDeath(log.strip().rpartition("\n")[2])
    else:
        if run.exists():
            yield from _parts(run)
        yield RunEnd(code, log, str(run.parent.parent / "scenario"))


def _parts(run: Path) -> Iterator[ArchivePart]:
    archive = run.with_name("run.tar")
    with tarfile.open(archive, "w") as tar:
        for each in sorted(run.iterdir()):
            if each.name != LOCK:
                tar.add(each, each.name)
    with archive.open("rb") as file:
        while data := file.read(PART_NBYTES):
            yield ArchivePart(data)


@contextmanager
def own_folder() -> Iterator[Path]:
    """Make a folder of this process, removed at its end; remove those whose process was killed.

    It has its name only once it is locked, so that nobody takes it for one that was left.
    """
    place, mine = Path(tempfile.gettempdir()), f"netdfl-run-{os.getuid()}-"
    for left in place.glob(f"{mine}*"):
        if not is_held(left):
            shutil.rmtree(left, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix="netdfl-new-"))
    with hold(new):
        folder = new.rename(place / f"{mine}{new.name.rpartition('-')[2]}")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def pack_data(name: str) -> bytes | None:
    """Return the archive of a dataset that was fetched here; None for one that needs no fetching, or was not."""
    recipe = _recipes().get(name)
    if recipe is None or not recipe.complete(data_root() / recipe.folder):
        return None
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            for each in recipe.sha256:
                tar.add(data_root() / recipe.folder / each, each)
        file.seek(0)
        return file.read()


def settle(name: str, archive: Any) -> None:
    """Put a dataset into this machine's folder, unless it is there; the first to come does it for all.

    `archive` fetches what `pack_data` made.
    """
    recipe, root = _recipes()[name], data_root()
    root.mkdir(parents=True, exist_ok=True)
    with _alone_in(root):
        if recipe.complete(root / recipe.folder):
            return
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root) as staging:
            file = Path(staging) / "archive"
            file.write_bytes(archive())
            with tarfile.open(file) as tar:
                tar.extractall(Path(staging) / "files", filter="data")
            (root / recipe.folder).mkdir(parents=True, exist_ok=True)
            for each in recipe.sha256:
                os.replace(Path(staging) / "files" / each, root / recipe.folder / each)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is here for this folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _recipes() -> Mapping[str, Any]:
    return importlib.import_module("netdfl.training.data.fetch").RECIPES  # type: ignore[no-any-return]
