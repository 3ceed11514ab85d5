"""The network of links that flows share: which flows cross which links, and new rates for all that a change affects.

A change concerns some links. It affects the flows on them, the other links of these flows, and so on; only their
shares are computed anew. Where nodes have only uplinks, that is one uplink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from netdfl.links.rules.base import Departure, Hold, LinkEvent, StageOutcome
from netdfl.links.rules.rate import Shape
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.flow import Flow
from netdfl.links.sharing.max_min import max_min
from netdfl.links.sharing.past import Past


class FairNetwork:
    """All flows under way over links with shared rates, and the changes since the rates were last computed."""

    def __init__(self, past: Past | None = None) -> None:
        """Start with neither flows nor links. `past` keeps recent rates, where shares may become known late."""
        self._past = past
        self._crossing: dict[Flow, None] = {}
        self._emptying: dict[SharedLink, int] = {}
        self._starting: dict[Flow, None] = {}
        self._ending: list[Flow] = []
        self._touched: dict[SharedLink, None] = {}
        self._unlinked: list[Flow] = []
        self.since_ns = 0  # since when the present rates hold
        self._freed: list[SharedLink] = []  # of flows that stopped before their end

    def starts(self, flow: Flow) -> None:
        """Mark `flow`, whose next message starts when the rates are next computed."""
        self._starting[flow] = None

    def ends(self, flow: Flow) -> None:
        """Mark `flow`, whose current message ends at the instant `flow.ended_ns`."""
        self._ending.append(flow)

    def crosses(self, flow: Flow) -> None:
        """Add `flow` to the links that it crosses, so that it gets a share of each."""
        if self._past is not None:
            self._crossing[flow] = None
        for link in flow.links:
            link.flows[flow] = self._touched[link] = None
        if not flow.links:
            self._unlinked.append(flow)

    def frees(self, flow: Flow) -> None:
        """Remove `flow` from its links, so that others get its share."""
        if self._past is not None:
            self._crossing.pop(flow, None)
        for link in flow.links:
            if flow in link.flows:
                del link.flows[flow]
                if flow.ended_ns is None:
                    self._freed.append(link)
                else:
                    link.free(flow.ended_ns)
                self._touched[link] = None

    def change(self, link: SharedLink, event: LinkEvent) -> None:
        """Apply a new `rate` (a `Shape`) or `rate_scale` to a link."""
        shape: Shape = event.get("rate", link.shape)
        link.set(shape, event.get("rate_scale", link.scale))
        self.touch(link)

    def touch(self, link: SharedLink) -> None:
        """Mark a link whose capacity has changed, so that rates on it are computed again."""
        self._touched[link] = None

    def change_since(self, link: SharedLink, capacity: int, since_ns: int) -> None:
        """Set the capacity of `link`, in parts of a bit/s; it holds since `since_ns`, which has passed.

        If recent rates are kept (`past`), the bytes that flows carried since then are counted anew.
        """
        link.limit(capacity)
        self.touch(link)
        if self._past is not None:
            self._past.change(link, capacity, since_ns)

    @property
    def again_ns(self) -> int | None:
        """The next instant at which rates change although no flow starts or ends, because a token bucket runs empty."""
        return min(self._emptying.values()) if self._emptying else None

    def retimed(self, now_ns: int) -> Sequence[StageOutcome]:
        """Start and end the flows marked by `starts` and `ends`, recompute the rates, and return the new departures."""
        freed, self._freed = self._freed, []
        for link in freed:
            link.free(now_ns)
        for link in [link for link, at_ns in self._emptying.items() if at_ns <= now_ns]:
            self._touched[link] = None
        if self._ending:
            self._end(now_ns)
        outcomes: list[StageOutcome] = []
        while self._starting:
            starting, self._starting = list(self._starting), {}
            for flow in sorted(starting, key=_turn) if len(starting) > 1 else starting:
                if flow.unit is None and flow.waiting and not flow.stage.stopped:
                    outcomes += flow.stage.begin(flow, now_ns)
        if self._touched or self._unlinked:
            outcomes += self._share(now_ns)
        return outcomes

    def _end(self, now_ns: int) -> None:
        over = [flow for flow in self._ending if flow.ended_ns is not None and flow.ended_ns <= now_ns]
        self._ending = [flow for flow in self._ending if flow.ended_ns is not None and flow.ended_ns > now_ns]
        for flow in over:
            flow.stage.end(flow)

    # shares

    def _share(self, now_ns: int) -> Iterator[StageOutcome]:
        past, self.since_ns = self._past, now_ns
        if past is not None and past.changed_ns is not None:
            self._touched |= {link: None for flow in self._crossing for link in flow.links}
            self.since_ns = min(now_ns, past.changed_ns)
        links, flows = self._reached()
        for link in links:
            link.pass_until(now_ns)
        for flow in flows:
            flow.pass_until(now_ns)
        if past is not None:
            past.recount(now_ns)
            for flow in flows:
                if flow.rate:
                    flow.ran_out(flow.rate)
        rates = _shared(links, flows)
        for flow in flows:
            stays = past is not None and not all(link.is_known for link in flow.links)
            if flow.ended_ns is None and flow.take_rate(rates.get(flow), stays=stays) and flow.unit is not None:
                yield Hold(flow.unit) if flow.due_ns is None else Departure(flow.unit, flow.due_ns)
        for link in links:
            self._emptying.pop(link, None)
            if (empties_ns := link.load()) is not None:
                self._emptying[link] = now_ns + empties_ns
        if past is not None:
            past.note(self._crossing, now_ns)

    def _reached(self) -> tuple[Sequence[SharedLink], Sequence[Flow]]:
        """Return the marked links, and all flows and links connected to them through common flows."""
        links, flows = self._touched, dict.fromkeys(self._unlinked)
        self._touched, self._unlinked = {}, []
        waiting = list(links)
        while waiting:
            for flow in waiting.pop().flows:
                if flow not in flows:
                    flows[flow] = None
                    for link in flow.links:
                        if link not in links:
                            links[link] = None
                            waiting.append(link)
        return list(links), list(flows)


def _turn(flow: Flow) -> tuple[int, tuple[int, int]]:
    """Return a sort key, by message and edge, which orders flows that start at one instant independently of entry."""
    return getattr(flow.waiting[0], "order_key", 0) if flow.waiting else 0, flow.stage.edge


@dataclass(slots=True, eq=False)
class _Draw:
    """The bytes of one flow that token buckets let pass at once; `max_min` divides such bytes as it divides rates."""

    flow: Flow
    links: Sequence[SharedLink]
    rate: int | None = None


def _shared(links: Sequence[SharedLink], flows: Sequence[Flow]) -> dict[Flow, int]:
    """Return the fair rate of each flow that has a limit, once token buckets have let pass the bytes that they allow.

    A flow whose end can no longer change keeps its rate, and the others share the rest.
    """
    fixed = [flow for flow in flows if flow.ended_ns is not None]
    flows = [flow for flow in flows if flow.ended_ns is None] if fixed else flows
    while True:
        limits = {link: link.capacity for link in links if link.capacity is not None and not link.bucket}
        for flow in fixed:
            limits |= {link: max(0, limits[link] - (flow.rate or 0)) for link in flow.links if link in limits}
        rates = max_min(flows, limits)
        free = [flow for flow in flows if flow not in rates and flow.left > 0] if len(rates) < len(flows) else []
        if not _draw(free):
            return rates


def _draw(flows: Iterable[Flow]) -> bool:
    """Let bytes of `flows` pass at once, in fair parts, as far as token buckets allow; return whether any did."""
    draws: list[_Draw] = []
    volumes: dict[SharedLink, int] = {}
    for number, flow in enumerate(flows):
        buckets = [link for link in flow.links if link.bucket]
        if buckets:
            own = SharedLink((-1, number), Shape(None))
            volumes |= {own: flow.left} | {link: link.bucket for link in buckets}
            draws.append(_Draw(flow, (own, *buckets)))
    for draw, volume in max_min(draws, volumes).items():
        draw.flow.draw(volume)
        for link in draw.links[1:]:
            link.draw(volume)
    return bool(draws)
