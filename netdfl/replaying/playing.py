"""The simulation of a recorded run's scenario once more from its start, which can be stopped between any two events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple

from typing_extensions import override

from netdfl.core.clock import TimerName
from netdfl.core.control import Progress, Report
from netdfl.core.errors import NetdflError
from netdfl.core.interrupts import interruptible, outside_loops
from netdfl.core.types import NodeId
from netdfl.record.base import Store
from netdfl.record.directory import RunDirectory
from netdfl.replaying.checking import RecordedRows, ReplayDivergence
from netdfl.replaying.happenings import Happenings, HappeningsRecorder
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.stalls import ExactWatch
from netdfl.supervisor.supervisor import FleetOutcome, Supervisor
from netdfl.worlds.base import Figures, WorldConfig
from netdfl.worlds.simulated.arithmetic import exact_arithmetic
from netdfl.worlds.simulated.loop import NamedTimer, Source, VirtualLoop
from netdfl.worlds.simulated.world import SimulatedWorld

Halts = Callable[["Playback"], bool]
"""A condition to halt the playback, checked between events, whenever no task can run at the present virtual time."""


class DueTimer(NamedTuple):
    """A timer of the event loop that has not fired yet. Its name is empty if asyncio set it."""

    at_ns: int
    name: TimerName | tuple[()]


class SteppedLoop(VirtualLoop):
    """A loop of virtual time that can be stopped between steps.

    A step is everything that the network does at the time of the next event, or all timers of one kind at that time,
    and all tasks that they wake. Before each step, when no task can run, the loop calls `halts` and stops if that
    returns true. `steps` counts the steps.
    """

    def __init__(self, seed: int = 0) -> None:
        """Prepare the loop with no condition to stop; `seed` is passed to `VirtualLoop`."""
        super().__init__(seed)
        self.halts: Callable[[], bool] = lambda: False
        self.steps = 0

    def due(self) -> list[DueTimer]:
        """Return all timers that have not fired yet, in order of time."""
        return [
            DueTimer(when[0], timer.name if isinstance(timer, NamedTimer) else ())
            for when in sorted(self._timers)
            for timer in self._live(when)
        ]

    def next_ns(self) -> int | None:
        """Return the virtual time of the next timer or network event, in nanoseconds; None if there is none."""
        times = [when[0] for when, timers in self._timers.items() if not all(each._cancelled for each in timers)]
        network = self.source.next_ns()
        return min(times if network is None else [*times, network], default=None)

    def _jump(self) -> None:
        if self.halts():
            self.stop()
            return
        served = self.source
        self.source = _OneInstant(served)
        try:
            super()._jump()
        finally:
            if isinstance(self.source, _OneInstant):
                self.source = served
            self.steps += 1


class _OneInstant:
    """A wrapper around the loop's source of network events that runs the events of one instant, then shows no more."""

    def __init__(self, source: Source) -> None:
        self._source, self._over = source, False

    def next_ns(self) -> int | None:
        return None if self._over else self._source.next_ns()

    def run(self, now_ns: int) -> None:
        self._over = True
        self._source.run(now_ns)


class _ReplayWorld(SimulatedWorld):
    """The simulation of a fleet on an event loop that can stop; message fates and metrics also go to `happenings`."""

    loop: SteppedLoop

    def __init__(self, setting: WorldConfig, happenings: Happenings) -> None:
        super().__init__(setting, SteppedLoop)
        self._happenings = happenings

    def recorder(self, store: Store) -> HappeningsRecorder:
        super().recorder(store)
        self._recorder = HappeningsRecorder(store, self.log, self._happenings, self.clock.now_ns)
        return self._recorder


class _ReplaySupervisor(Supervisor):
    """A supervisor that keeps the fleet as it is after the run's end, for inspection, until the event `hold` is set."""

    happenings: Happenings
    hold: asyncio.Event

    @override
    def begins(self, node: NodeId, round: int, train_loss: float | None) -> None:
        super().begins(node, round, train_loss)
        self.happenings.begun(self.fleet.now_ns(), node, round)

    @override
    def report(self, node: NodeId, report: Report) -> None:
        super().report(node, report)
        if isinstance(report, Progress) and self.fleet.start_ns is not None:
            self.happenings.begun(report.at_ns, node, report.round)

    @property
    def held(self) -> bool:
        """Whether the run has ended and the fleet is still kept for inspection."""
        return hasattr(self, "_held") and not self.hold.is_set()

    async def _stop(self, grace_s: float) -> Figures:
        self._held = True
        await self.hold.wait()
        return await super()._stop(grace_s)


class Playback:
    """A replayed fleet, stopped at a moment of its virtual time, which can continue.

    `marks` has two lists of moments, each as the number of steps of the event loop before it: the moments at which a
    first node had begun a new round (`round`), and at which the fates of more messages were known (`message`).
    """

    def __init__(self, scenario: Scenario, directory: RunDirectory, record: RecordedRows | None) -> None:
        """Prepare the simulation of `scenario`, before its first event, with its files in the new `directory`.

        The replay is checked against `record`, the original run's, unless this is None.
        """
        self.scenario, self.directory = scenario, directory
        self.happenings = Happenings(record)
        self.world = _ReplayWorld(WorldConfig(scenario, directory, self._say), self.happenings)
        self.loop = self.world.loop
        self.loop.halts = self._halts
        self.supervisor = _ReplaySupervisor(scenario, directory, self.world, note=self._say, show=lambda status: None)
        self.supervisor.happenings, self.supervisor.hold = self.happenings, asyncio.Event()
        self.marks: dict[Literal["round", "message"], list[int]] = {"round": [], "message": []}
        self._seen = (-1, 0)
        self._wanted: Halts = lambda playing: True
        self._interrupted = False
        self._task = self.loop.create_task(self.supervisor.run())
        self._task.add_done_callback(lambda task: self.loop.stop())

    # what is known of it

    @property
    def now_ns(self) -> int:
        """The current fleet time in nanoseconds."""
        return self.loop.now_ns

    @property
    def steps(self) -> int:
        """The number of steps of the loop so far."""
        return self.loop.steps

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.supervisor.held or self._task.done()

    @property
    def watch(self) -> ExactWatch:
        """The supervisor's part that detects and diagnoses stalls."""
        watch = self.supervisor.stalls
        assert isinstance(watch, ExactWatch)
        return watch

    @property
    def next_ns(self) -> int | None:
        """The time of the next due event, in nanoseconds."""
        return self.loop.next_ns()

    # going on

    def go(self, halts: Halts) -> None:
        """Continue until `halts` returns true, the run ends, or Ctrl-C is pressed.

        Raises:
            ReplayDivergence: the replay differs from the run's record.
        """
        if self.ended:
            return
        self._wanted, self._interrupted = halts, False
        self._run()
        if self._interrupted:
            raise KeyboardInterrupt
        record = self.happenings.record
        if record is not None and record.parted:
            raise ReplayDivergence(record.parted)

    def wait_until(self, at_ns: int) -> None:
        """Set the virtual time to `at_ns`, if that is later; the caller has made sure that no event is due before."""
        self.loop.now_ns = max(self.loop.now_ns, at_ns)

    def do(self, change: Callable[[], None]) -> None:
        """Call `change` at the current virtual time, and run all tasks that it wakes. Raises the errors of `change`."""
        errors: list[Exception] = []

        def carefully() -> None:
            try:
                change()
            except Exception as error:
                errors.append(error)

        self.loop.call_soon(carefully)
        self._wanted = lambda playing: True
        self._run()
        if errors:
            raise errors[0]

    def finish(self) -> FleetOutcome:
        """Close the fleet, which was kept after the run's end; return the outcome of the run."""
        self.supervisor.hold.set()
        self._run()
        return self._task.result()

    def close(self) -> None:
        """Close the fleet and the event loop, also in the middle of the run."""
        if not self._task.done():
            self.happenings.record = None
            self.supervisor.interrupt()
            self.supervisor.hold.set()
            self._wanted = lambda playing: False
            with suppress(NetdflError):
                self._run()
        if not self.loop.is_closed():
            self.loop.close()

    def _run(self) -> None:
        def run() -> None:
            with exact_arithmetic(), interruptible(self._interrupt):
                self.loop.run_forever()

        outside_loops(run)
        if self._task.done() and not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    def _interrupt(self) -> None:
        self._interrupted = True

    def _halts(self) -> bool:
        self._mark()
        record = self.happenings.record
        parted = record is not None and bool(record.parted)
        return self.supervisor.held or self._interrupted or parted or self._wanted(self)

    def _mark(self) -> None:
        round, messages = self.happenings.round, self.happenings.messages
        if round > self._seen[0]:
            self.marks["round"].append(self.steps)
        if messages > self._seen[1]:
            self.marks["message"].append(self.steps)
        self._seen = (round, messages)

    def _say(self, text: str) -> None:
        self.happenings.say(self.world.clock.now_ns(), text)
