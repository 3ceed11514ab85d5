"""The test bench of the conformance suite for worlds (ways to execute a fleet, such as simulation or processes).

Each test fleet runs once, for all checks of its results.

It uses only what every user has: `netdfl.run`, the command line, and run directories.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias
from unittest.mock import patch

import netdfl
from netdfl.core.types import Json, NodeId
from netdfl.record.run import Run
from netdfl.running.judged import FinishedRun
from netdfl.testing.leftovers import MARK, Found, left_over, marked, own

PATIENCE_S = 240.0
BUSY_S = 30.0
"""The most seconds that a resource of an ended run, such as a process, may take to disappear on a busy machine."""
Keys: TypeAlias = dict[str, Any]


class CommandOutput(NamedTuple):
    """A finished call of `netdfl run`: its exit code, its output as text, its run directory."""

    code: int
    text: str
    path: Path

    @property
    def result(self) -> dict[str, Any]:
        """The contents of the run's file `result.json`."""
        return netdfl.open_run(self.path).result


class RunningCommand(NamedTuple):
    """A call of `netdfl run` in a process of its own that is still running."""

    process: subprocess.Popen[str]
    path: Path

    def until_round(self, round: int) -> None:
        """Wait until every node of the run is in `round` or later."""
        process = self.process
        met = lambda: min(rounds_of(self.path), default=-1) >= round  # noqa: E731
        until(met, lambda: process.poll() is not None, process.communicate)

    def end(self, how: signal.Signals) -> CommandOutput:
        """Send a signal to the command's process only, and wait for its end."""
        self.process.send_signal(how)
        return self.wait()

    def wait(self) -> CommandOutput:
        """Wait for the end of the command."""
        text, _ = self.process.communicate(timeout=PATIENCE_S)
        return CommandOutput(self.process.returncode, text, self.path)


def kill_process(path: Path, node: NodeId) -> None:
    """Kill the process of `node`, whose process id is in `fleet.json` in the run directory `path`."""
    (pid,) = (each["pid"] for each in nodes_of(path) if each["node"] == node)
    os.kill(pid, signal.SIGKILL)


def nothing_more() -> Found:
    """Return no leftovers, for a world whose runs leave no resources beyond those that are searched for every world."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options for running test fleets in one world, a way to execute a fleet, such as a simulation or processes.

    Attributes:
        world: the section `world` of every scenario.
        on_messages: keys added to that section in scenarios whose links must lose whole messages.
        fleets_at_once: whether one process may run several fleets at a time.
        rounds_of_seconds: a number of rounds for which a fleet with small models needs some seconds in this world.
        kill: kills a node's process from outside, given the run directory and the node.
        look: returns by kind the resources that runs in this world may leave behind, such as containers.
        a_kill_leaves: the kinds of resources that a killed supervisor leaves until the next run.
    """

    world: Keys
    on_messages: Keys = field(default_factory=dict)
    fleets_at_once: bool = True
    rounds_of_seconds: int = 60
    kill: Callable[[Path, NodeId], None] = kill_process
    look: Callable[[], Found] = nothing_more
    a_kill_leaves: Collection[str] = ()


class Bench:
    """A test bench that runs fleets in one world, used as `with Bench(...) as bench`.

    `left` has the resources, such as processes, that were left behind after each group of runs.
    """

    def __init__(self, options: Options) -> None:
        """Prepare to run fleets in the world of `options`, in a new temporary folder."""
        self.options, self.world = options, dict(options.world)
        self.folder = Path(tempfile.mkdtemp(prefix="netdfl-worlds-"))
        self.left: dict[str, dict[str, set[str]]] = {}
        self._mark = uuid.uuid4().hex
        self._fleets: dict[str, Future[FinishedRun]] = {}
        self._environment = {MARK: self._mark, "TMPDIR": str(self.folder / "tmp")}

    def __enter__(self) -> Self:
        """Set an environment variable by which every process started from now on can be found."""
        (self.folder / "tmp").mkdir()
        self._outside = ExitStack()
        self._outside.enter_context(patch.dict(os.environ, self._environment))
        self._outside.enter_context(patch.object(tempfile, "tempdir", self._environment["TMPDIR"]))
        return self

    def __exit__(self, *raised: object) -> None:
        """Remove all files and processes of the runs."""
        self._outside.close()
        for pid in marked(self._mark):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    # fleets by netdfl.run

    def fleets(self, plays: Mapping[str, Keys]) -> dict[str, FinishedRun]:
        """Return the finished runs of scenarios by name; `plays` has the keys of each scenario.

        A scenario is run only by the first call that names it. The scenarios of one call run at the same time if the
        world allows several fleets in one process.
        """
        due = {name: keys for name, keys in plays.items() if name not in self._fleets}
        threads = len(due) if self.options.fleets_at_once else 1
        if due:
            with self.looking(" and ".join(due)), ThreadPoolExecutor(threads) as pool:
                self._fleets |= {name: pool.submit(self._play, name, keys) for name, keys in due.items()}
        return {name: self._fleets[name].result() for name in plays}

    @contextmanager
    def going(self, plays: Mapping[str, Keys]) -> Iterator[dict[str, Future[FinishedRun]]]:
        """Run scenarios at the same time, while the body of the `with` acts on the running fleets; yield their futures.

        `plays` has the keys of each scenario by name.
        """
        with self.looking(" and ".join(plays)), ThreadPoolExecutor(len(plays)) as pool:
            yield {name: pool.submit(self._play, name, keys) for name, keys in plays.items()}

    def _play(self, name: str, keys: Keys) -> FinishedRun:
        return netdfl.run(self.scenario(name, keys), out=self.folder / name, page=False)

    def scenario(self, name: str, keys: Keys) -> dict[str, Any]:
        """Return a scenario that runs in this bench's world, with the given name and keys."""
        return {"schema": "netdfl/1", "name": name, "world": self.world, **keys}

    # fleets by the command line

    def file(self, name: str, keys: Keys) -> Path:
        """Write a scenario that runs in this bench's world to a file; return its path."""
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(self.scenario(name, keys)), encoding="utf-8")
        return file

    def start(self, name: str, file: Path, *options: str, out: Path | None = None) -> RunningCommand:
        """Start `netdfl run` on a scenario file, with `options`; its run directory is `out`, or has the name `name`."""
        path = out or self.folder / name
        command = [sys.executable, "-m", "netdfl", "run", str(file), f"--out={path}", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return RunningCommand(process, path)

    # leftovers

    @contextmanager
    def looking(self, name: str, but_for: Collection[str] = ()) -> Iterator[None]:
        """Store in `left[name]` the resources that runs inside the `with` leave behind, except kinds in `but_for`."""

        def look() -> Found:
            return {kind: what for kind, what in self._found().items() if kind not in but_for}

        before = look()
        try:
            yield
        finally:
            self.left[name] = left_over(look, before, BUSY_S)

    def _found(self) -> Found:
        processes = {str(pid) for pid in marked(self._mark)}
        files = {path.name for path in (self.folder / "tmp").iterdir() if not path.name.startswith("torchinductor")}
        sockets = {str(path) for path in self.folder.rglob("*") if path.is_socket()}
        return {
            "processes": processes,
            "temporary files": files,
            "socket files": sockets,
            **own(),
            **self.options.look(),
        }


def until(met: Callable[[], object], ended: Callable[[], bool], said: Callable[[], object] = str) -> None:
    """Wait until `met` returns true.

    Raises AssertionError after some minutes, or with the text that `said` returns if `ended` returns true before, which
    means that the run has ended.
    """
    latest = time.monotonic() + PATIENCE_S
    while not met():
        assert not ended(), f"the run ended before anything could happen to it: {said()}"
        assert time.monotonic() < latest, "nothing came of it"
        time.sleep(0.02)


def nodes_of(path: Path) -> Sequence[Json]:
    """Return the entries of the nodes in `fleet.json`; none before the file exists."""
    file = path / "fleet.json"
    found: Sequence[Json] = json.loads(file.read_text())["nodes"] if file.exists() else []
    return found


def rounds_of(path: Path) -> list[int]:
    """Return the current round of each node, from `fleet.json`."""
    return [node["round"] for node in nodes_of(path)]


def events(run: Run, *kinds: str) -> list[tuple[str, NodeId | None, int, dict[str, Any]]]:
    """Return (kind, node, round, details) of the recorded events of these kinds, in order of time."""
    rows = run.rows("SELECT kind, node, round, details FROM events ORDER BY at_s")
    return [(kind, node, round, json.loads(details)) for kind, node, round, details in rows if kind in kinds]


def rounds_played(run: Run, node: NodeId) -> list[int]:
    """Return the rounds that a node finished in the recorded `run`, in order of time."""
    rows = run.rows("SELECT round FROM metrics WHERE name = 'round_s' AND node = ? ORDER BY at_s", [node])
    return [round for (round,) in rows]
