"""An asyncio loop on virtual time: it jumps to the next instant instead of sleeping, and never drifts.

Time is an integer count of nanoseconds; `loop.time()` is only its image in floating point. At one instant things happen
in this order:

1. scripted events, in the order of the schedule;
2. the network's deliveries;
3. named timers, in the order of a keyed hash of their names, so that the order does not depend on who set them first;
4. timers without a name (asyncio's own: `asyncio.sleep`, `asyncio.timeout`).

All callbacks that one step makes ready run before the next step.

    ready callbacks --(none left)--> jump to the next instant --(it makes some ready)--> ready callbacks
                                         |
                                         '--(nothing is due)--> on_idle, which must make some ready

Where nothing can run and nothing is due, nothing will ever happen again: then the loop calls `on_idle`, which must make
something ready (set the error on a future, say). A result that returns later from outside (from a socket, a thread, an
executor, a process, a signal) has no place in virtual time, so the loop refuses such calls.

Relies on: asyncio's own loop for callbacks, tasks and futures, of which only time and waiting are replaced.

Why: Nodes run their real code, so a simulated run tests what runs on machines. gRPC can't run so, for its core keeps
the machine's time in a thread of its own; hence the fabric. A jump goes to the timer's own instant and time is an
integer, since adding time-outs in floating point drifts.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import base_events, events
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, Protocol, TypeAlias

from xxhash import xxh3_64_intdigest

from netdfl.core.clock import NS_PER_S, SCHEDULED, Alarm, TimerName
from netdfl.core.errors import VirtualTimeError

SCRIPT, NAMED, ANONYMOUS = range(3)
_FEWEST_CANCELLED = 1000


class Source(Protocol):
    """A source of events with due times that the loop serves in addition to its timers, such as the network."""

    def next_ns(self) -> int | None:
        """Return the next instant (in ns) at which an event of this source is due, or None."""
        ...

    def run(self, now_ns: int) -> None:
        """Process the events of this source that are due at the instant `now_ns`."""
        ...


class NoSource:
    """A source without events: nothing is ever due."""

    def next_ns(self) -> None:
        """Return None, because nothing is due."""

    def run(self, now_ns: int) -> None:
        """Do nothing."""


class NamedTimer:
    """A timer of a virtual loop, which is cheap to create: a node sets several in a round, and cancels most."""

    __slots__ = ("_callback", "_cancelled", "_loop", "name")

    def __init__(self, loop: VirtualLoop, name: TimerName, callback: Callable[[], None]) -> None:
        self._loop, self.name, self._callback = loop, name, callback
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the callback; without effect once it was called."""
        if not self._cancelled:
            self._cancelled, self._callback = True, _nothing
            self._loop._timer_handle_cancelled(self)

    @property
    def acts(self) -> bool:
        """Whether the callback does anything when it runs now: false for an alarm that would only set a later timer."""
        alarm = getattr(self._callback, "__self__", None)
        return not isinstance(alarm, Alarm) or alarm.rings

    def _run(self) -> None:
        """Call the callback; pass an error to the loop's error handler, as asyncio does."""
        try:
            self._callback()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            what = {"message": f"timer {self.name} failed", "exception": error, "handle": self}
            self._loop.call_exception_handler(what)


When: TypeAlias = tuple[int, int]
"""An instant and a rank (scripted events, then named timers, then others): timers of one step of the loop."""
AnyTimer: TypeAlias = "NamedTimer | events.TimerHandle"


class VirtualLoop(base_events.BaseEventLoop):
    """An event loop whose clock stands still while anything can run, and then jumps to the next due time."""

    def __init__(self, seed: int = 0) -> None:
        """Start at 0 ns; `seed` is the key of the order among named timers of one instant."""
        super().__init__()
        self.now_ns = 0
        self.source: Source = NoSource()
        self.on_idle: Callable[[], None] = _nothing
        self._seed = seed
        self._times: list[When] = []
        self._timers: dict[When, list[Any]] = {}  # of `AnyTimer`s; Any, as the loop reads their private attributes
        self._cancelled, self._most_cancelled = 0, _FEWEST_CANCELLED
        self._refused: VirtualTimeError | None = None

    def time(self) -> float:
        """Return the seconds since the start, rounded; `now_ns` is exact."""
        return self.now_ns / NS_PER_S

    @property
    def can_run(self) -> bool:
        """Whether a callback can run at this moment."""
        return bool(self._ready)  # type: ignore[attr-defined]

    @property
    def has_timers(self) -> bool:
        """Whether the loop has any timers, including canceled ones."""
        return bool(self._times)

    def call_at_ns(self, at_ns: int, name: TimerName, callback: Callable[[], None], rank: int = NAMED) -> NamedTimer:
        """Call `callback` at exactly `at_ns`, or now if that is past; `rank` and `name` order calls of one instant."""
        timer = NamedTimer(self, name, callback)
        self._add(at_ns, rank, timer)
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> events.TimerHandle:
        """Call `callback` after `delay` seconds, rounded to a nanosecond."""
        return self._add_anonymous(self.now_ns + round(delay * NS_PER_S), callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> events.TimerHandle:
        """Call `callback` at `loop.time() == when`, rounded to a nanosecond."""
        return self._add_anonymous(round(when * NS_PER_S), callback, args, context)

    def _add_anonymous(self, at_ns: int, callback: Any, args: tuple[Any, ...], context: Any) -> events.TimerHandle:
        handle = events.TimerHandle(max(at_ns, self.now_ns) / NS_PER_S, callback, args, self, context)
        self._add(at_ns, ANONYMOUS, handle)
        return handle

    def _add(self, at_ns: int, rank: int, timer: AnyTimer) -> None:
        when = (max(at_ns, self.now_ns), rank)
        same = self._timers.get(when)
        if same is None:
            self._timers[when] = [timer]
            heappush(self._times, when)
        else:
            same.append(timer)

    def _timer_handle_cancelled(self, handle: AnyTimer) -> None:
        """Discard canceled timers after many cancellations: as many as timers were left the last time, 1,000 at least.

        asyncio defines the name of this hook, and cancels timers that have fired too.
        """
        self._cancelled += 1
        if self._cancelled > self._most_cancelled:
            left = {when: [timer for timer in timers if not timer._cancelled] for when, timers in self._timers.items()}
            self._timers = {when: timers for when, timers in left.items() if timers}
            self._times = list(self._timers)
            heapify(self._times)
            self._cancelled, self._most_cancelled = 0, max(_FEWEST_CANCELLED, sum(map(len, self._timers.values())))

    def _run_once(self) -> None:
        """Run the ready callbacks; if there are none, jump in time until there are."""
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused
        ready: Any = self._ready  # type: ignore[attr-defined]
        while not ready and not self._stopping:  # type: ignore[attr-defined]
            self._jump()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _jump(self) -> None:
        """Jump to the next instant at which something is due, and let its first events happen.

        These are the network's deliveries, or the timers of one rank (scripted events, named timers, others).
        """
        first = self._first()
        source, ready = self.source, self._ready  # type: ignore[attr-defined]
        due = source.next_ns()
        if due is not None and _before(due, first):
            while due is not None and not ready and _before(due, self._times[0] if self._times else None):
                self.now_ns = due
                source.run(due)
                due = source.next_ns()
        elif first is not None:
            self.now_ns = first[0]
            ready.extend(self._take(first))
        else:
            self.on_idle()
            if not self._ready and not self._stopping:  # type: ignore[attr-defined]
                raise VirtualTimeError(f"nothing can ever run again after {self.now_ns} ns, and something still waits")

    def _first(self) -> When | None:
        """Return the instant and rank (scripted, named, other) of the first timer that is not canceled, or None."""
        while self._times:
            timers = self._timers[self._times[0]]
            while timers and timers[-1]._cancelled:
                timers.pop()
            if timers:
                return self._times[0]
            del self._timers[heappop(self._times)]
        return None

    # one by one

    def next_named_ns(self) -> int | None:
        """Return the instant of the first timer if that is a named one, else None."""
        first = self._first()
        return first[0] if first is not None and first[1] == NAMED else None

    def named_at(self, at_ns: int) -> list[TimerName]:
        """Return the names of the named timers that are due at an instant and do something, in the order of running."""
        when = (at_ns, NAMED)
        return [timer.name for timer in self._live(when) if timer.acts] if when in self._timers else []

    def run_named(self, at_ns: int, name: str) -> None:
        """Run the timer `name` that is due at the instant `at_ns`, before the other timers that are due then.

        A timer's name is a tuple, and `name` is its parts joined by spaces, such as `wait 3 0 1`. Do nothing if there
        is no such timer any more.
        """
        timers = self._timers.get((at_ns, NAMED), [])
        found = next((t for t in timers if not t._cancelled and " ".join(map(str, t.name)) == name), None)
        if found is not None:
            timers.remove(found)
            found._run()

    def _take(self, first: When) -> list[AnyTimer]:
        """Remove and return the timers of `first`, the first instant and rank (scripted, named, other), in order."""
        live = self._live(first)
        del self._timers[heappop(self._times)]
        return live

    def _live(self, when: When) -> list[Any]:
        """Return the timers of an instant and rank (scripted, named, other) that are not canceled, in order."""
        live = [timer for timer in self._timers[when] if not timer._cancelled]
        if len(live) > 1 and when[1] != ANONYMOUS:
            live.sort(key=partial(self._order_key, when[1]))
        return live

    def _order_key(self, rank: int, timer: NamedTimer) -> int:
        """Return the sort key of a timer among the timers of its instant and rank.

        It is the place of a scripted event in the schedule, else a keyed hash of the timer's name.
        """
        name = timer.name
        place = name[1] if rank == SCRIPT and len(name) > 1 else None
        return place if isinstance(place, int) else xxh3_64_intdigest(repr(name).encode(), self._seed)

    def close(self) -> None:
        """Discard all timers."""
        self._times.clear()
        self._timers.clear()
        super().close()

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> events.Handle:
        """Call `callback` after the callbacks that are ready; without asyncio's checks, which take longer."""
        handle = events.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> events.Handle:
        """Call `callback` like `call_soon`. Raises VirtualTimeError from another thread, here and in the loop."""
        if self._thread_id not in (None, threading.get_ident()):  # type: ignore[attr-defined]
            self._refused = _refusal("a thread that calls back")
            raise self._refused
        return self.call_soon(callback, *args, context=context)

    def _process_events(self, event_list: list[object]) -> None:
        """Do nothing, because there are no outside events. asyncio defines the name of this hook."""

    def _write_to_self(self) -> None:
        """Do nothing, because the loop never sleeps. asyncio defines the name of this hook."""


class VirtualClock:
    """A node's clock on a `VirtualLoop`."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Read the time of `loop`."""
        self._loop = loop

    def now_ns(self) -> int:
        """Return the virtual time: the nanoseconds since the start of the loop."""
        return self._loop.now_ns

    async def sleep_until(self, at_ns: int) -> None:
        """Return at `at_ns`, or at once if that is past."""
        await asyncio.sleep(max(0, at_ns - self._loop.now_ns) / NS_PER_S)

    def call_at(self, at_ns: int, name: TimerName, callback: Callable[[], None]) -> NamedTimer:
        """Call `callback` at exactly `at_ns`, or now if that is past; `name` decides the order within an instant."""
        return self._loop.call_at_ns(at_ns, name, callback, SCRIPT if name[0] == SCHEDULED else NAMED)


def _before(due: int, timers: When | None) -> bool:
    """Return whether the network's events at the instant `due` come before the first timers.

    At the same instant, only scripted events come before the network's.
    """
    return timers is None or due < timers[0] or (due == timers[0] and timers[1] >= NAMED)


def _nothing() -> None:
    """Do nothing: the callback of a canceled timer, and the default `on_idle`, after which the loop raises an error."""


def _refusal(what: str) -> VirtualTimeError:
    return VirtualTimeError(
        f"{what} can't live under the virtual clock, because it returns at a real time; "
        "use the world `processes`, or compute inline"
    )


def _refuse(what: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise _refusal(what)

    return refuse


_REFUSED = {
    "a real socket": (
        "add_reader remove_reader add_writer remove_writer sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into "
        "sock_sendall sock_sendto sock_connect sock_accept sock_sendfile sendfile start_tls create_connection "
        "create_server create_unix_connection create_unix_server create_datagram_endpoint connect_accepted_socket "
        "getaddrinfo getnameinfo"
    ),
    "a thread": "run_in_executor set_default_executor",
    "a pipe or a process": "connect_read_pipe connect_write_pipe subprocess_exec subprocess_shell",
    "a signal handler": "add_signal_handler remove_signal_handler",
}
for _what, _names in _REFUSED.items():
    for _name in _names.split():
        setattr(VirtualLoop, _name, _refuse(_what))
