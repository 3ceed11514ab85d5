"""One playing of a run's scenario in the simulated world, from its start, held wherever it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple

from netdfl.core.clock import TimerName
from netdfl.core.control import Progress, Report
from netdfl.core.errors import NetdflError
from netdfl.core.interrupts import interruptible, outside_loops
from netdfl.core.types import NodeId
from netdfl.record.base import Store
from netdfl.record.directory import RunDirectory
from netdfl.replaying.checking import Parted, Record
from netdfl.replaying.happenings import Happenings, HeardRecorder
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.stalls import ExactWatch
from netdfl.supervisor.supervisor import Outcome, Supervisor
from netdfl.worlds.base import Figures, Setting
from netdfl.worlds.simulated.arithmetic import exact_arithmetic
from netdfl.worlds.simulated.loop import NamedTimer, Source, VirtualLoop
from netdfl.worlds.simulated.world import SimulatedWorld

Halts = Callable[["Playing"], bool]
"""Whether to halt here; asked whenever nothing can run at a moment."""


class Due(NamedTuple):
    """A timer that is set: its name is empty where it is one of asyncio's own."""

    at_ns: int
    name: TimerName | tuple[()]


class SteppedLoop(VirtualLoop):
    """Asks `halts` whenever nothing can run at this moment, before it does what is due next; `steps` counts that.

    One step is all that the network has due at the next instant, or all timers of one kind there, and whatever
    these make runnable.
    """

    def __init__(self, seed: int = 0) -> None:
        """As `VirtualLoop`; it does not halt by itself."""
        super().__init__(seed)
        self.halts: Callable[[], bool] = lambda: False
        self.steps = 0

    def due(self) -> list[Due]:
        """All timers that are set, in their order."""
        return [
            Due(when[0], timer.name if isinstance(timer, NamedTimer) else ())
            for when in sorted(self._timers)
            for timer in self._live(when)
        ]

    def next_ns(self) -> int | None:
        """When something is due next; None: nothing ever is."""
        times = [when[0] for when, timers in self._timers.items() if not all(each._cancelled for each in timers)]
        network = self.source.next_ns()
        return min(times if network is None else [*times, network], default=None)

    def _jump(self) -> None:
        if self.halts():
            self.stop()
            return
        served = self.source
        self.source = _Once(served)
        try:
            super()._jump()
        finally:
            if isinstance(self.source, _Once):
                self.source = served
            self.steps += 1


class _Once:
    """A source that gives one instant, and then nothing more."""

    def __init__(self, source: Source) -> None:
        self._source, self._over = source, False

    def next_ns(self) -> int | None:
        return None if self._over else self._source.next_ns()

    def run(self, now_ns: int) -> None:
        self._over = True
        self._source.run(now_ns)


class _World(SimulatedWorld):
    """The simulated world on a loop that can stop, heard by `happenings`."""

    loop: SteppedLoop

    def __init__(self, setting: Setting, happenings: Happenings) -> None:
        super().__init__(setting, SteppedLoop)
        self._happenings = happenings

    def recorder(self, store: Store) -> HeardRecorder:
        super().recorder(store)
        self._recorder = HeardRecorder(store, self.log, self._happenings, self.clock.now_ns)
        return self._recorder


class _Supervisor(Supervisor):
    """Holds the fleet before it is taken down."""

    happenings: Happenings
    hold: asyncio.Event

    def begins(self, node: NodeId, round: int, train_loss: float | None) -> None:
        """See `Supervisor`."""
        super().begins(node, round, train_loss)
        self.happenings.begun(self.fleet.now_ns(), node, round)

    def report(self, node: NodeId, report: Report) -> None:
        """See `News`."""
        super().report(node, report)
        if isinstance(report, Progress) and self.fleet.start_ns is not None:
            self.happenings.begun(report.at_ns, node, report.round)

    @property
    def held(self) -> bool:
        """Whether the run has come to its end, and the fleet still stands."""
        return hasattr(self, "_held") and not self.hold.is_set()

    async def _stop(self, grace_s: float) -> Figures:
        self._held = True
        await self.hold.wait()
        return await super()._stop(grace_s)


class Playing:
    """A fleet at one moment of its virtual time. `marks` are the steps at which rounds and messages moved on."""

    def __init__(self, scenario: Scenario, directory: RunDirectory, record: Record | None) -> None:
        """Begin into `directory`, which is new; nothing has happened yet. Raises what the world raises."""
        self.scenario, self.directory = scenario, directory
        self.happenings = Happenings(record)
        self.world = _World(Setting(scenario, directory, self._say), self.happenings)
        self.loop = self.world.loop
        self.loop.halts = self._halts
        self.supervisor = _Supervisor(scenario, directory, self.world, note=self._say, show=lambda status: None)
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
        """The fleet's time."""
        return self.loop.now_ns

    @property
    def steps(self) -> int:
        """How many steps of its loop were done."""
        return self.loop.steps

    @property
    def ended(self) -> bool:
        """Whether the run has come to its end."""
        return self.supervisor.held or self._task.done()

    @property
    def watch(self) -> ExactWatch:
        """What looks for stalls."""
        watch = self.supervisor.stalls
        assert isinstance(watch, ExactWatch)
        return watch

    @property
    def next_ns(self) -> int | None:
        """When something is due next."""
        return self.loop.next_ns()

    # going on

    def go(self, halts: Halts) -> None:
        """Go on to where `halts` says so, or to the run's end, or to Ctrl-C.

        Raises:
            Parted: what is played goes another way than the run did.
        """
        if self.ended:
            return
        self._wanted, self._interrupted = halts, False
        self._run()
        if self._interrupted:
            raise KeyboardInterrupt
        record = self.happenings.record
        if record is not None and record.parted:
            raise Parted(record.parted)

    def wait_until(self, at_ns: int) -> None:
        """Let time pass up to `at_ns`, where nothing is due before."""
        self.loop.now_ns = max(self.loop.now_ns, at_ns)

    def do(self, change: Callable[[], None]) -> None:
        """Do `change` at this moment, and what follows from it at once. Raises what it raises."""
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

    def finish(self) -> Outcome:
        """Take the fleet down, which has come to its end; how it ended."""
        self.supervisor.hold.set()
        self._run()
        return self._task.result()

    def close(self) -> None:
        """Take the fleet down wherever it is."""
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
