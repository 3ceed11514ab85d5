"""A virtual loop that can stop between any two things that it does, and go on."""

from __future__ import annotations

from asyncio import events
from collections.abc import Callable
from typing import NamedTuple

from netdfl.core.clock import TimerName
from netdfl.worlds.simulated.loop import NAMED, Source, VirtualLoop


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
        self._names: dict[int, TimerName] = {}

    def call_at_ns(
        self, at_ns: int, name: TimerName, callback: Callable[[], None], rank: int = NAMED
    ) -> events.TimerHandle:
        """As `VirtualLoop.call_at_ns`; the name is kept, to be shown."""
        handle = super().call_at_ns(at_ns, name, callback, rank)
        self._names[self._count] = name
        if len(self._names) > 100 + 2 * len(self._timers):
            left = {entry[3] for entry in self._timers}
            self._names = {count: each for count, each in self._names.items() if count in left}
        return handle

    def due(self) -> list[Due]:
        """All timers that are set, in their order."""
        live = sorted(entry[:4] for entry in self._timers if not entry[4]._cancelled)
        return [Due(at_ns, self._names.get(count, ())) for at_ns, _, _, count in live]

    def next_ns(self) -> int | None:
        """When something is due next; None: nothing ever is."""
        times = [entry[0] for entry in self._timers if not entry[4]._cancelled]
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
