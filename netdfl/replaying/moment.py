"""A replayed fleet at one moment, as plain values: its nodes, its messages in flight, its next events."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from netdfl.core.clock import SCHEDULED
from netdfl.core.types import Edge, Kind, NodeId
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.snapshot import NodeNow, State
from netdfl.links.path import FusedStage
from netdfl.links.rules.base import Departure, Drop, LinkRule
from netdfl.links.sharing.stage import FairStage, LostOnes
from netdfl.mixing.base import has_mass
from netdfl.replaying.happenings import ASIDE, NewsItem, seconds
from netdfl.replaying.playing import Playback
from netdfl.transport.simulated.fabric import FabricFlight

if TYPE_CHECKING:
    from torch import Tensor


def way_of(flight: FabricFlight) -> tuple[int | None, str]:
    """Return when a message in flight arrives (None: never, or unknown), and a description of its remaining path.

    The link's rules still ahead (loss, delay and so on) are applied to it on copies. Their random draws depend on the
    message's identity, so the answer holds unless another message enters a queue before it, or the link is changed.
    """
    if flight.at_ns is None:
        return None, _why_held(flight)
    if flight.unit is None or not flight.stages:
        return flight.at_ns, f"arrives at {seconds(flight.at_ns)}"
    at_ns, unit = flight.at_ns, flight.unit.alone
    for stage in flight.stages:
        if isinstance(stage, FairStage):
            return None, f"goes on at {seconds(at_ns)} over a link that is shared"
        outcomes = copy.deepcopy(stage).enter(unit, at_ns)
        last = outcomes[0] if outcomes else None
        if isinstance(last, Drop):
            return None, f"will be lost at {seconds(at_ns)}: {last.reason}"
        if not isinstance(last, Departure):
            return None, f"will be held from {seconds(at_ns)} by {_name(stage)}"
        at_ns, unit = last.at_ns, last.unit
    through = [_name(stage) for stage in flight.stages if not isinstance(stage, LostOnes)]
    return at_ns, ", through ".join(each for each in (f"arrives at {seconds(at_ns)}", ", ".join(through)) if each)


def _why_held(flight: FabricFlight) -> str:
    """Return, as text, why the time at which a message in flight moves on or arrives is not known."""
    if flight.unit is None:
        return "held: its receiver's mailbox is full"
    stage = flight.edge.path.stages[flight.unit.place]
    if isinstance(stage, FairStage) and not stage.stopped and stage.waits(flight.unit):
        return "waits behind other messages of its link"
    return "held by a link that is down"


def _name(stage: LinkRule) -> str:
    if isinstance(stage, FusedStage):
        return " and ".join(map(_name, stage.stages))
    return type(stage).__name__.lower()


@dataclass(frozen=True, slots=True)
class NodeMoment:
    """One node of a replayed fleet at a moment.

    Attributes:
        now: its state, round, step, and the messages that it waits for, as the diagnosis of stalls sees them.
        unread: the messages in its mailbox, as (src, round, step).
        weight: the push-sum weight that it holds; None if it has crashed, or its algorithm has no such weight.
        norm: the norm of its model at the end of its last round; NaN if it has no model.
        distance: the distance of its model from the average model; NaN if it has no model.
    """

    now: NodeNow
    unread: tuple[tuple[NodeId, int, int], ...]
    weight: float | None
    norm: float
    distance: float


@dataclass(frozen=True, slots=True)
class MessageMoment:
    """A message in flight at one moment of a replay.

    Attributes:
        src: the sender.
        dst: the receiver.
        number: the message's number on its edge, in order of sending; None: its kind is not numbered.
        kind: the purpose of the message.
        round: the round of the message.
        step: the number of the exchange within the round.
        attempt: the number of times that it was sent before.
        sent_ns: when it was sent.
        at_ns: when it arrives; None: unknown, because it is held back or shares a link, or it will be lost.
        way: a description of its remaining path: when it arrives and which rules of its link it passes, or why it does
            not arrive.
    """

    src: NodeId
    dst: NodeId
    number: int | None
    kind: Kind
    round: int
    step: int
    attempt: int
    sent_ns: int
    at_ns: int | None
    way: str


@dataclass(frozen=True, slots=True)
class NextEvent:
    """An event that is due next, as text, with its time."""

    at_ns: int
    what: str


@dataclass(frozen=True, slots=True)
class Moment:
    """The whole replayed fleet at one moment of virtual time.

    Attributes:
        at_ns: the time of the moment.
        step: the number of steps of the event loop since the start.
        ended: whether the run has ended.
        nodes: the nodes; empty if they have not started yet.
        flying: the messages in flight.
        coming: the events that are due next.
        waits: the edges of the wait-for graph, as (waiting node, awaited node).
        findings: the stalls that the diagnosis finds.
        news: the latest events.
        consensus_distance: the root of the mean squared distance of the models from their average; NaN without models.
    """

    at_ns: int
    step: int
    ended: bool
    nodes: Sequence[NodeMoment]
    flying: Sequence[MessageMoment]
    coming: Sequence[NextEvent]
    waits: Sequence[Edge]
    findings: Sequence[Finding]
    news: Sequence[NewsItem]
    consensus_distance: float

    @property
    def round(self) -> int:
        """The highest round that any node has reached."""
        return max((node.now.round for node in self.nodes), default=0)


def see(playing: Playback) -> Moment:
    """Return the state of a replayed fleet at its current moment, without nodes if they have not started yet."""
    lives = bool(playing.world.nodes) and playing.supervisor.fleet.start_ns is not None
    snapshot, findings = playing.watch.seen(idle=playing.next_ns is None) if lives else (None, [])
    models = _models(playing) if lives else {}
    norms, distances, spread = _spread(models)
    seen, waiting = ({}, ()) if snapshot is None else (snapshot.nodes, snapshot.waiting)
    nodes = [_node(playing, now, norms.get(n, math.nan), distances.get(n, math.nan)) for n, now in seen.items()]
    return Moment(
        at_ns=playing.now_ns,
        step=playing.steps,
        ended=playing.ended,
        nodes=nodes,
        flying=_flying(playing) if lives else [],
        coming=_coming(playing) if lives else [],
        waits=[(node, source) for node, wait in waiting for source in sorted(wait.missing)],
        findings=findings,
        news=list(playing.happenings.news),
        consensus_distance=spread,
    )


def _node(playing: Playback, now: NodeNow, norm: float, distance: float) -> NodeMoment:
    node = playing.world.nodes[now.node].host.node
    unread = tuple(sorted((m.src, m.round, m.step) for m in node.mailbox.unread()))
    return NodeMoment(now, unread, None if now.state is State.CRASHED else node.held_weight, norm, distance)


def _models(playing: Playback) -> dict[NodeId, tuple[Tensor, float]]:
    """Return each node's model vector and push-sum weight at the end of its last round."""
    found = {}
    for node, simulated in playing.world.nodes.items():
        own = simulated.host.node
        if own.latest is not None:
            found[node] = (own.latest.x, own.weight_of(own.latest))
    return found


def _spread(
    models: Mapping[NodeId, tuple[Tensor, float]],
) -> tuple[dict[NodeId, float], dict[NodeId, float], float]:
    """Return the norms of models, their distances from the average model, and the consensus distance."""
    held = {node: (x.double(), weight) for node, (x, weight) in models.items() if has_mass(weight)}
    if not held:
        return {}, {}, math.nan
    average = reduce(add, (x for x, _ in held.values())) / sum(weight for _, weight in held.values())
    z = {node: x / weight for node, (x, weight) in held.items()}
    norms = {node: float(each.norm()) for node, each in z.items()}
    distances = {node: float((each - average).norm()) for node, each in z.items()}
    return norms, distances, math.sqrt(sum(each**2 for each in distances.values()) / len(distances))


def _flying(playing: Playback) -> list[MessageMoment]:
    flights = playing.world.fabric.flights()
    edges = {flight.edge.edge for flight in flights}
    numbers = {edge: playing.happenings.numbers(edge, flights) for edge in edges}
    found = []
    for flight in flights:
        m, sending = flight.content
        number = None if m.kind in ASIDE else numbers[m.src, m.dst][m.id]
        at_ns, way = way_of(flight)
        found.append(MessageMoment(*m[:2], number, m.kind, m.round, m.step, m.attempt, sending.sent_ns, at_ns, way))
    return sorted(found, key=lambda each: (each.at_ns is None, each.at_ns or 0, each.src, each.dst, each.number or 0))


def _coming(playing: Playback) -> list[NextEvent]:
    """Return all events that are due, in order of time: timers, and moves and arrivals of messages in flight."""
    timers = [NextEvent(due.at_ns, _words(due.name)) for due in playing.loop.due()]
    network = [
        NextEvent(each.at_ns, f"{m.kind} {m.src}->{m.dst} {'goes on' if each.stages else 'arrives'}")
        for each in playing.world.fabric.flights()
        if each.at_ns is not None and (m := each.content[0])
    ]
    return sorted([*timers, *network], key=lambda each: each.at_ns)


def _words(name: Sequence[object]) -> str:
    """Return what a timer is for as a text for people, from the timer's `name`, a tuple such as ("wait", 3, 7)."""
    match name:
        case ("train", node, _, *_):
            return f"node {node} ends its local round"
        case (kind, source, action, *nodes) if kind == SCHEDULED:
            what = {"set": "begins on links", "unset": "ends on links"}.get(str(action), action)
            return f"the scenario's events[{source}]: {what} {', '.join(map(str, nodes))}".rstrip()
        case ("wait", node, round, *_):
            return f"node {node}'s wait of round {round} comes to its deadline"
        case ("again", node, *_):
            return f"node {node} sends again what was not acknowledged"
        case ("ask", node, *_):
            return f"node {node} asks for what it lacks"
        case ("fetch", node, *_):
            return f"node {node} gives up fetching a model"
        case ("end",):
            return "the supervisor looks whether the clients have ended"
        case ():
            return "a timer of asyncio's"
        case (what, *rest):
            return " ".join(map(str, (what, *rest)))
    return ""
