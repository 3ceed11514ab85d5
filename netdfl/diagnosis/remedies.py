"""What would have ended a stall, and what ends it where the scenario asks for that.

Settings are named only where they can be written and change something. A stall is ended by leaving the culprits out, or
by having the message sent again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import Again, Recover
from netdfl.core.fates import DOWN, LOSS, RESET
from netdfl.core.types import Edge, Kind, NodeId
from netdfl.diagnosis.finding import DEADLINE, Cause, Finding
from netdfl.diagnosis.reasons import awaited_of, cause_of, edge_of, path_of, wait_of
from netdfl.diagnosis.snapshot import MOST_RESENDS, AwaitedFate, Snapshot, What

SKIP = "wait.on_stall: skip"
RESEND = "wait.on_stall: resend"
ANSWERED = "delivery: acknowledged"
HEARTBEATS = "failure_detector: heartbeat"
HALVES = "algorithm.bipartite: true"
FEWER_STEPS = "algorithm.gossip_steps: 1"
ANY = "wait.for: any"
ALL = "wait.for: all"
GIVEN_UP_NS = 12 * NS_PER_S
"""What six questions take at first, after which a node is given up that answers none (`netdfl.node.asking`)."""
BY_LINK = (LOSS, DOWN, RESET)
"""The reasons of a loss that take questions and answers, too."""
CALLED_GONE_NS = 7 * NS_PER_S
"""Within that a node is called gone of which nothing is heard, by the heartbeats that a scenario gets by default."""

Allows: TypeAlias = Callable[[str], bool]
"""Whether the scenario may be given a setting that it does not have."""


def advise(finding: Finding, snapshot: Snapshot, allows: Allows) -> Finding:
    """`finding` with its remedies: such as the scenario `allows`."""
    return replace(finding, remedies=tuple(filter(allows, _fitting(finding, snapshot))))


def _fitting(finding: Finding, snapshot: Snapshot) -> Iterator[str]:
    if finding.cause is Cause.LIVELOCK:
        yield FEWER_STEPS
        return
    pairs = [pair for pair in finding.witness if snapshot.nodes[pair[0]].wait is not None]
    if any(wait_of(snapshot, waiter).what is What.ROOM for waiter, _ in pairs):
        if finding.cause is Cause.FLOW_CONTROL:
            yield ALL
        return
    if not pairs or _in_need_of(snapshot, pairs):
        return
    yield from _for_good(finding, snapshot, pairs) if finding.permanent else _for_now(finding, snapshot, pairs)


def _in_need_of(snapshot: Snapshot, pairs: Sequence[Edge]) -> bool:
    """Whether some node waits for one that nobody can do without, and that is out of reach: a server."""
    return any(
        wait_of(snapshot, pair[0]).essential and cause_of(snapshot, *pair) is Cause.UNREACHABLE for pair in pairs
    )


def _for_good(finding: Finding, snapshot: Snapshot, pairs: Sequence[Edge]) -> Iterator[str]:
    """What ends waits that nothing ends."""
    causes, kinds = {cause_of(snapshot, *pair) for pair in pairs}, {wait_of(snapshot, pair[0]).what for pair in pairs}
    awaited = [awaited_of(snapshot, pair) for pair in pairs]
    never_sent = causes <= {Cause.DEADLOCK}
    if not never_sent or not any(wait_of(snapshot, pair[0]).essential for pair in pairs):
        yield DEADLINE
    if causes == {Cause.LOST_MESSAGE} and not any(each.in_vain for each in awaited):
        if all(each.kept for each in awaited) and not any(_closes_circle(finding, snapshot, pair) for pair in pairs):
            yield RESEND
        if kinds == {What.MESSAGE} and not any(each.notice for each in awaited):
            yield ANSWERED
    if causes == {Cause.UNREACHABLE} and not any(each.fate is AwaitedFate.MISSED for each in awaited):
        yield from _detected(snapshot, pairs)
    if kinds == {What.REPLY} and causes <= {Cause.DEADLOCK, None}:
        yield HALVES
    yield SKIP


def _closes_circle(finding: Finding, snapshot: Snapshot, pair: Edge) -> bool:
    """Whether a lost request would come to one that answers nobody, as it asks itself, behind the asker."""
    asks = snapshot.nodes[pair[1]].wait
    is_request = path_of(snapshot, pair)[0] == pair[0]
    return is_request and pair[1] in finding.behind and asks is not None and asks.what is What.REPLY


def _detected(snapshot: Snapshot, pairs: Sequence[Edge]) -> Iterator[str]:
    """A detector helps where silence is mutual: who is called gone gets nothing, and would wait for that."""
    if all(edge_of(snapshot, pair).up or not snapshot.edge(*pair).up for pair in pairs):
        yield HEARTBEATS


def _for_now(finding: Finding, snapshot: Snapshot, pairs: Sequence[Edge]) -> Iterator[str]:
    """What would not wait for what ends by itself."""
    waits = [wait_of(snapshot, waiter) for waiter, _ in pairs]
    if any(wait.deadline_ns is not None for wait in waits):
        return
    awaited = [awaited_of(snapshot, pair) for pair in pairs]
    lost = finding.cause is Cause.LOST_MESSAGE and not any(each.resent for each in awaited)
    if (lost and all(_answers(snapshot, pair) for pair in pairs)) or _outlasts(finding, GIVEN_UP_NS):
        yield DEADLINE
    if _outlasts(finding, CALLED_GONE_NS) and not any(each.fate is AwaitedFate.MISSED for each in awaited):
        yield from _detected(snapshot, pairs)
    if finding.cause is Cause.STRAGGLER and all(len(wait.awaited) + len(wait.have) > 1 for wait in waits):
        yield ANY


def _answers(snapshot: Snapshot, pair: Edge) -> bool:
    """Whether who is asked about a lost message can say that it is lost, as far as that is known."""
    awaited = awaited_of(snapshot, pair)
    by_link = awaited.in_vain and awaited.reason in BY_LINK
    return snapshot.edge(*pair).up and snapshot.edge(*pair[::-1]).up and not by_link


def _outlasts(finding: Finding, ns: int) -> bool:
    """Whether what is out of reach stays so for longer than it takes to go on without it, or nobody knows how long."""
    if finding.cause is Cause.BLOCKED_LOOP:
        return True
    ends_ns = finding.until_ns
    return finding.cause is Cause.UNREACHABLE and ends_ns is not None and ends_ns - finding.began_ns > ns


OnStall: TypeAlias = Literal["stop", "skip", "resend"]


@dataclass
class Recovery:
    """What the scenario chose (`wait.on_stall`), and how often each message was sent again, by its sender.

    `can_send_again` says whether a sender can.
    """

    choice: OnStall
    can_send_again: Callable[[NodeId, Again], bool]
    resent: Counter[tuple[NodeId, Again]] = field(default_factory=Counter)

    def orders(self, finding: Finding, snapshot: Snapshot) -> list[tuple[NodeId, Recover]]:
        """What ends `finding`, as orders to nodes; empty where nothing does, so that the run has to stop."""
        if not finding.permanent or finding.suspected:
            return []
        if self.choice == "skip":
            return self._skips(finding, snapshot)
        return self._resends(finding, snapshot) if self.choice == "resend" else []

    def _skips(self, finding: Finding, snapshot: Snapshot) -> list[tuple[NodeId, Recover]]:
        waits = [snapshot.nodes[root].wait for root in finding.roots]
        if any(wait is None or wait.what is What.ROOM for wait in waits):
            return []
        skipped = {root: sorted({s for node, s in finding.witness if node == root}) for root in finding.roots}
        return [(root, Recover(skip=tuple(sources))) for root, sources in skipped.items()]

    def _resends(self, finding: Finding, snapshot: Snapshot) -> list[tuple[NodeId, Recover]]:
        if finding.cause is not Cause.LOST_MESSAGE:
            return []
        if any(awaited_of(snapshot, pair).in_vain for pair in finding.witness):
            return []
        lost = [_lost(snapshot, root, culprit) for root, culprit in finding.witness]
        if any(self.resent[each] >= MOST_RESENDS or not self.can_send_again(*each) for each in lost):
            return []
        self.resent.update(lost)
        return [(src, Recover(again=(message,))) for src, message in lost]


def _lost(snapshot: Snapshot, root: NodeId, culprit: NodeId) -> tuple[NodeId, Again]:
    """The message for want of which `root` waits for `culprit`: one from there, or its own request to there."""
    wait = wait_of(snapshot, root)
    awaited = wait.awaited[culprit]
    src, dst = awaited.edge or (culprit, root)
    if wait.what is What.MESSAGE:
        kind = Kind.NOTICE if awaited.notice else Kind.DATA
    else:
        kind = Kind.REQUEST if src == root else Kind.REPLY
    return src, Again(dst, wait.round, wait.step, kind)
