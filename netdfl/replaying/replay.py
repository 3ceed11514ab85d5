"""The function `netdfl.replay`: a simulated run repeated, stopped at a moment, inspected, changed, and continued."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, get_args

from netdfl.core.errors import InputError, NetdflError, RunError, expect, is_number, is_whole
from netdfl.core.files import writing
from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis.finding import Finding
from netdfl.record.directory import RunDirectory
from netdfl.record.remarks import counts_the_living
from netdfl.record.run import Run, open_run
from netdfl.record.status import WaitingStatus
from netdfl.replaying.changes import FleetChange, change_message, change_node, restart_now
from netdfl.replaying.checking import RecordedRows, ReplayDivergence, parted_words, replayable
from netdfl.replaying.happenings import seconds
from netdfl.replaying.moment import MessageMoment, Moment, NextEvent, NodeMoment, see
from netdfl.replaying.playing import Halts, Playback
from netdfl.replaying.text import moment_html, moment_text
from netdfl.replaying.until import FORMS, StopPoint, at_time, read_edge, read_until
from netdfl.running.judged import FinishedRun
from netdfl.running.prepare import prepare
from netdfl.running.run import judge
from netdfl.scenario.model.plugins import ORIGIN
from netdfl.scenario.model.schema import Scenario
from netdfl.worlds.simulated.compute import COMPUTE_FILE

By: TypeAlias = Literal["event", "message", "round"]


@dataclass(frozen=True)
class _MadeChange:
    """A change by the user, with the step and the time at which it was made, so that it can be repeated."""

    step: int
    at_ns: int
    change: FleetChange


class Replay:
    """A run that is repeated, stopped at one moment of its virtual time. Going back repeats it from its start.

    The replay is compared with the run's record, row by row, until something is changed.
    """

    def __init__(self, run: Run, scenario: Scenario, out: Path | None = None) -> None:
        """Start to simulate `scenario`, with which `run` was made, once more.

        The replay's files go to the new directory `out`; with None, they are temporary.
        """
        self.run, self.scenario, self.out = run, scenario, out
        self.changes: list[_MadeChange] = []
        self._moment: Moment | None = None
        self._finished: FinishedRun | None = None
        self._removing: weakref.finalize[..., object] | None = None
        self._playing = self._play()

    def _play(self) -> Playback:
        """Start the simulation of the run's scenario anew; return it, stopped when the fleet starts."""
        if self.out is None:
            folder = tempfile.mkdtemp(prefix="netdfl-replay-")
            self._removing = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            path = Path(folder) / self.run.path.name
        else:
            path = self.out
        directory = RunDirectory.create(path.parent, self.scenario.name, self.scenario.seed, path)
        for name in (ORIGIN, COMPUTE_FILE):
            if (self.run.path / name).is_file():
                with writing(directory.path / name, RunError):
                    shutil.copyfile(self.run.path / name, directory.path / name)
        prepare(self.scenario, directory)
        playing = Playback(self.scenario, directory, RecordedRows(self.run))
        self._closing = weakref.finalize(self, playing.close)
        with self._parting():
            playing.go(lambda playing: playing.supervisor.fleet.start_ns is not None)
        return playing

    @contextmanager
    def _parting(self) -> Iterator[None]:
        """Turn a ReplayDivergence inside the context into an InputError that names the run and possible reasons."""
        try:
            yield
        except ReplayDivergence as parted:
            raise InputError(parted_words(self.run, str(parted))) from parted

    # where it is

    @property
    def moment(self) -> Moment:
        """The current moment, with all that can be inspected."""
        if self._moment is None:
            self._moment = see(self._playing)
        return self._moment

    @property
    def at_s(self) -> float:
        """Seconds of virtual time since the start."""
        return self.moment.at_ns / 1e9

    @property
    def ended(self) -> bool:
        """Whether the run has ended. The fleet is kept as it was then, until `finish`."""
        return self._playing.ended

    @property
    def nodes(self) -> Sequence[NodeMoment]:
        """Every node at this moment: its round, wait, unread messages, push-sum weight, and model's norm."""
        return self.moment.nodes

    @property
    def flying(self) -> Sequence[MessageMoment]:
        """Every message in flight, with the effect that its link will have on it."""
        return self.moment.flying

    @property
    def coming(self) -> Sequence[NextEvent]:
        """The events that are due next in the simulation."""
        return self.moment.coming

    @property
    def waits(self) -> Sequence[Edge]:
        """The edges of the wait-for graph: (waiting node, awaited node)."""
        return self.moment.waits

    @property
    def waiting(self) -> Sequence[WaitingStatus]:
        """The nodes' waits for messages that the live display would show: the longest, of at least half a second."""
        return self._playing.watch.waiting()

    @property
    def findings(self) -> Sequence[Finding]:
        """The stalls of the fleet that the diagnosis finds at this moment."""
        return self.moment.findings

    # going on and back

    def until(self, what: str | float | StopPoint) -> Self:
        """Continue to a moment, or go back to an earlier one.

        Args:
            what: Seconds, or words: `12.3s`, `round 7`, `lost 2->3 #5`, `sent 2->3`, `crash 4`, `stall`, `end`.

        Raises:
            InputError: `what` names no moment, or the run ends before it.
        """
        until = read_until(what) if isinstance(what, str) else what
        if not isinstance(until, StopPoint):
            expect(is_number(until), "the moment", until, f"seconds, or one of {FORMS}")
            until = at_time(round(until * 1e9))
        if until.lies_behind(self._playing):
            keep = [each for each in self.changes if until.at_ns is None or each.at_ns <= until.at_ns]
            self._again(lambda playing: True, keep)
        come = until.from_here(self._playing)
        self._go(come)
        if until.at_ns is not None and not self.ended:
            self._playing.wait_until(until.at_ns)
        elif self.ended and not come(self._playing):
            raise InputError(f"the run ended at {seconds(self._playing.now_ns)}, and {what} had not come")
        return self

    def step(self, by: By = "event", count: int = 1) -> Self:
        """Continue by `count` events, or until `count` more messages have ended (delivered, lost ...) or rounds begun.

        An event is a step of the event loop. A round begins with its first node.
        """
        _check_steps(by, count)
        if by == "event":
            return self.to_step(self._playing.steps + count)
        marks = self._playing.marks[by]
        last = len(marks) + count
        self._go(lambda playing: len(marks) >= last)
        return self

    def back(self, by: By = "event", count: int = 1) -> Self:
        """Go back by `count` events, ended messages or begun rounds (as in `step`), by repeating it from the start."""
        _check_steps(by, count)
        now = self._playing.steps
        if by == "event":
            return self.to_step(max(0, now - count))
        earlier = [0] * count + sorted({step for step in self._playing.marks[by] if step < now})
        return self.to_step(earlier[-count])

    def to_step(self, step: int) -> Self:
        """Go to the moment after `step` steps of the event loop from the start, forward or back."""
        expect(is_whole(step, 0), "step", step, "a number of steps since the start")
        if step < self._playing.steps:
            keep = [each for each in self.changes if each.step <= step]
            self._again(lambda playing: playing.steps >= step, keep)
        else:
            self._go(lambda playing: playing.steps >= step)
        return self

    def _again(self, halts: Halts, keep: list[_MadeChange]) -> None:
        """Simulate from the start, repeat the user's changes in `keep`, and continue until `halts` returns true."""
        if self.out is not None:
            raise InputError(f"what is played goes to {self.out}, and can't be taken back: replay without --out")
        self.close()
        self.changes, self._moment, self._finished = [], None, None
        self._playing = self._play()
        for each in keep:
            self._go(lambda playing, step=each.step: playing.steps >= step)  # type: ignore[misc]
            self._playing.wait_until(each.at_ns)
            self._do(each.change)
        self._go(halts)

    def _go(self, halts: Halts) -> None:
        self._moment = None
        with self._parting():
            self._playing.go(halts)

    # changing one thing

    def drop(self, edge: str | Edge, number: int | None = None) -> Self:
        """Drop a message in flight: `drop("2->3 #5")`; without a number, the first one on that edge."""
        return self._change(change_message("drop", *_message(edge, number)))

    def deliver(self, edge: str | Edge, number: int | None = None) -> Self:
        """Deliver a message in flight now; without a number, the first one on that edge."""
        return self._change(change_message("deliver", *_message(edge, number)))

    def crash(self, node: NodeId) -> Self:
        """Crash a node now; it does not restart by itself."""
        return self._change(change_node("crash", node))

    def restart(self, node: NodeId, state: Literal["kept", "lost"] = "lost") -> Self:
        """Restart a crashed node, with the state of its last finished round or without."""
        expect(state in ("kept", "lost"), "state", state, "'kept' or 'lost'")
        return self._change(restart_now(node, state))

    def pause(self, node: NodeId) -> Self:
        """Pause a node now: it neither computes nor reads messages until `resume`."""
        return self._change(change_node("pause", node))

    def resume(self, node: NodeId) -> Self:
        """Resume a paused node."""
        return self._change(change_node("resume", node))

    def _change(self, change: FleetChange) -> Self:
        change.check(self._playing)
        if self.ended:
            raise InputError("the run is over, so there is nothing left to change; go back first")
        self.changes.append(_MadeChange(self._playing.steps, self._playing.now_ns, change))
        try:
            self._do(change)
        except NetdflError:
            self.changes.pop()
            raise
        return self

    def _do(self, change: FleetChange) -> None:
        self._moment = None
        if not any(each.change is change for each in self.changes):
            self.changes.append(_MadeChange(self._playing.steps, self._playing.now_ns, change))
        self._playing.happenings.record = None
        self._playing.happenings.say(self._playing.now_ns, f"changed by hand: {change}")
        self._playing.do(lambda: change.make(self._playing))

    # the end

    def finish(self) -> FinishedRun:
        """Continue to the end, close the fleet, and return the replayed run with its verdict.

        The replayed run's files exist as long as the returned object, or stay in the directory `out`.

        Raises:
            RunError: nothing was changed, and the replay differs from the run.
        """
        if self._finished is None:
            self._go(lambda playing: False)
            with self._parting():
                outcome = self._playing.finish()
            directory = RunDirectory(self._playing.directory.path, page=self.out is not None)
            self._finished = judge(self.scenario, directory, outcome)
            self._check_hash(self._finished)
            if self._removing is not None:
                self._removing.detach()
                folder = str(directory.path.parent)
                self._removing = weakref.finalize(self._finished.run, shutil.rmtree, folder, ignore_errors=True)
        return self._finished

    def _check_hash(self, finished: FinishedRun) -> None:
        was = self.run.result if self.run.finished else {}
        if self.changes or was.get("verdict") in (None, "unknown") or counts_the_living(self.run):
            return
        before, now = was.get("event_log_hash"), finished.result["event_log_hash"]
        if before != now:
            raise RunError(
                f"{self.run.path}: its event log had the hash {before}, and played again it has {now}, though all "
                "times and figures agree: contents of messages differ, so a part of it does not repeat itself"
            )

    def close(self) -> None:
        """End the simulation, and remove its files unless they are in `out`."""
        self._closing()
        if self._finished is None and self._removing is not None:
            self._removing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __str__(self) -> str:
        return moment_text(self.moment)

    def __repr__(self) -> str:
        return f"<replay of {self.run.path.name} at {seconds(self._playing.now_ns)}, step {self._playing.steps}>"

    def _repr_html_(self) -> str:
        return f"<p><b>{escape(self.scenario.name)}</b></p>" + moment_html(self.moment)


def replay(run: Any, *, out: Path | str | None = None) -> Replay:
    """Repeat a simulated run, stopped at its start: `netdfl.replay("runs/x/latest").until("12.3s")`.

    Args:
        run: A run directory, or the result of `netdfl.run` or `netdfl.open_run`.
        out: The directory that keeps the replay as a run of its own; by default the replay's files are temporary.

    Raises:
        InputError: the run can't be replayed, with the reason.
    """
    found = run if isinstance(run, Run) else getattr(run, "run", None)
    found = found if isinstance(found, Run) else open_run(run)
    expect(out is None or isinstance(out, str | Path), "out", out, "a path, or nothing")
    return Replay(found, replayable(found), None if out is None else Path(out))


def _check_steps(by: object, count: object) -> None:
    expect(isinstance(by, str) and by in get_args(By), "by", by, "'event', 'message' or 'round'")
    expect(is_whole(count, 1), "count", count, "a whole number from 1 on")


def _message(edge: str | Edge, number: int | None) -> tuple[Edge, int | None]:
    expect(number is None or is_whole(number, 0), "number", number, "the number of a message on its edge, or nothing")
    two = isinstance(edge, tuple) and len(edge) == 2 and all(is_whole(node, 0) for node in edge)
    expect(isinstance(edge, str) or two, "edge", edge, "words such as '2->3 #5', or two nodes (2, 3)")
    if isinstance(edge, str):
        read, told = read_edge(edge)
        return read, told if number is None else number
    return edge, number
