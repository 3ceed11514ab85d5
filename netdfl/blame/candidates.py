"""Candidates: possible causes of a run's cost, such as a slow node or a lossy link. Each can be taken out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from netdfl.core.errors import OwnPartError
from netdfl.core.fates import CORRUPT, LOSS, Fate
from netdfl.core.types import Edge, Kind, NodeId
from netdfl.explore.rows import MessageRow
from netdfl.links.rules.latency import Delay
from netdfl.links.spec import LinkPart, LinksSpec
from netdfl.record.base import WaitEnd, WaitRecord
from netdfl.scenario.build import build_links, build_underlay
from netdfl.scenario.model.schema import Scenario
from netdfl.underlay.underlay import Underlay
from netdfl.worlds.simulated.compute import ComputeTime

CandidateKind: TypeAlias = Literal["slowness", "loss", "message", "delay", "event", "bottleneck", "deadline"]
KINDS: tuple[CandidateKind, ...] = get_args(CandidateKind)
BY_LUCK = Fate.dropped(LOSS).text
_RULE_OF = {BY_LUCK: "loss", Fate.dropped(CORRUPT).text: "corrupt"}
_MENDS = ("heal", "restart", "resume")
"""Keys of events that end the effect of an earlier event."""
CORE = "core"
LEAST_DRAW = 2.0**-53
"""The smallest number that a random draw for a message gives; draws lie between 0 and 1."""
MessageName: TypeAlias = tuple[Any, ...]
"""The name of a message: sender, receiver, kind, incarnation of the sender, round, step, attempt, and a number that
counts messages alike in all of these."""


@dataclass(frozen=True)
class Candidate:
    """A possible cause of what a run cost.

    Attributes:
        kind: the kind of cause.
        place: the thing that is taken out: a node, a link, a message's name, the index of an event, or the two sites of
            a core link.
        text: the cause in words.
    """

    kind: CandidateKind
    place: tuple[Any, ...]
    text: str


def find_candidates(
    scenario: Scenario,
    rows: Sequence[MessageRow],
    compute: ComputeTime,
    clients: Sequence[NodeId],
    waits: Sequence[WaitRecord] = (),
    *,
    messages: bool = False,
) -> list[Candidate]:
    """Return all candidates of a run: the possible causes of its cost in time, bytes or accuracy.

    Args:
        scenario: the run's scenario.
        rows: the messages of the run.
        compute: returns the time in ns that a node computes in a round.
        clients: the nodes that train.
        waits: the waits of the run.
        messages: make each lost message a candidate, in place of all losses of a link together.
    """
    links = build_links(scenario)
    edges = sorted({row[:2] for row in rows})
    return [
        *_slow(compute, clients, scenario.rounds),
        *(_messages if messages else _losses)(links, rows),
        *_delays(links, edges),
        *_bottlenecks(links, edges),
        *_core_links(build_underlay(scenario), edges),
        *_deadlines(waits),
        *_events(scenario.events),
    ]


def _slow(compute: ComputeTime, clients: Sequence[NodeId], rounds: int) -> Iterator[Candidate]:
    """Yield, as possible causes, the clients that compute longer than the median of the other clients in some round."""
    found: set[NodeId] = set()
    for round in range(rounds if len(clients) > 1 else 0):
        times = sorted((compute(node, round), node) for node in clients)
        found.update(node for place, (took, node) in enumerate(times) if took > _median_without(times, place))
    yield from (Candidate("slowness", (node,), f"the slowness of node {node}") for node in sorted(found))


def _median_without(times: Sequence[tuple[int, NodeId]], gone: int) -> float:
    """Return the median of sorted times without the one at index `gone`."""
    middle = [place + (place >= gone) for place in ((len(times) - 2) // 2, (len(times) - 1) // 2)]
    return sum(times[place][0] for place in middle) / 2


def _losses(links: LinksSpec, rows: Sequence[MessageRow]) -> Iterator[Candidate]:
    """Yield, as possible causes, links that lost or damaged messages by their own rules, not by a scheduled event."""
    lost = sorted({(row[:2], row.fate) for row in rows if row.fate in _RULE_OF})
    edges = dict.fromkeys(edge for edge, fate in lost if getattr(links.link(edge), _RULE_OF[fate]) is not None)
    yield from (Candidate("loss", edge, f"the losses on {edge[0]}->{edge[1]}") for edge in edges)


def _messages(links: LinksSpec, rows: Sequence[MessageRow]) -> Iterator[Candidate]:
    for name, row in named(rows):
        if row.fate == BY_LUCK and links.link((row.src, row.dst)).loss is not None:
            yield Candidate("message", name, f"the loss of {words_of(name)}")


def named(rows: Sequence[MessageRow]) -> Iterator[tuple[MessageName, MessageRow]]:
    """Yield each message with its name, in order of sending."""
    numbers: dict[tuple[Any, ...], int] = {}
    for row in sorted(rows, key=lambda row: (row.sent_ns, row.src, row.dst, row.kind, row.round, row.step)):
        name = row[:7]
        number = numbers[name] = numbers.get(name, -1) + 1
        yield (*name, number), row


def words_of(name: MessageName) -> str:
    """Return a message's name as text for people, such as `data 2->3 of round 7`."""
    src, dst, kind, life, round, step, attempt, number = name
    more = [f"step {step}"] if step else []
    more += [f"attempt {attempt}"] if attempt else []
    more += [f"life {life}"] if life else []
    more += [f"number {number}"] if number else []
    return f"{kind} {src}->{dst} of round {round}" + (f" ({', '.join(more)})" if more else "")


def _delays(links: LinksSpec, edges: Sequence[Edge]) -> Iterator[Candidate]:
    for edge in edges:
        rules = links.link(edge)
        if rules.reorder is not None or delay_of(rules.latency).quantile is not None:
            yield Candidate("delay", edge, f"the extra delay of {edge[0]}->{edge[1]}")


def delay_of(latency: LinkPart | None) -> Delay:
    """Return the distribution of a link's latency."""
    built = None if latency is None else latency.build()
    return built if isinstance(built, Delay) else Delay(fifo=True)


def least_ns(delay: Delay) -> int:
    """Return the smallest delay in ns that a latency rule with this distribution can give."""
    try:
        return delay.constant_ns if delay.quantile is None else int(delay.quantile(LEAST_DRAW))
    except OwnPartError:  # a user's distribution whose lowest end no run meets
        return 0


def _bottlenecks(links: LinksSpec, edges: Sequence[Edge]) -> Iterator[Candidate]:
    for key, end in (("uplink", 0), ("downlink", 1)):
        for node in sorted({edge[end] for edge in edges}):
            if getattr(links.node(node), key) is not None:
                yield Candidate("bottleneck", (node, key), f"the {key} of node {node}")


def _core_links(underlay: Underlay | None, edges: Sequence[Edge]) -> Iterator[Candidate]:
    """Yield, as possible causes, the directions of core links with a rate that messages cross or may cross.

    Messages may cross other core links after rerouting.
    """
    if underlay is None:
        return
    crossed = dict.fromkeys(link for edge in edges for link in underlay.way(edge))
    for link in crossed if underlay.reroute_ns is None else underlay.network.links.values():
        if link.figures.rate_bps is not None:
            yield Candidate("bottleneck", (link.src, link.dst, CORE), f"the rate of the core link {link.name}")


def _deadlines(waits: Sequence[WaitRecord]) -> Iterator[Candidate]:
    """Yield, as possible causes, the nodes that stopped waiting for data at their deadline, with some missing."""
    ended = {each.node for each in waits if each.kind is Kind.DATA and each.ended is WaitEnd.DEADLINE and each.missing}
    yield from (Candidate("deadline", (node,), f"the deadline of node {node}") for node in sorted(ended))


def _events(events: Sequence[Mapping[str, Any]]) -> Iterator[Candidate]:
    for index, event in enumerate(events):
        if not any(key in event for key in _MENDS):
            told = ", ".join(f"{key}: {value}" for key, value in event.items()).replace("'", "")
            yield Candidate("event", (index,), f"events[{index}] ({told})")
