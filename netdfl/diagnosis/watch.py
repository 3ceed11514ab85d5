"""When to look at a fleet, what is news about it, and when a stall is over. Sans-I/O, for every world.

A world tells `Watch` where its nodes stand and hands it findings; the watch says when nodes have been
quiet for longer than the pace of the fleet explains, and keeps every finding until the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from statistics import median

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import NodeId
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.snapshot import DOWN, Snapshot

FIRST_NS = 30 * NS_PER_S
FIRST_LOOK_NS = 2 * NS_PER_S
LEAST_NS = NS_PER_S
ROUNDS_QUIET = 10
ROUNDS_LIVELOCK = 100
LEAST_LIVELOCK_NS = 30 * NS_PER_S
ROUNDS_KEPT = 15


class Pace:
    """Where nodes stand, and how long their rounds take."""

    def __init__(self, nodes: Iterable[NodeId]) -> None:
        """All `nodes` begin now."""
        self.rounds: dict[NodeId, tuple[int, int]] = dict.fromkeys(nodes, (0, 0))
        self._took: dict[NodeId, deque[int]] = {node: deque(maxlen=ROUNDS_KEPT) for node in self.rounds}
        self._stalled: dict[NodeId, int] = {}

    def at(self, node: NodeId, round: int, now_ns: int) -> None:
        """`node` is in `round`; its time is kept where the round is a new one."""
        before, since_ns = self.rounds[node]
        if round != before:
            self.rounds[node] = (round, now_ns)
        if round > before and self._stalled.get(node) != before:
            self._took[node].append((now_ns - since_ns) // (round - before))

    def stalled(self, nodes: Iterable[NodeId]) -> None:
        """Something held `nodes` up: what their present rounds take is no pace."""
        self._stalled.update((node, self.rounds[node][0]) for node in nodes)

    @property
    def round_ns(self) -> int | None:
        """What a round takes the slowest node; None before the first round ends.

        Of each node the median of its last rounds: one of them may hold a stall, which is no pace.
        """
        return max((int(median(took)) for took in self._took.values() if took), default=None)

    @property
    def patience_ns(self) -> int:
        """How long a wait may last and be nothing to speak of."""
        return FIRST_NS if self.round_ns is None else max(LEAST_NS, ROUNDS_QUIET * self.round_ns)

    @property
    def look_ns(self) -> int:
        """How long to wait between two looks at a fleet."""
        return FIRST_LOOK_NS if self.round_ns is None else self.patience_ns // 2

    def next_look_ns(self, now_ns: int) -> int:
        """When to look again: in a first round of hours less and less often, for a look goes by every node."""
        wait_ns = self.look_ns
        return now_ns + (wait_ns if self.round_ns is not None else max(wait_ns, (now_ns - FIRST_NS) // 2))

    @property
    def livelock_ns(self) -> int:
        """How long messages may pass without any node finishing a round."""
        return LEAST_LIVELOCK_NS if self.round_ns is None else max(LEAST_LIVELOCK_NS, ROUNDS_LIVELOCK * self.round_ns)

    @property
    def last_ns(self) -> int:
        """When a node last began a round."""
        return max((since_ns for _, since_ns in self.rounds.values()), default=0)

    def quiet(self, now_ns: int, among: Collection[NodeId], for_ns: int | None = None) -> bool:
        """Whether one of `among` has begun no round for `for_ns`, by default longer than the fleet's pace explains."""
        before_ns = now_ns - (self.patience_ns if for_ns is None else for_ns)
        return any(self.rounds[node][1] <= before_ns for node in among)


class Window:
    """Since when no node has begun a round, gone down or returned: what passes all that time may be a livelock."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._first: Snapshot | None = None

    def before(self, snapshot: Snapshot, pace: Pace) -> Snapshot | None:
        """The first snapshot after a node last began a round, went down or returned, once that was long enough ago."""
        first = self._first
        if first is None or first.at_ns < pace.last_ns or _down(first) != _down(snapshot):
            self._first = snapshot
            return None
        return first if snapshot.at_ns - first.at_ns >= pace.livelock_ns else None


def _down(snapshot: Snapshot) -> set[NodeId]:
    return {node for node, now in snapshot.nodes.items() if now.state in DOWN}


class Watch:
    """Keeps the findings of a run: which are new, which are over."""

    def __init__(self) -> None:
        """Nothing found yet."""
        self.open: list[Finding] = []
        self.closed: list[Finding] = []

    def take(self, found: Iterable[Finding], lasts: Callable[[Finding], bool] = lambda finding: False) -> list[Finding]:
        """Take what holds now; return what is news: new, or confirmed after it was suspected.

        What a look does not name any more, by a longer patience or as something may end it yet, is not over while it
        `lasts`; then it is no stall for good. Nor is it over where its waits are told of another by now, for good; but
        where such a one holds up those that are waited for, which were down, say, and are back.
        """
        found = list(found)
        before = _earlier(self.open, found)
        news = [now for was, now in zip(before, found, strict=True) if was is None or _more(was, now)]
        told = frozenset(wait for each in found for wait in each.waits)
        now_open = [_first_seen(was, now) for was, now in zip(before, found, strict=True)]
        left = []
        for each in self.open:
            if each.suspected or any(each is was for was in before):
                continue
            if lasts(each) and told.isdisjoint(each.waits) and not any(_is_behind(each, other) for other in found):
                left.append(replace(each, permanent=False))
            elif each.permanent and any(map(each.is_same, found)):
                now_open = [_first_seen(each, now) if _is_older(each, now) else now for now in now_open]
            else:
                self.closed.append(replace(each, over=True))
        self.open = [*left, *now_open]
        return news

    def close(self, finding: Finding, how: str) -> None:
        """A stall was ended by `how`: `skip` or `resend`."""
        self.open = [each for each in self.open if not each.is_same(finding)]
        self.closed.append(replace(finding, over=True, ended_by=how))

    @property
    def findings(self) -> list[Finding]:
        """Everything found, in the order in which it was found."""
        return sorted([*self.closed, *self.open], key=lambda finding: finding.found_ns)


def _earlier(before: Iterable[Finding], found: Sequence[Finding]) -> list[Finding | None]:
    """As what the look before knew each of `found`: by its waits, else by whom it waits for."""
    left = list(before)
    earlier: list[Finding | None] = [None] * len(found)
    for alike in (Finding.is_same, Finding.is_kin):
        for place, finding in enumerate(found):
            match = next((each for each in left if earlier[place] is None and alike(each, finding)), None)
            if match is not None:
                left.remove(match)
                earlier[place] = match
    return earlier


def _is_behind(before: Finding, now: Finding) -> bool:
    """Whether all in a finding that was not for good, who wait and for whom, now wait in one that is, or behind it."""
    held = {*now.roots, *now.behind}
    return now.permanent and not before.permanent and held.issuperset((*before.roots, *before.culprits))


def _more(before: Finding, now: Finding) -> bool:
    return (before.suspected and not now.suspected) or (now.permanent and not before.permanent)


def _is_older(before: Finding, now: Finding) -> bool:
    return before.is_same(now) and before.found_ns < now.found_ns


def _first_seen(before: Finding | None, now: Finding) -> Finding:
    if before is None or before.suspected:
        return now
    return replace(now, began_ns=before.began_ns, found_ns=before.found_ns)
