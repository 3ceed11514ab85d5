"""Holds what a run said to the truth: whether it ends, where a stall begins, by which rule, whether remedies help."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from netdfl.core.clock import NS_PER_S
from netdfl.core.errors import InputError
from netdfl.core.types import NodeId
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.why import NEVER_SENT, Reason, ReasonKind
from netdfl.explore.execute import ExploredRun
from netdfl.explore.rows import MemoryStore
from netdfl.record.judge import WELL
from netdfl.scenario.load import loads
from netdfl.scenario.loading.resolved import to_plain
from netdfl.scenario.model.schema import Scenario
from tests.soak.fleets.playing import Patient, Played, Player
from tests.soak.fleets.truth import Fact, Truth, decide

LONGEST_NS = 60 * NS_PER_S
"""A run that goes on for longer than this after all that could still happen is one that does not end."""
WHYS: Mapping[str, frozenset[ReasonKind]] = {
    "down": frozenset({ReasonKind.CRASHED, ReasonKind.PAUSED, ReasonKind.STOPPED, ReasonKind.SILENT}),
    "cut": frozenset({ReasonKind.CUT}),
    "held": frozenset({ReasonKind.CUT}),
    "lost": frozenset({ReasonKind.LOST, ReasonKind.CUT}),
    "receiver down": frozenset({ReasonKind.RECEIVER_DOWN, ReasonKind.CRASHED}),
    "receiver restarted": frozenset({ReasonKind.RECEIVER_RESTARTED}),
    "never sent": NEVER_SENT | {ReasonKind.RETURNED_PAST},
    "full": frozenset({ReasonKind.FULL}),
    "waits": frozenset({ReasonKind.WAITING}),
}


@dataclass
class Judged:
    """What is wrong with what a run said, each with its kind; `truth` is the truth, `told` what was told."""

    truth: Truth
    played: Played
    wrong: list[tuple[str, str]] = field(default_factory=list)
    tried: int = 0
    cpu_s: float = 0.0


def judge(scenario: Scenario, player: Player) -> Judged:
    """Run a fleet, play it on, and compare. What netdfl raises is wrong of that fleet alone."""
    try:
        return _judged(scenario, player)
    except Exception as error:
        return Judged(Truth(False), Played(ExploredRun(scenario, MemoryStore())), [("broke", repr(error))])


def _judged(scenario: Scenario, player: Player) -> Judged:
    ran = player.play(scenario, remedies=True)
    on = player.play(scenario, Patient)
    if on.run.error is not None:
        return Judged(Truth(False), ran, [("broke", on.run.broke.strip().splitlines()[-1])], cpu_s=ran.cpu_s + on.cpu_s)
    judged = Judged(decide(scenario, on), ran, cpu_s=ran.cpu_s + on.cpu_s)
    judged.wrong += compared(ran, on, judged.truth)
    if not judged.wrong:
        judged.wrong += remedies(ran, player, judged)
    return judged


def tell(scenario: Scenario, ran: Played) -> Judged:
    """Nothing wrong so far."""
    return Judged(Truth(False), ran)


def left(played: Played) -> list[Finding]:
    """The stalls for good at the end of a run."""
    return [stall for stall in played.run.stalls if stall.permanent and not stall.over]


def compared(ran: Played, on: Played, truth: Truth) -> Iterator[tuple[str, str]]:
    """What is wrong with what a run said, remedies aside, each with its kind."""
    if ran.run.error is not None:
        yield "broke", ran.run.broke.strip().splitlines()[-1]
        return
    well = ran.run.verdict in WELL
    late_ns = max(ns for ns in [on.moved_ns, 0, *_returns(on), *_sent_again(on)] if ns <= ran.ended_ns)
    if ran.ended_ns > late_ns + LONGEST_NS:
        yield "too long", f"it ended at {ran.ended_ns / 1e9:g} s, and nothing moved since {late_ns / 1e9:g} s"
    if truth.ends and not well:
        yield "healthy ended", f"{ran.run.verdict}: {'; '.join(ran.run.reasons)}"
    if truth.ends:
        return
    if well:
        yield "passed", f"{ran.run.verdict}, though {truth}"
        return
    yield from _roots(ran, truth)
    over = [stall for stall in ran.run.stalls if stall.permanent and stall.over and not stall.ended_by]
    if over:
        yield "for good and over", over[0].text


def _returns(played: Played) -> Iterator[int]:
    return (each.at_ns for each in played.rows.events if each.kind in ("restart", "resume"))


def _sent_again(played: Played) -> Iterator[int]:
    """When messages were sent that were lost before: as long as that goes on, it may help."""
    return (each.sent_ns for each in played.rows.messages if each.attempt)


def _roots(ran: Played, truth: Truth) -> Iterator[tuple[str, str]]:
    """Every node with which a stall begins is named with all its reasons, and no other."""
    told: dict[NodeId, list[Reason]] = {}
    of_knot: set[tuple[NodeId, NodeId]] = set()
    others = [stall for stall in ran.run.stalls if not (stall.permanent or stall.over)]
    for stall in left(ran):
        if stall.grounds.knot and stall.cause in (Cause.DEADLOCK, Cause.FLOW_CONTROL):
            of_knot |= set(stall.witness)
            continue
        lost = {(reason.waiter, reason.source): reason for reason in stall.grounds.reasons}
        if lost.keys() <= truth.lost.keys():  # the knot by the messages that would have kept it from being one
            of_knot |= lost.keys()
            wrong = (_wrong_rule(reason, truth.lost[pair]) for pair, reason in lost.items())
            yield from (("rule", f"told {what} in a knot") for what in wrong if what)
            continue
        for reason in stall.grounds.reasons:
            told.setdefault(reason.waiter, []).append(reason)
    true = {node: facts for node, facts in truth.roots.items() if node not in truth.idle}
    if ran.run.scenario.failure_detector.kind == "heartbeat":  # by which a beat that was lost leaves a chance
        for reason in (reason for stall in others for reason in stall.grounds.reasons):
            if reason.waiter in set(true) - set(told):
                told.setdefault(reason.waiter, []).append(reason)
    missed = [node for node in set(true) - set(told) if not _was_to_come(ran, true[node])]
    if set(told) - set(truth.roots) or missed:
        yield "root", f"told {sorted(told)}, true {sorted(truth.roots)}: {truth}"
        return
    beside = [reason for stall in others for reason in stall.grounds.reasons if reason.waiter in told]
    for reason in beside:  # what may yet end, while something else keeps that node for good
        if reason.source not in {each.source for each in told[reason.waiter]}:
            told[reason.waiter].append(reason)
    if bool(of_knot) != bool(truth.knot) or of_knot - truth.knot:
        yield "knot", f"told {sorted(of_knot)}, true {sorted(truth.knot)}"
    for node, reasons in told.items():
        wait = ran.stands[node].wait
        yield from _reasons(reasons, truth.roots[node], ran.ended_ns, frozenset() if wait is None else wait.out)


def _was_to_come(ran: Played, facts: Sequence[Fact]) -> bool:
    """Whether all that a node lacks was called gone when the run ended, by chance, or still to be sent again."""
    wait = ran.stands[facts[0].waiter].wait
    out = frozenset() if wait is None else wait.out
    return all(fact.source in out or fact.sure_ns > ran.ended_ns for fact in facts)


def _reasons(
    reasons: Sequence[Reason], facts: Sequence[Fact], ended_ns: int, out: frozenset[NodeId]
) -> Iterator[tuple[str, str]]:
    known = {fact.source: fact for fact in facts}
    for reason in reasons:
        fact = known.get(reason.source)
        if fact is None:
            yield "root", f"node {reason.waiter} is told to wait for {reason.source}, true: {_said(facts)}"
        elif reason.why not in WHYS[fact.what] or _is_of_another_state(reason, fact):
            yield "reason", f"told {reason.why}, true: {fact}"
        elif wrong := _wrong_rule(reason, fact):
            yield "rule", f"told {wrong}, true: {fact}"
    missed = {source for source, fact in known.items() if fact.sure_ns <= ended_ns} - out
    if missed := missed - {reason.source for reason in reasons}:
        yield "root", f"not told that node {facts[0].waiter} lacks {sorted(missed)}: {_said(facts)}"


def _is_of_another_state(reason: Reason, fact: Fact) -> bool:
    """Whether a reason says of its source what it is not: crashed, paused, finished, or back from a crash."""
    match reason.why:
        case ReasonKind.CRASHED if fact.what == "receiver down":  # it is the receiver of a request alone
            return not reason.is_request or fact.state != "crashed"
        case ReasonKind.CRASHED | ReasonKind.PAUSED | ReasonKind.FINISHED:
            return fact.state != reason.why.value
        case ReasonKind.RETURNED_PAST:
            return not fact.returned
    return False


def _wrong_rule(reason: Reason, fact: Fact) -> str:
    """What is wrong of the rule that is told; empty where nothing is."""
    if (
        fact.what == "lost"
        and reason.why is ReasonKind.LOST
        and (reason.loss != fact.loss or reason.notice != fact.notice)
    ):
        return f"{reason.loss}{' of a notice' * reason.notice}"
    if fact.what in ("lost", "held", "cut") and reason.event not in (fact.events or {None}):
        by_chance = fact.loss == "loss" and reason.event is None and fact.by_chance
        return "" if by_chance else f"events {reason.event}"
    if reason.edge != fact.edge and fact.what != "down":
        return f"on {reason.edge}"
    if fact.what == "never sent" and (reason.why is ReasonKind.TAKEN_FOR_GONE) != fact.gone:
        return str(reason.why)
    return ""


def _said(facts: Sequence[Fact]) -> str:
    return "; ".join(map(str, facts))


# remedies


def remedies(ran: Played, player: Player, judged: Judged) -> Iterator[tuple[str, str]]:
    """Each remedy that is named helps: with it, the nodes that wait first come past that round, or further."""
    named = sorted({remedy for stall in ran.run.stalls for remedy in stall.remedies})
    for remedy in named:
        try:
            changed = with_setting(ran.run.scenario, remedy)
        except InputError as error:
            yield "remedy", f"{remedy} can't be set: {error}"
            continue
        after = player.play(changed)
        judged.tried += 1
        judged.cpu_s += after.cpu_s
        if after.run.error is not None:
            yield "remedy", f"with {remedy}: {after.run.broke.strip().splitlines()[-1]}"
            continue
        for stall in ran.run.stalls:
            if remedy in stall.remedies and not _helped(stall, ran, after):
                yield "remedy", f"{remedy} does not help: {stall.text}"


def with_setting(scenario: Scenario, remedy: str) -> Scenario:
    """`scenario` with a setting. Raises InputError."""
    return loads(json.dumps(to_plain(scenario)), ["=".join(remedy.split(": ", 1))])


def _helped(stall: Finding, before: Played, after: Played) -> bool:
    """Whether each root of the stall gets on sooner; to stand there for another reason is no help."""
    return all(_is_over(root, before, after, stall) for root in stall.roots)


def _is_over(root: NodeId, before: Played, after: Played, stall: Finding) -> bool:
    """Whether a root ended the round in which it stood, sooner than it did; or at all, where the scenario ends that."""
    begun = [round for round, at_ns in before.rounds[root].items() if at_ns < stall.found_ns]
    was, now = (_passed_ns(played, root, max(begun, default=0)) for played in (before, after))
    finished = after.stands[root].state == "finished"  # also one without a round to make
    if finished and (stall.ended_by or before.stands[root].state != "finished"):
        return True
    return now is not None and (was is None or now < was or bool(stall.ended_by))


def _passed_ns(played: Played, node: NodeId, round: int) -> int | None:
    """When a node ended a round, or was past it; None: never."""
    ended = (each for each in played.rows.measured if each.name == "round_s" and each.node == node)
    times = [each.at_ns for each in ended if each.round >= round]
    return min(times, default=None)
