"""A node's time: real or virtual, always through the running event loop.

Relies on: the running event loop: real time goes by its `call_later`, virtual time by a loop of its own
(`worlds/simulated/loop.py`).

Why: Code that read another clock would behave differently in virtual time. Timers have names, which order the timers of
one virtual instant whoever set them first. An `Alarm` keeps its timer, because its time moves with each wait or
message, mostly to a later one: a new timer each time would fill the loop's heap with cancelled ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

NS_PER_S = 1_000_000_000
TimerName: TypeAlias = tuple[int | str, ...]
"""The purpose of a timer, as `("wait", node, round, step)`; it orders the timers of one virtual instant."""
SCHEDULED = "event"
"""The first word in the names of the schedule's timers, which run first among the timers of one virtual instant."""


class Timer(Protocol):
    """A callback that a clock will call at a set time."""

    def cancel(self) -> None:
        """Cancel the callback; without effect if it was called already."""


class Clock(Protocol):
    """The only source of time in a node, in integer nanoseconds since the fleet's common start."""

    def now_ns(self) -> int:
        """Return the nanoseconds since the start; negative before it."""

    async def sleep_until(self, at_ns: int) -> None:
        """Return at `at_ns`, or at once if that is past."""

    def call_at(self, at_ns: int, name: TimerName, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the event loop at `at_ns`, or soon if that is past.

        `name` orders timers of one instant.
        """


class Alarm:
    """A callback with a single due time that can be changed often and cheaply, mostly to a later time.

    A timer that would fire too early is not replaced: when it fires, it is set again for the current due time.
    """

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        """Prepare to call `ring` at a due time of `clock`; no due time is set yet."""
        self._clock, self._ring = clock, ring
        self._due_ns: int | None = None
        self._name: TimerName = ()
        self._timer: Timer | None = None
        self._wakes_ns = 0

    @property
    def rings(self) -> bool:
        """Whether the callback will be called when the timer fires; if not, the timer is only set again for later."""
        return self._due_ns is not None and self._due_ns <= self._wakes_ns

    def set(self, at_ns: int, name: TimerName) -> None:
        """Set the due time to `at_ns`, in place of an earlier one; `name` identifies the timer."""
        self._due_ns, self._name = at_ns, name
        if self._timer is None or self._wakes_ns >= at_ns:
            self.clear()
            self._due_ns = self._wakes_ns = at_ns
            self._timer = self._clock.call_at(at_ns, name, self._wake)

    def stop(self) -> None:
        """Unset the alarm, but keep its timer running, so that the next `set` may use it."""
        self._due_ns = None

    def clear(self) -> None:
        """Unset the alarm, and cancel its timer."""
        self._due_ns = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        due_ns, self._timer = self._due_ns, None
        if due_ns is not None and due_ns > self._wakes_ns:
            self.set(due_ns, self._name)
        elif due_ns is not None:
            self._due_ns = None
            self._ring()


class RealClock:
    """The machine's monotonic clock, which all processes of one machine share."""

    def __init__(self, start_ns: int = 0, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Count from `start_ns`, a reading of the clock `monotonic_ns`."""
        self.start_ns, self._monotonic_ns = start_ns, monotonic_ns

    def now_ns(self) -> int:
        """Return the nanoseconds since the start; negative before it."""
        return self._monotonic_ns() - self.start_ns

    async def sleep_until(self, at_ns: int) -> None:
        """Return at `at_ns`, or at once if that is past."""
        await asyncio.sleep(max(0, at_ns - self.now_ns()) / NS_PER_S)

    def call_at(self, at_ns: int, name: TimerName, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the loop at `at_ns`, or soon if that is past."""
        return asyncio.get_running_loop().call_later(max(0, at_ns - self.now_ns()) / NS_PER_S, callback)
