"""The sentence about a diagnosed stall, with one clause for each reason. All its English text is here."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.why import FEW_LINKS, IS_DOWN, NOT_COME, Divide, Grounds, Need, Reason, ReasonKind, clauses

_LOSSES = {"loss": "", "scripted": "", "queue": "a queue was full", "corrupt": "damaged"}
_CUT_LOSSES = {"down": "down", "reset": "reset"}
_DOWN = {ReasonKind.PAUSED: "paused", ReasonKind.STANDING: "standing still outside any wait"}


def say(grounds: Grounds, roots: Sequence[NodeId], behind: Sequence[NodeId], *, permanent: bool) -> str:
    """Return the main part of a stall's sentence: which nodes wait, for what, and why.

    `roots` are the nodes that wait first; the nodes `behind` wait for them in turn.
    """
    if grounds.passed:
        return _circles(grounds, roots)
    if grounds.alone is ReasonKind.SILENT:
        return f"the event loop of {words.nodes(roots)} has not answered for {_lasting(grounds, grounds.since_ns)}"
    if grounds.alone is not None:
        return f"{words.nodes(roots)} {'stands' if len(roots) == 1 else 'stand'} still outside any wait"
    said = _each_other(grounds.knot, roots) if grounds.knot else _because(grounds, permanent=permanent)
    return said + words.behind(behind, roots)


def _circles(grounds: Grounds, busy: Sequence[NodeId]) -> str:
    passed = f"{grounds.passed} messages passed in {words.seconds(grounds.window_ns)} and no node finished a round"
    return f"{passed}: {words.nodes(busy)} in {words.rounds(grounds.rounds)}"


def _lasting(grounds: Grounds, since_ns: int) -> str:
    return words.seconds(grounds.at_ns - since_ns)


def _each_other(knot: Sequence[Need], roots: Sequence[NodeId]) -> str:
    where = words.rounds([need.round for need in knot])
    if not any(need.awaited for need in knot):
        waiting = f"{'waits' if len(roots) == 1 else 'wait'} in {where}"
        return f"{words.nodes(roots)} {waiting} for more messages than there are nodes that could send one"
    lacks = ((need.node, words.lacking(need.awaited, need.short, room=need.room)) for need in knot if need.awaited)
    each = words.listed(f"{node} for {what}" for node, what in lacks)
    return f"{words.nodes(roots)} wait for each other in {where}: {each}"


def _because(grounds: Grounds, *, permanent: bool) -> str:
    """Return a phrase: which nodes wait for which messages, and why these do not come."""
    reasons, why = grounds.reasons, grounds.reasons[0].why
    if permanent and grounds.room:
        return _no_room(grounds)
    if not permanent and why in (
        ReasonKind.AT_WORK,
        ReasonKind.FETCHING,
        ReasonKind.ON_ITS_WAY,
        ReasonKind.SILENT,
        ReasonKind.FULL,
    ):
        return _for_now(grounds)
    roots, culprits = _waiters(reasons), _sources(reasons)
    waiting = f"{'waits' if len(roots) == 1 else 'wait'} in {_where(reasons)}"
    if why is ReasonKind.LOST_OR_LATE:
        edges = words.arrows(_edges(reasons))
        return f"{words.nodes(roots)} {waiting} for {words.nodes(culprits)}, which sent it: lost or late on {edges}"
    groups = clauses(reasons)
    if len(groups) > 1:
        return f"{words.nodes(roots)} {waiting}: {'; '.join(_told(grounds, groups))}"
    if why is ReasonKind.CUT and len(reasons) > FEW_LINKS:
        return f"{words.span(roots)} {waiting}: {_cut(grounds, reasons)}"
    if why in NOT_COME and (divide := _divide(grounds, reasons)) is not None:
        by, core = words.entry({each.event for each in reasons}), words.core_links([r.core for r in reasons], past=True)
        passed = f"{f'{core} down and ' if core else ''}nothing passed {_sides(divide)}{by}"
        return f"{words.span(roots)} {waiting} for messages that were lost while {passed}"
    return f"{words.nodes(roots)} {waiting} for {words.nodes(culprits)}, {_what_of(grounds, reasons)}"


def _no_room(grounds: Grounds) -> str:
    reasons = grounds.reasons
    mailbox = f"the mailbox of {words.nodes(_sources(reasons))} is full"
    full = f"{words.nodes(_waiters(reasons))} can't send in {_where(reasons)}: {mailbox}"
    if all(each.why is ReasonKind.FULL for each in reasons):
        return full
    return f"{full}, as {'; '.join(_told(grounds, clauses(reasons)))}"


def _for_now(grounds: Grounds) -> str:
    """Return the phrase about a stall that ends by itself, such as a wait for a node that is still at work."""
    first = min(grounds.reasons, key=lambda each: each.source)
    roots, culprit = _waiters(grounds.reasons), first.source
    who = f"{words.nodes(roots)} {'waits' if len(roots) == 1 else 'wait'} in {_where(grounds.reasons)}"
    match grounds.reasons[0].why:
        case ReasonKind.AT_WORK:
            at_work = f"has been at work in round {first.source_round} for {_lasting(grounds, first.since_ns)}"
            return f"node {culprit} {at_work}; {who} for it"
        case ReasonKind.FETCHING:
            model = "a model to begin with" if first.joined else "a model in place of the one that it lost"
            return f"node {culprit} has been asking for {model} for {_lasting(grounds, first.since_ns)}; {who} for it"
        case ReasonKind.SILENT:
            silent = f"has not answered for {_lasting(grounds, first.since_ns)}"
            return f"the event loop of node {culprit} {silent}; {who} for it"
        case ReasonKind.FULL:
            return f"{who} for room in the mailbox of {words.nodes(_sources(grounds.reasons))}, which is full"
    reason = grounds.reasons[0]
    over = words.arrows([reason.edge])
    if reason.is_request:
        return f"{who} for node {reason.source}, to which its request is still on its way over {over}"
    return f"{who} for the message of node {reason.source}, which is still on its way over {over}"


# clauses


def _told(grounds: Grounds, groups: Sequence[Sequence[Reason]]) -> list[str]:
    """Return one clause of the stall's sentence for each group of reasons why awaited messages do not come."""
    told: set[NodeId] = set()
    said = []
    for group in groups:
        said.append(_clause(grounds, group, told))
        told |= set(_waiters(group))
    return said


def _clause(grounds: Grounds, group: Sequence[Reason], told: Collection[NodeId]) -> str:
    """Return a clause about the reasons in `group`: `node 1 crashed and does not return`.

    Nodes in `told` have been named before: `node 0 also lacks node 2's message`.
    """
    if group[0].why in NOT_COME:
        return "; ".join(_lacks([r for r in group if r.waiter == waiter], told) for waiter in _waiters(group))
    if group[0].why is ReasonKind.CUT:
        return _cut(grounds, group)
    if group[0].why is ReasonKind.SILENT:
        return f"the event {_silent(grounds, group, f' of {words.nodes(_sources(group))}')}"
    return f"{words.nodes(_sources(group))} {_what_of(grounds, group).removeprefix('which ')}"


def _what_of(grounds: Grounds, group: Sequence[Reason]) -> str:
    """Return the reason that a group of waits shares, to follow a node's name: `whose message was lost on 2->3`."""
    why, many = group[0].why, len(_sources(group)) > 1
    if why in NOT_COME:
        return _lost(group)
    if why in IS_DOWN:
        return _down(group)
    if why is ReasonKind.RETURNED_PAST and all(each.joined for each in group):
        return f"which joined late and {'are' if many else 'is'} past that round"
    if why is ReasonKind.RETURNED_PAST:
        return f"which crashed and, since {'their return, are' if many else 'its return, is'} past that round"
    if why is ReasonKind.CUT:
        return f"from which {'it is' if len(group) == 1 else 'they are'} cut off: {_cut(grounds, group)}"
    if why is ReasonKind.SILENT:
        return f"whose event {_silent(grounds, group)}"
    return _never(group, many=many)


def _silent(grounds: Grounds, group: Sequence[Reason], whose: str = "") -> str:
    """Return a phrase about event loops that do not answer, such as `loop has not answered for 8 s`."""
    silent, many = _lasting(grounds, min(each.since_ns for each in group)), len(_sources(group)) > 1
    return f"loop{'s' * many}{whose} {'have' if many else 'has'} not answered for {silent}"


def _never(group: Sequence[Reason], *, many: bool) -> str:
    whys = {each.why for each in group}
    if ReasonKind.UNKNOWN_SENDERS in whys:
        return "and does not know which of them will send"
    if whys == {ReasonKind.TAKEN_FOR_GONE}:
        return f"which took {words.nodes(_waiters(group))} for gone and did not send it"
    if whys == {ReasonKind.FINISHED}:
        return f"which {'have' if many else 'has'} finished and {'send' if many else 'sends'} nothing any more"
    return f"which {'are' if many else 'is'} past that round and did not send it"


def _down(group: Sequence[Reason]) -> str:
    why, ends, many = group[0].why, [each.until_ns for each in group], len(_sources(group)) > 1
    if why is ReasonKind.ABSENT:
        return f"which {words.joins(ends, [each.joins_in for each in group], many=many)}"
    if why is ReasonKind.CRASHED:
        hoped = group[0].hoped
        return f"which {'died' if hoped else 'crashed'} and {words.back(ends, many=many, hoped=hoped)}"
    how = _DOWN.get(why, "stopped")
    return f"which {'are' if many else 'is'} {how} {words.until(ends, 'and never resumed')}"


def _lacks(group: Sequence[Reason], told: Collection[NodeId]) -> str:
    """Return the clause about lost messages that one waiter lacks; it says `also` if the waiter is in `told`."""
    first, many = group[0], len(group) > 1
    also = "also lacks" if first.waiter in told else "lacks"
    whose = words.listed(f"node {each.source}'s" for each in group)
    arrows, why = words.arrows(_edges(group)), _why_lost(group)
    if first.is_request:
        return f"node {first.waiter} {also} {whose} answer: its request was lost on {arrows}{why}"
    what = "notice" if first.notice else "message"
    return f"node {first.waiter} {also} {whose} {what}{'s' * many} of round {first.round}, lost on {arrows}{why}"


def _lost(group: Sequence[Reason]) -> str:
    first, many = group[0], len(group) > 1
    arrows, why = words.arrows(_edges(group)), _why_lost(group)
    if first.is_request:
        return f"which its request never reached: it was lost on {arrows}{why}"
    what = "notice that nothing comes" if first.notice else f"message{'s' * many}"
    return f"whose {what} {'were' if many and not first.notice else 'was'} lost on {arrows}{why}"


def _why_lost(group: Sequence[Reason]) -> str:
    """Return ` (events[2]: the link was down)`, and whether the message is sent again; no reason for random loss."""
    said = sorted({_cause_of_loss(each, many=len(group) > 1) for each in group} - {""})
    entry = words.entry({each.event for each in group}).strip(" ()")
    why = ": ".join(part for part in (entry, " and ".join(said)) if part)
    return (f" ({why})" if why else "") + (", and will be sent again" if all(r.resent for r in group) else "")


def _cause_of_loss(reason: Reason, *, many: bool) -> str:
    receiver = reason.edge[1]
    if reason.why is ReasonKind.RECEIVER_DOWN:
        return f"node {receiver} was down"
    if reason.why is ReasonKind.RECEIVER_RESTARTED:
        return f"node {receiver} took it before it crashed"
    if reason.loss in _CUT_LOSSES and reason.core:
        return f"the core link {reason.core} was {_CUT_LOSSES[reason.loss]}"
    if reason.loss in _CUT_LOSSES:
        return f"the {'links were' if many else 'link was'} {_CUT_LOSSES[reason.loss]}"
    return _LOSSES.get(reason.loss, reason.loss)


# links that are down


def _cut(grounds: Grounds, group: Sequence[Reason]) -> str:
    """Return `2->3 is down until 20 s`, or `nothing passes between nodes 0 to 3 and nodes 4 to 7 for good`.

    Where core links are the reason, they are named: `the core link a--b is down for good; nothing passes between ...`.
    """
    ends, by = words.until([each.until_ns for each in group]), words.entry({each.event for each in group})
    divide, core = _divide(grounds, group), words.core_links([each.core for each in group])
    if divide is not None and core:
        return f"{core} down {ends}{by}; nothing passes {_sides(divide)}"
    if divide is not None:
        return f"nothing passes {_sides(divide)} {ends}{by}"
    as_core = f", as {core}" if core else ""
    return f"{words.arrows(_edges(group))} {'is' if len(group) == 1 else 'are'} down {ends}{as_core}{by}"


def _divide(grounds: Grounds, group: Sequence[Reason]) -> Divide | None:
    """Return how the links that the reasons in `group` are about divide the fleet into groups of nodes.

    Return None if they don't.
    """
    return next((each for each in grounds.divides if each.edges == tuple(_edges(group))), None)


def _sides(divide: Divide) -> str:
    """Return `between nodes 0 to 3 and nodes 4 to 7`, or `from node 2 to nodes 3 to 5`."""
    sides = [words.span(side) for side in divide.sides]
    return f"from {sides[0]} to {sides[1]}" if divide.one_way else f"between {words.listed(sides)}"


def _waiters(reasons: Sequence[Reason]) -> list[NodeId]:
    return sorted({each.waiter for each in reasons})


def _sources(reasons: Sequence[Reason]) -> list[NodeId]:
    return sorted({each.source for each in reasons})


def _edges(reasons: Sequence[Reason]) -> list[Edge]:
    return [each.edge for each in reasons]


def _where(reasons: Sequence[Reason]) -> str:
    return words.rounds([each.round for each in reasons])
