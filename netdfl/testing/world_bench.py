"""The test bench for the suite of worlds: runs each test fleet once, for all checks that look at it.

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
"""The most seconds that something that ended may take to disappear on a busy machine."""
Keys: TypeAlias = dict[str, Any]


class CommandOutput(NamedTuple):
    """A finished call of the command line: its exit code, its output, its run directory."""

    code: int
    text: str
    path: Path

    @property
    def result(self) -> dict[str, Any]:
        """The contents of `result.json`."""
        return netdfl.open_run(self.path).result


class RunningCommand(NamedTuple):
    """A call of the command line that is still running."""

    process: subprocess.Popen[str]
    path: Path

    def until_round(self, round: int) -> None:
        """Wait until every node is in `round` or later."""
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
    """Kill the process of a node, which is found by `fleet.json`."""
    (pid,) = (each["pid"] for each in nodes_of(path) if each["node"] == node)
    os.kill(pid, signal.SIGKILL)


def nothing_more() -> Found:
    """Return no findings, for a world whose runs can leave behind nothing of its own kind."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options for running fleets in one world.

    Attributes:
        world: the section `world` of every scenario.
        on_messages: keys added to that section in scenarios whose links must lose whole messages.
        fleets_at_once: whether one process may run several fleets at a time.
        rounds_of_seconds: for how many rounds a fleet of small models takes seconds.
        kill: kills a node's process from outside, given the run directory and the node.
        look: finds what runs in this world may leave behind.
        a_kill_leaves: the kinds of leftovers that a killed supervisor leaves until the next run.
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

    `left` has the leftovers found after each group of runs.
    """

    def __init__(self, options: Options) -> None:
        """Prepare to run fleets by `options`."""
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
        """Remove all files and processes."""
        self._outside.close()
        for pid in marked(self._mark):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    # fleets by netdfl.run

    def fleets(self, plays: Mapping[str, Keys]) -> dict[str, FinishedRun]:
        """Run scenarios, each only once: a later call returns the earlier result.

        They run at the same time if the world allows several fleets in one process.
        """
        due = {name: keys for name, keys in plays.items() if name not in self._fleets}
        threads = len(due) if self.options.fleets_at_once else 1
        if due:
            with self.looking(" and ".join(due)), ThreadPoolExecutor(threads) as pool:
                self._fleets |= {name: pool.submit(self._play, name, keys) for name, keys in due.items()}
        return {name: self._fleets[name].result() for name in plays}

    @contextmanager
    def going(self, plays: Mapping[str, Keys]) -> Iterator[dict[str, Future[FinishedRun]]]:
        """Run scenarios at the same time; the body of the `with` acts on them meanwhile."""
        with self.looking(" and ".join(plays)), ThreadPoolExecutor(len(plays)) as pool:
            yield {name: pool.submit(self._play, name, keys) for name, keys in plays.items()}

    def _play(self, name: str, keys: Keys) -> FinishedRun:
        return netdfl.run(self.scenario(name, keys), out=self.folder / name, page=False)

    def scenario(self, name: str, keys: Keys) -> dict[str, Any]:
        """Return a scenario for this world, with the given name and keys."""
        return {"schema": "netdfl/1", "name": name, "world": self.world, **keys}

    # fleets by the command line

    def file(self, name: str, keys: Keys) -> Path:
        """Write a scenario for this world to a file; return its path."""
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(self.scenario(name, keys)), encoding="utf-8")
        return file

    def start(self, name: str, file: Path, *options: str, out: Path | None = None) -> RunningCommand:
        """Start a run of a scenario file by the command line."""
        path = out or self.folder / name
        command = [sys.executable, "-m", "netdfl", "run", str(file), f"--out={path}", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return RunningCommand(process, path)

    # leftovers

    @contextmanager
    def looking(self, name: str, but_for: Collection[str] = ()) -> Iterator[None]:
        """Store under `name` the leftovers of what happens inside the `with`, except the kinds in `but_for`."""

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
    """Wait until `met` is true.

    Raises AssertionError if the run `ended` before, with the text that `said` returns, or after some minutes.
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
    """Return the rounds that a node has finished, in order of time."""
    rows = run.rows("SELECT round FROM metrics WHERE name = 'round_s' AND node = ? ORDER BY at_s", [node])
    return [round for (round,) in rows]
