"""One run of a study on a machine of a Ray cluster: made there in a folder of its own, and sent back whole.

The machine shares no disk with the machine that asks for the run. Scenario, modules and data come with the order.
Messages go back as they arise: that the run has begun, its state, and in the end its directory, in parts.
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
    """A run with everything that it needs on another machine.

    Attributes:
        files: the contents of the scenario and its files, by name.
        world: the kind of world.
        manner: the options of the run.
        data: references to archives of datasets in Ray's object store, by name. Each is inside a list, so that Ray
            passes on the reference itself, and only a machine without the data fetches them.
        work: a function to call in place of the run, as in `CellOrder`.
        argument: a text for that function.
    """

    files: Mapping[str, bytes]
    world: str
    manner: Manner
    data: Mapping[str, list[Any]] = field(default_factory=dict)
    work: str = ""
    argument: str = ""


@dataclass(frozen=True)
class RunBegin:
    """The message that a run has begun: Ray's id of the node, and the name of the machine."""

    node: str
    machine: str


@dataclass(frozen=True)
class RunState:
    """The message with the present state of a run's nodes: the contents of its `fleet.json`."""

    status: str


@dataclass(frozen=True)
class ArchivePart:
    """A message with a part of the archive of the run's directory."""

    data: bytes


@dataclass(frozen=True)
class RunEnd:
    """The message that a run has ended, after all parts of its archive.

    Attributes:
        code: the exit code.
        log: the contents of the log.
        folder: the folder of the scenario on the other machine.
    """

    code: int
    log: str
    folder: str


@dataclass(frozen=True)
class RunDeath:
    """The message about a run that could not report its end: its process was killed, or the disk is full."""

    why: str


RunMessage: TypeAlias = RunBegin | RunState | ArchivePart | RunEnd | RunDeath


def make_run(packed: PackedRun) -> Iterator[RunMessage]:
    """Make the run on this machine; yield messages about its progress, its directory and its end."""
    ray: Any = importlib.import_module("ray")
    yield RunBegin(ray.get_runtime_context().get_node_id(), socket.gethostname())
    for name, reference in packed.data.items():
        settle(name, lambda of=reference: ray.get(of[0]))
    yield from make_here(packed)


def make_here(packed: PackedRun) -> Iterator[RunMessage]:
    """Make the run in a folder of its own, which is removed in every case; yield messages about it."""
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
    """Yield the state of a run's nodes from time to time, when it has changed, until the run's `process` has ended.

    The run writes the state to `file`.
    """
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
    """Yield a new folder of this process, removed at the end; remove folders of processes that were killed.

    The folder gets its final name only when it is locked, so that no other process takes it for an abandoned one.
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
    """Return the archive of a dataset that was fetched on this machine; None if it was not, or needs no fetching."""
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
    """Unpack the dataset `name` into this machine's data folder, unless it is there already.

    Of several processes, the first unpacks it for all. The function `archive` returns the archive that `pack_data`
    made.
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
    """Hold the lock of a folder inside the context, after waiting until no other process holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _recipes() -> Mapping[str, Any]:
    return importlib.import_module("netdfl.training.data.fetch").RECIPES  # type: ignore[no-any-return]
