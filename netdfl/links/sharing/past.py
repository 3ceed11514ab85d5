"""The shares of the recent past, so that bytes are counted anew where the share of a link becomes known late.

    told at 80 ms: 1 Mbit/s since 0      0      30 ms     80 ms
    counted until then                   |--5.0--|---4.0---|
    counted anew                         |--1.0--|---1.0---|---1.0--▶

A node that emulates its own links learns its shares of downlinks and core links from others, after the delay of a
notice. The past has an entry for each instant at which rates changed: the flows that shared then, and the capacities.
A share that holds since an earlier instant replaces the capacity of that time; all rates since then are computed once
more, and each flow gets bytes back, or loses some.

Why: A flow whose share is too large until the notice comes would keep the bytes that it got in excess, and no link can
carry more than its rate. Messages that have left cannot be called back: they keep the rates that they had, and other
messages share the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.flow import Flow
from netdfl.links.sharing.max_min import max_min

MOST_INSTANTS = 48
"""How many instants are kept. A share that holds since an earlier one counts from the earliest."""


@dataclass(slots=True, eq=False)
class _Part:
    """One message of a flow, which crossed `links` at `rate`, in parts of a bit/s; None: unlimited.

    The message is known by `turn`, its number in the flow, so that no reference keeps a message that has left.
    """

    flow: Flow
    turn: int
    links: Sequence[SharedLink]
    rate: int | None

    @property
    def is_under_way(self) -> bool:
        """Whether the message has not left, so that its bytes can be counted anew."""
        flow = self.flow
        return flow.turns == self.turn and flow.unit is not None and flow.ended_ns is None


@dataclass(slots=True, eq=False)
class _Instant:
    """The flows that shared links since `at_ns`, and the capacities that limited them, in parts of a bit/s."""

    at_ns: int
    limits: dict[SharedLink, int]
    parts: Sequence[_Part]

    def again(self, at_ns: int) -> _Instant:
        """Return a copy of this entry that begins at `at_ns`."""
        return _Instant(at_ns, dict(self.limits), [replace(part) for part in self.parts])

    def count(self, lasting_ns: int) -> None:
        """Compute the rates from the corrected capacities, and correct the bytes that passed in `lasting_ns`."""
        limits = dict(self.limits)
        moving = [part for part in self.parts if part.is_under_way]
        for part in self.parts:
            if not part.is_under_way:
                limits |= {link: max(0, limits[link] - (part.rate or 0)) for link in part.links if link in limits}
        rates = max_min(moving, limits)
        for part in moving:
            rate = rates.get(part)
            if rate is not None and part.rate is not None:
                part.flow.draw((rate - part.rate) * lasting_ns)
            part.rate = rate


class Past:
    """The recent instants at which the rates of one node's flows changed, with rates and capacities from then on."""

    def __init__(self) -> None:
        """Start without any recorded rates."""
        self._instants: list[_Instant] = []
        self.changed_ns: int | None = None
        """The earliest instant whose capacities have been changed since the last `recount`; None: there is none."""

    def note(self, flows: Iterable[Flow], now_ns: int) -> None:
        """Record the rates that `flows` have from `now_ns` on, and the capacities of their links."""
        if self._instants and self._instants[-1].at_ns >= now_ns:
            now_ns = self._instants.pop().at_ns
        parts = [_Part(flow, flow.turns, flow.links, flow.rate) for flow in flows]
        links = dict.fromkeys(link for part in parts for link in part.links)
        limits = {link: link.capacity for link in links if link.capacity is not None and not link.bucket}
        self._instants.append(_Instant(now_ns, limits, parts))
        del self._instants[:-MOST_INSTANTS]

    def change(self, link: SharedLink, capacity: int, since_ns: int) -> None:
        """Replace the capacity of `link`, in parts of a bit/s, in all entries from `since_ns` on."""
        if not self._instants:
            return
        since_ns = max(since_ns, self._instants[0].at_ns)
        place = bisect_left(self._instants, since_ns, key=attrgetter("at_ns"))
        if place == len(self._instants) or self._instants[place].at_ns > since_ns:
            self._instants.insert(place, self._instants[place - 1].again(since_ns))
        for each in self._instants[place:]:
            if link in each.limits:
                each.limits[link] = capacity
        self.changed_ns = since_ns if self.changed_ns is None else min(self.changed_ns, since_ns)

    def recount(self, now_ns: int) -> None:
        """Count the bytes of all flows anew, from the earliest change up to `now_ns`, up to which they are counted."""
        changed_ns, self.changed_ns = self.changed_ns, None
        if changed_ns is None:
            return
        ends_ns = [*(each.at_ns for each in self._instants[1:]), now_ns]
        for each, end_ns in zip(self._instants, ends_ns, strict=True):
            if changed_ns <= each.at_ns < end_ns:
                each.count(end_ns - each.at_ns)
        for part in self._instants[-1].parts:
            if part.is_under_way and part.rate:
                part.flow.ran_out(part.rate)
