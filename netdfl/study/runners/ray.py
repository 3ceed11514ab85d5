"""The runner of a Ray cluster: each run is a task, which Ray places where there is room for it.

The driver of the cluster is a separate process, which dies with the study; Ray then ends every task. A run whose worker
or machine died is made again on another machine. Scenarios, data and the files of run directories go through Ray's
object store, as machines share no disk.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

from typing_extensions import override
from xxhash import xxh3_128_hexdigest

from netdfl.core.errors import InputError, NetdflError, RunError
from netdfl.core.files import empty_folder, write_whole, writing
from netdfl.core.installing import pip_install
from netdfl.core.process import die_with_parent
from netdfl.host.plan import NAMED, SCENARIO, carried_modules, pack, renamed
from netdfl.record.directory import LOCK, hold
from netdfl.record.plain_json import dump_json
from netdfl.record.provenance import PROVENANCE
from netdfl.scenario.loading.document import parse
from netdfl.scenario.loading.resolved import plain_to_yaml
from netdfl.scenario.loading.sources import named_files
from netdfl.scenario.model.plugins import ORIGIN, origin_form
from netdfl.scenario.model.schema import Scenario
from netdfl.study.runners.base import BROKE, UNUSABLE, CellOrder, StudyOrder, path_beside
from netdfl.study.runners.local import ProcessRunner
from netdfl.study.runners.on_ray import (
    ArchivePart,
    PackedRun,
    RunBegin,
    RunDeath,
    RunEnd,
    RunState,
    make_run,
    pack_data,
)

TRIES = 3
"""The most times that a run is begun, if its worker dies each time."""
LEAVE_S = 5.0
"""The time in s that canceled tasks get to remove their folders when the study is interrupted."""


class RayRunner(ProcessRunner):
    """A runner that makes runs as tasks of the Ray cluster at RAY_ADDRESS, or of the cluster of this machine.

    Without either, it starts a Ray of its own on this machine.
    """

    module = "netdfl.study.runners.ray"

    @override
    def start(self, order: StudyOrder) -> None:
        if importlib.util.find_spec("ray") is None:
            raise InputError(f"--runner ray: Ray is not installed: {pip_install('netdfl[ray]')}")
        super().start(order)


def main() -> None:
    """Act as the driver of the Ray cluster: make the runs that the order on stdin lists."""
    die_with_parent(int(sys.argv[1]))
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for what Ray says
    text = sys.stdin.read()
    if not text:  # who ordered died before
        return
    try:
        with _cluster():
            for path, code in RayStudy(StudyOrder.of_json(text)).run():
                print(json.dumps([str(path), code]), file=lines, flush=True)
    except NetdflError as error:
        print(json.dumps({"broke": str(error)}), file=lines, flush=True)


@contextmanager
def _cluster() -> Iterator[None]:
    ray = _ray("")
    try:
        ray.init(logging_level="error", log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RunError(f"--runner ray: no cluster at {os.environ.get('RAY_ADDRESS')}: {error}") from error
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ray.shutdown()


@dataclass
class _RunTask:
    """A run that was given to Ray.

    Attributes:
        cell: the order for the run.
        scenario: the scenario of the run.
        tried: the machines on which the run was begun, by Ray's id of the node.
        num_tries: the number of times that the run was begun.
        archive: the part of the run's directory that has arrived.
    """

    cell: CellOrder
    scenario: Scenario
    tried: dict[str, str] = field(default_factory=dict)
    num_tries: int = 0
    archive: IO[bytes] | None = None
    held: ExitStack = field(default_factory=ExitStack)
    """The lock of the run directory, held from the start of the run to its end."""


class RayStudy:
    """The runs of one study's order, which are made on a Ray cluster."""

    def __init__(self, order: StudyOrder) -> None:
        """Prepare the runs of `order`; no task is given to Ray yet."""
        self._order = order
        self._under_way: dict[Any, _RunTask] = {}
        self._data: dict[str, list[Any]] = {}

    def run(self) -> Iterator[tuple[Path, int | None]]:
        """Make the runs, and yield the directory and exit code of each that has ended.

        Raises RunError on a full disk.
        """
        with writing(self._order.cells[0].path.parent, RunError, "; runs that have ended are kept"):
            try:
                yield from self._run()
            finally:
                self._leave()

    def _run(self) -> Iterator[tuple[Path, int | None]]:
        waiting, most = list(self._order.cells), self._order.jobs or len(self._order.cells)
        while waiting or self._under_way:
            while waiting and len(self._under_way) < most:
                cell = waiting.pop(0)
                if self._order.is_late(cell):
                    yield cell.path, None
                else:
                    self._send(_RunTask(cell, cell.load()))
            if self._under_way:
                ready, _ = _ray("").wait(list(self._under_way), num_returns=1)
                for stream in ready:
                    yield from self._hear(stream)

    def _send(self, sent: _RunTask) -> None:
        needs = self._order.needs
        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "memory": needs.memory_nbytes}
        cell, data = sent.cell, self._data_of(sent.scenario)
        packed = PackedRun(pack(sent.scenario), cell.world, self._order.manner, data, cell.work, cell.argument)
        task = _ray("").remote(make_run).options(
            num_returns="streaming", max_retries=0, **_elsewhere(sent.tried, needs.cpus), **options
        )  # fmt: skip
        sent.num_tries += 1
        self._under_way[task.remote(packed)] = sent

    def _data_of(self, scenario: Scenario) -> dict[str, list[Any]]:
        """Return references to the dataset of a scenario, if this machine has it.

        It is put into the object store once.
        """
        name = getattr(getattr(scenario.task, "dataset", None), "kind", "")
        if name and name not in self._data:
            archive = pack_data(name)
            self._data[name] = [] if archive is None else [_ray("").put(archive)]
        return {name: self._data[name]} if self._data.get(name) else {}

    def _hear(self, stream: Any) -> Iterator[tuple[Path, int]]:
        """Handle the next message in a run's `stream`; yield the run's directory and exit code if it has ended."""
        sent = self._under_way[stream]
        match _next(stream):
            case RunBegin(node, machine):
                sent.tried[node] = machine
                if refused := _begin(sent):
                    _ray("").cancel(stream)
                    yield self._end(stream, UNUSABLE, refused)
            case RunState(status):
                write_whole(sent.cell.path / "fleet.json", status.encode())
            case ArchivePart(data):
                assert sent.archive is not None
                with writing(sent.cell.path, RunError):
                    sent.archive.write(data)
            case RunEnd(code, log, folder):
                _take(sent, folder)
                yield self._end(stream, code, log)
            case RunDeath(why):
                on = ", ".join(sent.tried.values()) or "no machine"
                if sent.num_tries < TRIES:
                    del self._under_way[stream]
                    sent.held.close()
                    self._send(sent)
                else:
                    yield self._end(stream, BROKE, f"begun {sent.num_tries} times, on {on}; the last time: {why}")

    def _end(self, stream: Any, code: int, log: str) -> tuple[Path, int]:
        sent = self._under_way.pop(stream)
        sent.held.close()
        with writing(sent.cell.path, RunError):
            path_beside(sent.cell.path, "log").write_text(log, encoding="utf-8")
            path_beside(sent.cell.path, "exit").write_text(f"{code}\n", encoding="utf-8")
        return sent.cell.path, code

    def _leave(self) -> None:
        """Cancel the tasks under way, and wait up to `LEAVE_S` seconds until they have ended."""
        for stream, sent in self._under_way.items():
            with suppress(Exception):
                _ray("").cancel(stream)
            with suppress(OSError):  # a file whose last part finds no room
                sent.held.close()
            if not (sent.cell.path / "result.json").exists():
                shutil.rmtree(sent.cell.path, ignore_errors=True)
        until = time.monotonic() + LEAVE_S
        while self._under_way and (left_s := until - time.monotonic()) > 0:
            ready, _ = _ray("").wait(list(self._under_way), num_returns=1, timeout=left_s)
            for stream in ready:
                if isinstance(_next(stream), RunEnd | RunDeath):
                    del self._under_way[stream]


def _next(stream: Any) -> RunBegin | RunState | ArchivePart | RunEnd | RunDeath:
    """Return the next message in a run's `stream`; if Ray reports that the run's task died, a `RunDeath`."""
    try:
        return _ray("").get(next(stream))  # type: ignore[no-any-return]
    except StopIteration:
        return RunDeath("its task ended without its end")
    except _ray(".exceptions").RayError as error:
        return RunDeath(str(error).strip().rpartition("\n")[2])


def _begin(sent: _RunTask) -> str:
    """Lock the run directory and empty it; return the reason if that is not possible, else an empty text."""
    path = sent.cell.path
    path_beside(path, "exit").unlink(missing_ok=True)
    with writing(path, RunError):
        path.mkdir(parents=True, exist_ok=True)
        try:
            sent.held.enter_context(hold(path))
        except InputError as error:
            return str(error)
        empty_folder(path, [LOCK])
        sent.archive = sent.held.enter_context(tempfile.TemporaryFile(dir=path.parent))
    return ""


def _take(sent: _RunTask, folder: str) -> None:
    """Unpack the run's directory, which was sent by another machine.

    Paths below `folder`, on that machine, are replaced by paths on this one.
    """
    assert sent.archive is not None
    path, scenario = sent.cell.path, sent.scenario
    with writing(path, RunError):
        sent.archive.seek(0)
        if sent.archive.read(1):
            sent.archive.seek(0)
            with tarfile.open(fileobj=sent.archive) as tar:
                tar.extractall(path, filter="data")
        if (path / PROVENANCE).exists():
            _name_as_here(path, scenario, folder)


def _name_as_here(path: Path, scenario: Scenario, folder: str) -> None:
    """Replace paths below `folder` in the run's files by paths on this machine, so that it can be replayed here."""
    text = (path / SCENARIO).read_text(encoding="utf-8")
    here = {f"{folder}/{NAMED}/{each}-{file.name}": str(file) for each, file in enumerate(named_files(scenario))}
    text = plain_to_yaml(renamed(parse(text, str(path / SCENARIO)).data, here))
    write_whole(path / SCENARIO, text.encode())
    modules = {f"{folder}/{name}": str(file) for name, file in carried_modules(scenario).items()}
    made = json.loads((path / PROVENANCE).read_text(encoding="utf-8"))
    made["scenario"] = xxh3_128_hexdigest(text.encode())
    made["files"] = {here.get(name, name): digest for name, digest in made.get("files", {}).items()}
    made["modules"] = {modules.get(name, name): digest for name, digest in made["modules"].items()}
    for name, value in ((PROVENANCE, made), (ORIGIN, origin_form(scenario.folder))):
        write_whole(path / name, (dump_json(value, indent=1) + "\n").encode())


def _elsewhere(tried: dict[str, str], cpus: int) -> dict[str, Any]:
    """Return Ray's options for the placement of a task, which needs `cpus` cores.

    It is spread over machines with room; after a death, a machine is preferred on which it was not `tried`.
    """
    if not tried:
        return {"scheduling_strategy": "SPREAD"}
    others = [
        node["NodeID"]
        for node in _ray("").nodes()
        if node["Alive"] and node["NodeID"] not in tried and node["Resources"].get("CPU", 0) >= cpus
    ]
    place = _ray(".util.scheduling_strategies").NodeAffinitySchedulingStrategy
    return {"scheduling_strategy": place(others[0], soft=True)} if others else {}


@cache
def _ray(name: str) -> Any:
    """Import the module of Ray whose name is `ray` followed by `name`.

    It is imported only here, as Ray is not always installed.
    """
    return importlib.import_module(f"ray{name}")


if __name__ == "__main__":
    main()
