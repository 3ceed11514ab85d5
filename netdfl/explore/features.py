"""The features of a run, as a set of hashes: runs that reached the same situations have the same features.

No feature contains a node's number. Each of these is a feature:

- how a wait for messages ended, with the kinds of faults in that round; how two consecutive waits of a node ended;
- a pattern of last senders: which of a node's consecutive waits had their last message from the same node;
- the fate of a message (delivered, late, dropped ...), with the kinds of faults in its round;
- the order in which two messages came to a node;
- an event of a node (`missing`, `gone`, `rejoin` ...), with the faults in its round; the node's events before it; the
  number of nodes with such an event in one round;
- a fate, an event or a wait's end, with the number of nodes that are down, and whether the round is the last one;
- the crashes and restarts during a wait;
- the kind of a stall.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from xxhash import xxh32_intdigest

from netdfl.core.fates import Fate
from netdfl.explore.execute import ExploredRun
from netdfl.explore.rows import MessageRow
from netdfl.links.schedule.compile import ACTIONS
from netdfl.record.base import WaitRecord

Faults = Mapping[int, tuple[str, ...]]
"""The kinds of faults that have an effect in each round."""
ROWS = (3, 4, 5, 6)
_DELIVERED = Fate.DELIVERED.text
_DOWN = {"crash": 1, "restart": -1}
_FAULTS = ("crash", "pause", "restart", "resume")
_OF_THE_FLEET = ("start", "finish", "training", "stall")
NEAR = 1
"""Number of rounds after a fault for which it still counts as having an effect."""


def features_of(run: ExploredRun) -> frozenset[int]:
    """Return the features of `run`: hashes of situations that it reached, such as how a wait for messages ended."""
    faults = _faults(run)
    found = {
        *_waits(run, faults),
        *_in_a_row(run),
        *_fates(run, faults),
        *_orders(run),
        *_happened(run, faults),
        *_while_down(run),
        *_stalls(run),
    }
    return frozenset(xxh32_intdigest(repr(each).encode()) for each in found)


def _faults(run: ExploredRun) -> Faults:
    begun = [
        (at, next((str(key) for key in event if key in ACTIONS), ""))
        for event in run.scenario.events
        if isinstance(at := event.get("at_round"), int)
    ]
    if any(each.name == "round_s" for each in run.rows.measured):
        begun += [(each.round, each.kind) for each in run.rows.events if each.kind in _FAULTS]
    acting: defaultdict[int, set[str]] = defaultdict(set)
    for first, kind in begun:
        for round in range(first, first + NEAR + 1):
            acting[round].add(kind)
    return {round: tuple(sorted(kinds)) for round, kinds in acting.items()}


def _waits(run: ExploredRun, faults: Faults) -> Iterator[tuple[object, ...]]:
    for wait in run.rows.waits:
        missing = min(2, len(wait.missing))
        beside = faults.get(wait.round, ())
        yield "wait", wait.kind.value, wait.step, wait.ended.value, missing, beside


def _in_a_row(run: ExploredRun) -> Iterator[tuple[object, ...]]:
    """Yield features of each node's waits for messages: how two in a row ended, and patterns of the last senders."""
    of_node: defaultdict[int, list[WaitRecord]] = defaultdict(list)
    for wait in run.rows.waits:
        of_node[wait.node].append(wait)
    for waits in of_node.values():
        ways = [(wait.ended.value, min(2, len(wait.missing))) for wait in waits]
        yield from (("then", *pair) for pair in pairwise(ways))
        last = [wait.last_src for wait in waits]
        for length in ROWS:
            for start in range(len(last) - length + 1):
                yield "last", renamed(last[start : start + length])


def renamed(names: Sequence[object]) -> tuple[int, ...]:
    """Return a pattern with names replaced by 0, 1, ... in the order of their first occurrence."""
    known: dict[object, int] = {}
    return tuple(known.setdefault(name, len(known)) for name in names)


def _fates(run: ExploredRun, faults: Faults) -> Iterator[tuple[object, ...]]:
    for m in run.rows.messages:
        if m.fate != _DELIVERED or m.attempt or m.epoch:
            beside = faults.get(m.round, ())
            yield "fate", m.kind.value, m.fate, min(m.attempt, 2), min(m.epoch, 2), beside


def _orders(run: ExploredRun) -> Iterator[tuple[object, ...]]:
    """Yield a feature for each two messages that came to a node one after the other.

    The feature has the kinds and fates of both, their distance in rounds, whether the first has the lower-numbered
    sender, and whether they arrived at the same time.
    """
    came: defaultdict[int, list[MessageRow]] = defaultdict(list)
    for message in run.rows.messages:
        if message.arrived_ns is not None:
            came[message.dst].append(message)
    for messages in came.values():
        for one, other in pairwise(messages):
            apart = max(-3, min(3, other.round - one.round))
            together = one.arrived_ns == other.arrived_ns
            yield "order", one.kind.value, other.kind.value, apart, one.src < other.src, together, one.fate, other.fate


def _happened(run: ExploredRun, faults: Faults) -> Iterator[tuple[object, ...]]:
    together: Counter[tuple[str, int]] = Counter()
    before: defaultdict[int | None, tuple[str, ...]] = defaultdict(tuple)
    for event in run.rows.events:
        if event.kind in _OF_THE_FLEET:
            continue
        yield "event", event.kind, event.details.get("step", 0), faults.get(event.round, ())
        before[event.node] = (*before[event.node][-2:], event.kind)
        yield "after", *before[event.node]
        together[event.kind, event.round] += 1
    for (kind, _), many in together.items():
        yield "together", kind, min(many, 6)


def _while_down(run: ExploredRun) -> Iterator[tuple[object, ...]]:
    """Yield features: events, fates of messages and ends of waits, each with the number of nodes that are down then."""
    changes = sorted((e.at_ns, e.kind, e.node) for e in run.rows.events if e.kind in _DOWN)
    if not changes:
        return
    times, down = [at_ns for at_ns, *_ in changes], [0]
    for _, kind, _ in changes:
        down.append(down[-1] + _DOWN[kind])
    last = run.scenario.rounds - 1

    def beside(at_ns: int, round: int) -> tuple[object, ...]:
        return round == last, min(2, down[bisect_left(times, at_ns)])

    for event in run.rows.events:
        if event.kind not in _OF_THE_FLEET:
            yield "event while", event.kind, *beside(event.at_ns, event.round)
    for m in run.rows.messages:
        if m.fate != _DELIVERED or m.attempt:
            yield "fate while", m.kind.value, m.fate, *beside(m.arrived_ns or m.sent_ns, m.round)
    for wait in run.rows.waits:
        among = changes[bisect_left(times, wait.since_ns) : bisect_right(times, wait.until_ns)]
        if among:
            of = renamed([node for *_, node in among[:4]])
            yield "wait while", wait.ended.value, *beside(wait.since_ns, 0), *(kind for _, kind, _ in among[:4]), of


def _stalls(run: ExploredRun) -> Iterator[tuple[object, ...]]:
    for stall in run.stalls:
        yield "stall", stall.cause.value, stall.over, stall.permanent
