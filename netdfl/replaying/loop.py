"""A virtual loop that can stop between any two things that it does, and go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from netdfl.core.clock import TimerName
from netdfl.worlds.simulated.loop import NamedTimer, Source, VirtualLoop


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
