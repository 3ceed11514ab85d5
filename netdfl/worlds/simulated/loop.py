"""An asyncio loop on virtual time: it jumps to the next instant instead of sleeping, and never drifts.

Time is an integer count of nanoseconds; `loop.time()` is only its image in floating point. At one
instant things happen in this order: scripted events, then what the network has due, then named
timers, then timers without a name (asyncio's own: `asyncio.sleep`, `asyncio.timeout`). Within the first,
the order is that of the schedule, within the third that of a keyed hash of the name, so it does not depend on who
asked first. Everything that one step makes runnable runs before the next.

Where nothing can run and nothing is due, nothing will ever happen again: the loop calls `on_idle`, which
must make something runnable (set the error on a future, say). What returns later from outside (a
socket, a thread, an executor, a process, a signal) has no place in virtual time and is refused.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import base_events, events
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, Protocol

from xxhash import xxh3_64_intdigest

from netdfl.core.clock import NS_PER_S, SCHEDULED, TimerName
from netdfl.core.errors import VirtualTimeError

SCRIPT, NAMED, ANONYMOUS = range(3)
_FEWEST_CANCELLED = 1000


class Source(Protocol):
    """Something with due times of its own that the loop serves beside its timers: the network."""

    def next_ns(self) -> int | None:
        """When something is due next; None: nothing is."""
        ...

    def run(self, now_ns: int) -> None:
        """Do what is due at `now_ns`."""
        ...


class NoSource:
    """Nothing is ever due."""

    def next_ns(self) -> None:
        """Never."""

    def run(self, now_ns: int) -> None:
        """Nothing."""


class VirtualLoop(base_events.BaseEventLoop):
    """A loop whose clock stands still while anything can run, and then jumps."""

    def __init__(self, seed: int = 0) -> None:
        """Begin at 0 ns; `seed` keys the order of named timers of one instant."""
        super().__init__()
        self.now_ns = 0
        self.source: Source = NoSource()
        self.on_idle: Callable[[], None] = _nothing
        self._seed = seed
        self._timers: list[tuple[int, int, int, int, events.TimerHandle]] = []
        self._count = 0
        self._cancelled = 0
        self._refused: VirtualTimeError | None = None

    def time(self) -> float:
        """Seconds since the start, rounded; `now_ns` is exact."""
        return self.now_ns / NS_PER_S

    @property
    def has_timers(self) -> bool:
        """Whether a timer may still be due."""
        return bool(self._timers)

    def call_at_ns(
        self, at_ns: int, name: TimerName, callback: Callable[[], None], rank: int = NAMED
    ) -> events.TimerHandle:
        """Call `callback` at exactly `at_ns`, or now if that is past."""
        place = name[1] if rank == SCRIPT and len(name) > 1 else None
        tie = place if isinstance(place, int) else xxh3_64_intdigest(repr(name).encode(), self._seed)
        return self._add(at_ns, rank, tie, callback, (), None)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> events.TimerHandle:
        """Call `callback` after `delay` seconds, rounded to a nanosecond."""
        return self._add(self.now_ns + round(delay * NS_PER_S), ANONYMOUS, 0, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> events.TimerHandle:
        """Call `callback` at `loop.time() == when`, rounded to a nanosecond."""
        return self._add(round(when * NS_PER_S), ANONYMOUS, 0, callback, args, context)

    def _add(
        self, at_ns: int, rank: int, tie: int, callback: Any, args: tuple[Any, ...], context: Any
    ) -> events.TimerHandle:
        at_ns = max(at_ns, self.now_ns)
        handle = events.TimerHandle(at_ns / NS_PER_S, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        self._count += 1
        heappush(self._timers, (at_ns, rank, tie, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Asyncio's own hook: drop cancelled timers once they are most of the heap."""
        self._cancelled += 1
        if self._cancelled > _FEWEST_CANCELLED and 2 * self._cancelled > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[4]._cancelled]
            heapify(self._timers)
            self._cancelled = 0

    def _run_once(self) -> None:
        """Run what can run; where nothing can, jump until something can."""
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
        """Go to the next instant at which something is due, and do the first kind of things due there."""
        timers = self._timers
        while timers and timers[0][4]._cancelled:
            heappop(timers)
            self._cancelled -= 1
        source, ready = self.source, self._ready  # type: ignore[attr-defined]
        due = source.next_ns()
        if due is not None and _before(due, timers):
            while due is not None and not ready and _before(due, timers):
                self.now_ns = due
                source.run(due)
                due = source.next_ns()
        elif timers:
            self.now_ns, rank = timers[0][:2]
            while timers and timers[0][:2] == (self.now_ns, rank):
                handle = heappop(timers)[4]
                handle._scheduled = False  # type: ignore[attr-defined]
                self._ready.append(handle)  # type: ignore[attr-defined]
        else:
            self.on_idle()
            if not self._ready and not self._stopping:  # type: ignore[attr-defined]
                raise VirtualTimeError(f"nothing can ever run again after {self.now_ns} ns, and something still waits")

    def close(self) -> None:
        """Forget all timers."""
        self._timers.clear()
        super().close()

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> events.Handle:
        """As `call_soon`, from the loop's own thread alone. Raises VirtualTimeError, here and in the loop."""
        if self._thread_id not in (None, threading.get_ident()):  # type: ignore[attr-defined]
            self._refused = _refusal("a thread that calls back")
            raise self._refused
        return self.call_soon(callback, *args, context=context)

    def _process_events(self, event_list: list[object]) -> None:
        """Asyncio's own hook; there are no events from outside."""

    def _write_to_self(self) -> None:
        """Asyncio's own hook; the loop never sleeps, so it need not be woken."""


class VirtualClock:
    """A node's clock on a `VirtualLoop`."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Read the time of `loop`."""
        self._loop = loop

    def now_ns(self) -> int:
        """Nanoseconds since the start."""
        return self._loop.now_ns

    async def sleep_until(self, at_ns: int) -> None:
        """Return at `at_ns`, or at once if that is past."""
        await asyncio.sleep(max(0, at_ns - self._loop.now_ns) / NS_PER_S)

    def call_at(self, at_ns: int, name: TimerName, callback: Callable[[], None]) -> events.TimerHandle:
        """Call `callback` at exactly `at_ns`, or now if that is past."""
        return self._loop.call_at_ns(at_ns, name, callback, SCRIPT if name[0] == SCHEDULED else NAMED)


def _before(due: int, timers: list[tuple[int, int, int, int, events.TimerHandle]]) -> bool:
    """Whether the network's turn comes before that of the first timer."""
    if not timers:
        return True
    first = timers[0]
    return due < first[0] or (due == first[0] and first[1] >= NAMED)


def _nothing() -> None:
    """Leave the loop idle, which is an error."""


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
