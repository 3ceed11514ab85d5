"""The orders of equal instants: things that are due together happen one by one, in the usual order or a chosen one.

    scripted events ──▶ things, one by one: those that the order names, then the others ──▶ what they made due now

What a thing brings about runs before the next thing. A thing is a message, by its link (`0->1`: of several on one link
the one sent first), or a timer by its name (`wait 1 0 0`: the deadline of node 1 in step 0 of round 0). What a thing
makes due at this same instant, as over a link without latency, comes after all of them.

Relies on: `VirtualLoop`, which asks its source before it runs the named timers of an instant.

Why: Which of two things comes first at one instant is an accident, on which a method must not depend. In a run keys
decide it, and messages come together, which is fast; so another order needs a place where it can be said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netdfl.core.types import NodeId
from netdfl.core.units import parse_time_ns
from netdfl.transport.simulated.one_by_one import OneByOneFabric
from netdfl.worlds.simulated.loop import Source, VirtualLoop


@dataclass
class DueInstant:
    """Two or more messages or timers (`things`) that are due at one instant: name and node of each, in usual order.

    Messages come before timers. `answered`: the supervisor gave some node an order at this instant.
    """

    at_ns: int
    things: Sequence[tuple[str, NodeId]]
    answered: bool = False


class OrderedInstants:
    """A source of due times, around another one, that lets messages and timers of one instant happen one by one."""

    def __init__(
        self, orders: Mapping[str, Sequence[str]], inner: Source, loop: VirtualLoop, fabric: OneByOneFabric
    ) -> None:
        """Let messages and timers of one instant happen in the order that `orders` gives; others come after.

        `orders` has their names by instant, as `{"15ms": ["2->1", "0->1"]}`. The events of the source `inner` happen,
        too.
        """
        self._orders: dict[int, list[str]] = {}
        for at, names in orders.items():
            self._orders.setdefault(parse_time_ns(at), []).extend(names)
        self._inner, self._loop, self._fabric = inner, loop, fabric
        self._left: deque[str] = deque()
        self._looked_ns = -1
        self.instants: list[DueInstant] = []

    def next_ns(self) -> int | None:
        """Return the next instant at which the wrapped source or a named timer is due.

        Timers of an instant that `run` has already handled no longer count.
        """
        if self._left:
            return self._loop.now_ns
        due, named = self._inner.next_ns(), self._loop.next_named_ns()
        if named is None or named == self._looked_ns or (due is not None and due < named):
            return due
        return named

    def run(self, now_ns: int) -> None:
        """Let the next message or timer of this instant happen; after the last, run the wrapped source's events."""
        if now_ns != self._looked_ns:
            self._look(now_ns)
        if self._left:
            self._do(self._left.popleft(), now_ns)
        elif self._inner.next_ns() == now_ns:
            self._inner.run(now_ns)

    def note_answer(self) -> None:
        """Note that the supervisor gives an order to a node at this instant."""
        if self.instants and self.instants[-1].at_ns == self._loop.now_ns:
            self.instants[-1].answered = True

    def _look(self, now_ns: int) -> None:
        self._looked_ns = now_ns
        things = [(f"{src}->{dst}", dst) for src, dst in self._fabric.due(now_ns)]
        for timer in self._loop.named_at(now_ns):
            if len(timer) > 1 and isinstance(timer[1], int):
                things.append((" ".join(map(str, timer)), timer[1]))
        if len(things) > 1:
            self.instants.append(DueInstant(now_ns, things))
        left = [name for name, _ in things]
        for name in self._orders.get(now_ns, ()):
            if name in left:
                left.remove(name)
                self._left.append(name)
        self._left.extend(left)

    def _do(self, name: str, now_ns: int) -> None:
        if "->" in name:
            src, _, dst = name.partition("->")
            self._fabric.run_one((int(src), int(dst)), now_ns)
        else:
            self._loop.run_named(now_ns, name)
