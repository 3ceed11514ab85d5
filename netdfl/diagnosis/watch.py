"""The pace of a fleet, which decides when to check it for stalls, and the history of its stalls (findings). No I/O.

`Pace` learns how long rounds take, so that a check (a look) comes when nodes have begun no round for an unusually long
time. `FindingHistory` keeps the stalls found by all looks: which are new, which are over. `Window` keeps the snapshot
with which a later one is compared to find a livelock.
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
LOOKS_SOON = 20
ROUNDS_LIVELOCK = 100
LEAST_LIVELOCK_NS = 30 * NS_PER_S
ROUNDS_KEPT = 15


class Pace:
    """The pace of a fleet: the round in which each node is, and how long its last rounds took."""

    def __init__(self, nodes: Iterable[NodeId]) -> None:
        """Start with all `nodes` in round 0."""
        self.rounds: dict[NodeId, tuple[int, int]] = dict.fromkeys(nodes, (0, 0))
        self._took: dict[NodeId, deque[int]] = {node: deque(maxlen=ROUNDS_KEPT) for node in self.rounds}
        self._stalled: dict[NodeId, int] = {}

    def at(self, node: NodeId, round: int, now_ns: int) -> None:
        """Record that `node` is in `round` at `now_ns`; if the round is new, store how long its last round took."""
        before, since_ns = self.rounds[node]
        if round != before:
            self.rounds[node] = (round, now_ns)
        if round > before and self._stalled.get(node) != before:
            self._took[node].append((now_ns - since_ns) // (round - before))

    def stalled(self, nodes: Iterable[NodeId]) -> None:
        """Record that a stall delays `nodes`, so that the lengths of their current rounds do not count as usual."""
        self._stalled.update((node, self.rounds[node][0]) for node in nodes)

    @property
    def round_ns(self) -> int | None:
        """The usual duration of a round at the slowest node; None before any round ends.

        The median of each node's last rounds counts, because one of them may contain a stall.
        """
        return max((int(median(took)) for took in self._took.values() if took), default=None)

    @property
    def patience_ns(self) -> int:
        """The time in ns that a wait may last before it counts as a stall."""
        return FIRST_NS if self.round_ns is None else max(LEAST_NS, ROUNDS_QUIET * self.round_ns)

    @property
    def look_ns(self) -> int:
        """The time in ns between two checks of a fleet for stalls."""
        return FIRST_LOOK_NS if self.round_ns is None else self.patience_ns // 2

    def next_look_ns(self, now_ns: int) -> int:
        """Return the time of the fleet's next check for stalls. In a long first round checks become rarer."""
        wait_ns = self.look_ns
        return now_ns + (wait_ns if self.round_ns is not None else max(wait_ns, (now_ns - FIRST_NS) // 2))

    @property
    def soon_ns(self) -> int:
        """The time in ns from the end of a node to a check whether the other nodes can still continue.

        It is a twentieth of a round, at least `LEAST_NS`: the nodes of a large fleet end one by one, and each check
        reads the whole fleet.
        """
        return max(LEAST_NS, (self.round_ns or 0) // LOOKS_SOON)

    @property
    def livelock_ns(self) -> int:
        """The time in ns that messages may pass without any node finishing a round before it counts as a livelock."""
        return LEAST_LIVELOCK_NS if self.round_ns is None else max(LEAST_LIVELOCK_NS, ROUNDS_LIVELOCK * self.round_ns)

    @property
    def last_ns(self) -> int:
        """The time in ns at which any node last began a round."""
        return max((since_ns for _, since_ns in self.rounds.values()), default=0)

    def quiet(self, now_ns: int, among: Collection[NodeId], for_ns: int | None = None) -> bool:
        """Return whether some node in `among` has begun no round for `for_ns`, by default for `patience_ns`."""
        before_ns = now_ns - (self.patience_ns if for_ns is None else for_ns)
        return any(self.rounds[node][1] <= before_ns for node in among)


class Window:
    """The time since a node last began a round, went down or returned, in which a livelock may show."""

    def __init__(self) -> None:
        """Start without a snapshot of the beginning of the time span."""
        self._first: Snapshot | None = None

    def before(self, snapshot: Snapshot, pace: Pace) -> Snapshot | None:
        """Return the snapshot from the start of the time span, if it is old enough to show a livelock; else None.

        If the span has ended, `snapshot` is the start of the next one.
        """
        first = self._first
        if first is None or first.at_ns < pace.last_ns or _down(first) != _down(snapshot):
            self._first = snapshot
            return None
        return first if snapshot.at_ns - first.at_ns >= pace.livelock_ns else None


def _down(snapshot: Snapshot) -> set[NodeId]:
    return {node for node, now in snapshot.nodes.items() if now.state in DOWN}


class FindingHistory:
    """The stalls found during a run: the ones that still last, and the ones that are over."""

    def __init__(self) -> None:
        """Start without any stall."""
        self.open: list[Finding] = []
        self.closed: list[Finding] = []

    def take(self, found: Iterable[Finding], lasts: Callable[[Finding], bool] = lambda finding: False) -> list[Finding]:
        """Add the stalls that a check of the fleet `found`; return those newly found, confirmed or permanent.

        A check may miss an earlier finding, because waits may last longer now before they count, or because something
        may still end the stall. Such a finding stays open while it `lasts`, but is not permanent any more. It is over
        if another finding has its waits now, or if a permanent stall holds its nodes. A permanent finding that a later
        one continues is not over: the later one takes over its beginning.
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
        """Record that a stall is over because the scenario's policy `how`, `skip` or `resend`, ended it."""
        self.open = [each for each in self.open if not each.is_same(finding)]
        self.closed.append(replace(finding, over=True, ended_by=how))

    @property
    def findings(self) -> list[Finding]:
        """All stalls found so far, over or not, in order of discovery."""
        return sorted([*self.closed, *self.open], key=lambda finding: finding.found_ns)


def _earlier(before: Iterable[Finding], found: Sequence[Finding]) -> list[Finding | None]:
    """Return, for each stall in `found`, the stall of `before` that it continues; None if there is none.

    A stall continues another if they share a wait, or have the same cause and awaited nodes.
    """
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
    """Return whether the permanent stall `now` keeps all nodes of the temporary stall `before` from continuing."""
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
