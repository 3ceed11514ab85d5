"""The remedies for stalls: settings that would have prevented one, and orders to nodes that end it during the run.

A setting is named only if the scenario could be given it, and if it ends the stall in a trial on the snapshot
(`trying.py`). During the run a stall is ended, where the scenario asks for that, by letting the waiting nodes stop
waiting for the culprits (the awaited nodes), or by sending the lost message again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import Again, Recover
from netdfl.core.fates import DOWN as LINK_DOWN
from netdfl.core.fates import LOSS, RESET
from netdfl.core.types import Edge, Kind, NodeId
from netdfl.diagnosis.finding import DEADLINE, Cause, Finding
from netdfl.diagnosis.reasons import awaited_of, cause_of, path_of, wait_of
from netdfl.diagnosis.reduce import Supply, supply
from netdfl.diagnosis.snapshot import (
    AWAY,
    DOWN,
    MOST_RESENDS,
    SILENT,
    AwaitedFate,
    AwaitedMessage,
    Snapshot,
    State,
    WaitKind,
    WaitNow,
)
from netdfl.diagnosis.trying import NEVER_NS, SettingEffect, Trials
from netdfl.node.delivery import DOUBLINGS, LEAST_NS, ResendPolicy

SKIP = "wait.on_stall: skip"
RESEND = "wait.on_stall: resend"
ANSWERED = "delivery: acknowledged"
HEARTBEATS = "failure_detector: heartbeat"
ORACLE = "failure_detector: oracle"
HALVES = "algorithm.bipartite: true"
FEWER_STEPS = "algorithm.gossip_steps: 1"
ANY = "wait.for: any"
ALL = "wait.for: all"
GIVEN_UP_NS = 12 * NS_PER_S
"""Nanoseconds that six unanswered status queries take, after which a waiting node gives up on a silent one."""
BY_LINK = (LOSS, LINK_DOWN, RESET)
"""Reasons of a message's loss for which status queries over the same link, and their answers, would be lost, too."""
CALLED_GONE_NS = 7 * NS_PER_S
"""Nanoseconds after which a failure detector by heartbeats, with its default settings, calls a silent node gone."""

SENT_AGAIN_NS = LEAST_NS * sum(2 ** min(attempt, DOUBLINGS) for attempt in range(ResendPolicy.attempts))
"""The least nanoseconds from a message's first sending to its last resend, with the default settings of `delivery`."""

Allows: TypeAlias = Callable[[str], bool]
"""A function that returns whether a setting, such as `wait.deadline: auto`, could be added to the scenario."""


def advise(finding: Finding, snapshot: Snapshot, allows: Allows, trials: Trials | None = None) -> Finding:
    """Return a stall's `finding` with its remedies: settings that `allows` accepts and that end it in `trials`."""
    search = _RemedySearch(finding, snapshot, allows, Trials(snapshot, CHANGES) if trials is None else trials)
    return replace(finding, remedies=tuple(filter(allows, search.remedies())))


# the effects of settings on a snapshot


def _sent_again(snapshot: Snapshot, pair: Edge) -> Supply | None:
    """Return whether the awaited message of `pair`, (waiting node, awaited node), would come if sent again.

    This is the effect of the setting that ends stalls by sending lost messages again. None: no effect on this message.
    """
    awaited, source = awaited_of(snapshot, pair), snapshot.nodes[pair[1]]
    if not _can_come(awaited) or awaited.resent:
        return None
    is_request = path_of(snapshot, pair)[0] == pair[0]
    answers = source.state is State.FINISHED or (source.wait is not None and source.wait.what is not WaitKind.REPLY)
    if answers or not is_request:
        return Supply.SURE
    return supply(snapshot, pair[0], replace(wait_of(snapshot, pair[0]), awaited={pair[1]: AwaitedMessage()}), pair[1])


def _can_come(awaited: AwaitedMessage) -> bool:
    """Return whether a copy of a lost message would come: sent now, or once its link carries messages again."""
    return awaited.fate is AwaitedFate.LOST and awaited.kept and (not awaited.in_vain or awaited.passes_for_good)


def _acknowledged(snapshot: Snapshot, pair: Edge) -> Supply | None:
    """Return whether a lost message would come with acknowledged delivery; None if that changes nothing.

    `pair` is (waiting node, awaited node).
    """
    awaited = awaited_of(snapshot, pair)
    return None if awaited.notice or awaited.outage_ns > SENT_AGAIN_NS else _sent_again(snapshot, pair)


def _called_gone(snapshot: Snapshot, pair: Edge) -> int:
    """Return when a heartbeat failure detector of a waiting node would call the awaited node gone; `NEVER_NS`: never.

    `pair` is (waiting node, awaited node).
    """
    giver, edge = snapshot.nodes[pair[1]], snapshot.edge(*pair[::-1])
    wait = wait_of(snapshot, pair[0])
    since_ns = wait.since_ns
    ends = [NEVER_NS if edge.heals_ns is None else edge.heals_ns] * (not edge.up)
    if giver.state in _MUTE:
        since_ns = max(since_ns, giver.since_ns)
        ends.append(NEVER_NS if giver.back_ns is None else giver.back_ns)
    if wait.essential or wait.from_anybody or max(ends, default=0) <= since_ns + CALLED_GONE_NS:
        return NEVER_NS
    return since_ns + CALLED_GONE_NS


def _given_up(snapshot: Snapshot, pair: Edge) -> int:
    """Return when a waiting node would stop waiting for the awaited one with the setting `wait.deadline: auto`.

    `pair` is (waiting node, awaited node). With that setting, the waiting node asks the awaited one for its status.
    `NEVER_NS`: it would continue to wait.
    """
    giver, awaited = snapshot.nodes[pair[1]], awaited_of(snapshot, pair)
    answers = giver.state not in _MUTE and snapshot.edge(*pair).up and snapshot.edge(*pair[::-1]).up
    if not answers:
        return max(wait_of(snapshot, pair[0]).since_ns + GIVEN_UP_NS, snapshot.at_ns)
    return snapshot.at_ns if awaited.fate in (AwaitedFate.LOST, AwaitedFate.NEVER, AwaitedFate.MISSED) else NEVER_NS


_MUTE = frozenset({*AWAY, State.PAUSED, *SILENT})
CHANGES: Mapping[str, SettingEffect] = {
    RESEND: SettingEffect(supply=_sent_again),
    ANSWERED: SettingEffect(supply=_acknowledged),
    HEARTBEATS: SettingEffect(leaves=_called_gone),
    DEADLINE: SettingEffect(leaves=_given_up),
}


@dataclass(frozen=True, slots=True)
class _RemedySearch:
    """The search for settings of the scenario that would end one stall (`finding`)."""

    finding: Finding
    snapshot: Snapshot
    allows: Allows
    trials: Trials

    def remedies(self) -> Iterator[str]:
        finding, snapshot = self.finding, self.snapshot
        if finding.cause is Cause.LIVELOCK:
            yield FEWER_STEPS
            return
        pairs = finding.witness
        if any(wait_of(snapshot, waiter).what is WaitKind.ROOM for waiter, _ in pairs):
            if finding.cause is Cause.FLOW_CONTROL:
                yield ALL
            return
        if not pairs:
            if finding.grounds.knot:
                yield DEADLINE  # too few could send at all: no other setting makes more of them
            return
        if _in_need_of(snapshot, pairs):
            return
        yield from self.for_good(pairs) if finding.permanent else self.for_now(pairs)

    def for_good(self, pairs: Sequence[Edge]) -> Iterator[str]:
        """Yield the settings of a scenario that would end the permanent waits `pairs`.

        `pairs` are (waiting node, awaited node). If the waits come back in every round, the settings that cost least
        come first.
        """
        snapshot = self.snapshot
        causes = {cause_of(snapshot, *pair) for pair in pairs}
        kinds = {wait_of(snapshot, pair[0]).what for pair in pairs}
        awaited = [awaited_of(snapshot, pair) for pair in pairs]
        recurs = kinds == {WaitKind.REPLY} and causes <= {Cause.DEADLOCK, None} and _is_sound(snapshot)
        if recurs:  # in every round: a deadline, whose time each of them would cost, is the last choice
            yield from (HALVES, SKIP)
        if not causes <= {Cause.DEADLOCK} or not any(wait_of(snapshot, pair[0]).essential for pair in pairs):
            yield DEADLINE
        if causes == {Cause.LOST_MESSAGE}:
            if (
                all(map(_can_come, awaited)) and self.allows(SKIP) and self.helps(RESEND)
            ):  # not as a replacement of `skip`
                yield RESEND
            if kinds == {WaitKind.MESSAGE} and self.helps(ANSWERED):
                yield ANSWERED
        if causes == {Cause.UNREACHABLE} and not any(each.fate is AwaitedFate.MISSED for each in awaited):
            yield from self.detected(pairs)
        if not recurs:
            yield SKIP

    def for_now(self, pairs: Sequence[Edge]) -> Iterator[str]:
        """Yield the settings of a scenario that would end the temporary waits `pairs` sooner.

        `pairs` are (waiting node, awaited node).
        """
        finding, snapshot = self.finding, self.snapshot
        waits = [wait_of(snapshot, waiter) for waiter, _ in pairs]
        if any(wait.deadline_ns is not None for wait in waits):
            return
        awaited = [awaited_of(snapshot, pair) for pair in pairs]
        lost = finding.cause is Cause.LOST_MESSAGE and not any(each.resent for each in awaited)
        may_end = (lost and all(_answers(snapshot, pair) for pair in pairs)) or _outlasts(finding, GIVEN_UP_NS)
        if may_end and self.helps(DEADLINE):
            yield DEADLINE
        if _outlasts(finding, CALLED_GONE_NS) and not any(each.fate is AwaitedFate.MISSED for each in awaited):
            yield from self.detected(pairs)
        if finding.cause is Cause.STRAGGLER and all(map(_by_rule, waits)):
            yield ANY

    def helps(self, setting: str) -> bool:
        """Return whether all nodes that wait first would continue sooner with `setting`, which the scenario must allow.

        If the scenario itself ends permanent stalls (by `wait.on_stall`), the comparison is with a run in which it does
        so.
        """
        if not self.allows(setting):
            return False
        ended = not self.finding.permanent and self.allows(SKIP) != self.allows(RESEND)
        return self.trials.helps(setting, self.finding.roots, ended=ended)

    def detected(self, pairs: Sequence[Edge]) -> Iterator[str]:
        """Yield the setting of a failure detector by heartbeats, if it would end the waits `pairs` sooner.

        It helps only if both nodes of a pair call each other gone: a node that is called gone by the other is sent
        nothing, and would wait for these messages. It is no remedy for a crash if the scenario has an oracle, a
        detector that knows of each crash at once.
        """
        oracle = not self.allows(ORACLE) and self.allows(HEARTBEATS)
        if _is_mutual(self.snapshot, pairs) and not (oracle and _has_crashed(self.snapshot)) and self.helps(HEARTBEATS):
            yield HEARTBEATS


def _in_need_of(snapshot: Snapshot, pairs: Sequence[Edge]) -> bool:
    """Return whether some node can't continue without the unreachable node that it awaits, such as its server.

    `pairs` are (waiting node, awaited node).
    """
    return any(
        wait_of(snapshot, pair[0]).essential and cause_of(snapshot, *pair) is Cause.UNREACHABLE for pair in pairs
    )


def _is_mutual(snapshot: Snapshot, pairs: Sequence[Edge]) -> bool:
    """Return whether no link is down in one direction only for so long that a node would be called gone."""
    lasting_ns, ours = snapshot.at_ns + CALLED_GONE_NS, {pair[::-1] for pair in pairs}
    down = [edge for edge, own in snapshot.edges.items() if not own.up and (own.heals_ns or NEVER_NS) > lasting_ns]
    known = [edge for edge in down if edge in ours or edge[::-1] in snapshot.edges]
    return all(not snapshot.edge(*edge[::-1]).up for edge in known)


def _has_crashed(snapshot: Snapshot) -> bool:
    """Return whether any node of the fleet is down, or has been down before."""
    return any(now.returned or now.state in AWAY for now in snapshot.nodes.values())


def _is_sound(snapshot: Snapshot) -> bool:
    """Return whether no node or link is down, no message was lost, and no event is scheduled for links."""
    down = snapshot.scripted or any(now.state in DOWN for now in snapshot.nodes.values())
    return not down and all(own.up and not own.dropped for own in snapshot.edges.values())


def _by_rule(wait: WaitNow) -> bool:
    """Return whether the setting `wait.for` (all or any) makes a difference to this wait for several messages."""
    return wait.need > 1 and len(wait.awaited) + len(wait.have) > 1 and not wait.cumulative


def _answers(snapshot: Snapshot, pair: Edge) -> bool:
    """Return whether a status query over `pair` would be answered, because its links are up both ways.

    `pair` is (waiting node, awaited node).
    """
    awaited = awaited_of(snapshot, pair)
    by_link = awaited.in_vain and awaited.reason in BY_LINK
    return snapshot.edge(*pair).up and snapshot.edge(*pair[::-1]).up and not by_link


def _outlasts(finding: Finding, ns: int) -> bool:
    """Return whether an unreachable node or a blocked event loop makes the stall last longer than `ns` nanoseconds.

    True for a blocked event loop, because nobody knows when it will answer again.
    """
    if finding.cause is Cause.BLOCKED_LOOP:
        return True
    ends_ns = finding.until_ns
    return finding.cause is Cause.UNREACHABLE and ends_ns is not None and ends_ns - finding.began_ns > ns


OnStall: TypeAlias = Literal["stop", "skip", "resend"]


@dataclass
class Recovery:
    """The way in which the scenario wants stalls to be ended during a run.

    Attributes:
        choice: the scenario's `wait.on_stall`.
        can_send_again: returns whether a sender can send a message again.
        resent: how often each message was sent again, by its sender.
    """

    choice: OnStall
    can_send_again: Callable[[NodeId, Again], bool]
    resent: Counter[tuple[NodeId, Again]] = field(default_factory=Counter)

    def orders(self, finding: Finding, snapshot: Snapshot) -> list[tuple[NodeId, Recover]]:
        """Return the orders to nodes that end the stall `finding`.

        The list is empty if no order can end it, so that the run must stop.
        """
        if not finding.permanent or finding.suspected:
            return []
        if self.choice == "skip":
            return self._skips(finding, snapshot)
        return self._resends(finding, snapshot) if self.choice == "resend" else []

    def waits(self, found: Iterable[Finding], snapshot: Snapshot) -> bool:
        """Return whether some stall is due to lost messages that can be repeated only once their links work again."""
        if self.choice != "resend":
            return False
        lost = (finding for finding in found if finding.permanent and finding.cause is Cause.LOST_MESSAGE)
        in_vain = ([each for each in awaited if each.in_vain] for awaited in (_awaited(snapshot, f) for f in lost))
        return any(each and all(one.passes_ns is not None for one in each) for each in in_vain)

    def _skips(self, finding: Finding, snapshot: Snapshot) -> list[tuple[NodeId, Recover]]:
        waits = [snapshot.nodes[root].wait for root in finding.roots]
        if any(wait is None or wait.what is WaitKind.ROOM for wait in waits):
            return []
        skipped = {root: sorted({s for node, s in finding.witness if node == root}) for root in finding.roots}
        awaited = {root: [s for s in skipped[root] if s in wait_of(snapshot, root).missing] for root in finding.roots}
        return [(root, Recover(skip=tuple(sources))) for root, sources in awaited.items() if sources]

    def _resends(self, finding: Finding, snapshot: Snapshot) -> list[tuple[NodeId, Recover]]:
        if finding.cause is not Cause.LOST_MESSAGE:
            return []
        if any(each.in_vain for each in _awaited(snapshot, finding)):
            return []
        lost = [_lost(snapshot, root, culprit) for root, culprit in finding.witness]
        if any(snapshot.nodes[src].state in DOWN for src, _ in lost):  # a paused node sends once it is resumed
            return []
        if any(self.resent[each] >= MOST_RESENDS or not self.can_send_again(*each) for each in lost):
            return []
        self.resent.update(lost)
        return [(src, Recover(again=(message,))) for src, message in lost]


def _awaited(snapshot: Snapshot, finding: Finding) -> list[AwaitedMessage]:
    return [awaited_of(snapshot, pair) for pair in finding.witness]


def _lost(snapshot: Snapshot, root: NodeId, culprit: NodeId) -> tuple[NodeId, Again]:
    """Return the sender of the lost message for which the node `root` waits, and the message.

    The sender is `culprit`, the awaited node, or `root` itself if its request was lost.
    """
    wait = wait_of(snapshot, root)
    awaited = wait.awaited[culprit]
    src, dst = awaited.edge or (culprit, root)
    if wait.what is WaitKind.MESSAGE:
        kind = Kind.NOTICE if awaited.notice else Kind.DATA
    else:
        kind = Kind.REQUEST if src == root else Kind.REPLY
    return src, Again(dst, wait.round, wait.step, kind)
