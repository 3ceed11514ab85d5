"""Rounds of a whole fleet computed step by step: without an event loop, messages in flight, or time.

The methods of an algorithm are called in the order in which a node's own loop calls them, for all nodes at once, over
links that lose nothing. So a test can inspect states between two steps, and compare the result of the nodes' loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netdfl.algorithms.base import Algorithm, FamilyName, NodeState
from netdfl.algorithms.families import DOWN, UP, first_state, noticed, reported
from netdfl.algorithms.overlap import given, taken
from netdfl.algorithms.own import check_receivers
from netdfl.core.types import Inbox, Kind, Message, NodeId, Outbox, Role, View
from netdfl.training.base import Task, Update

ViewOf = Callable[[NodeId, int], View]
States = Mapping[NodeId, NodeState]
Tasks = Mapping[NodeId, Task]
Views = Mapping[NodeId, View]
Updates = Mapping[NodeId, Update]


def first_states(alg: Algorithm, tasks: Tasks, view_of: ViewOf) -> States:
    """Return every node's state before round 0."""
    return {i: first_state(task.initial(), alg, view_of(i, 0)) for i, task in tasks.items()}


def play_rounds(alg: Algorithm, states: States, tasks: Tasks, view_of: ViewOf, num_rounds: int) -> States:
    """Return every node's state after `num_rounds` more rounds.

    In pairwise gossip, pairs average one after the other, in the order of the nodes that initiate; where sending
    overlaps with training, messages still arrive within their round.
    """
    for _ in range(num_rounds):
        views = {i: view_of(i, s.round) for i, s in states.items()}
        states = _PLAYED[alg.family](alg, states, tasks, views)
    return states


def in_step(alg: Algorithm) -> bool:
    """Return whether each round of `alg` waits for neighbors' messages, so that this module's results are the nodes'.

    Otherwise the results of nodes depend on the time at which messages arrive.
    """
    return alg.family in ("gossip", "server") or (alg.family == "overlap" and alg.mixing.lag == 0)


def exchange(alg: Algorithm, states: States, updates: Updates, views: Views) -> tuple[States, Updates]:
    """Make all mixing steps of one gossip round, starting from the nodes' states and their updates by training."""
    round = next(iter(views.values())).round
    for step in range(alg.mixing.num_steps(round, next(iter(views.values())))):
        sent = {i: s.outgoing(alg, updates[i], step, views[i]) for i, s in states.items()}
        for i, (_, outbox) in sent.items():
            check_receivers(alg.mixing, outbox, views[i])
        inboxes = _deliver({i: outbox for i, (_, outbox) in sent.items()}, round, step)
        mixed = {i: s.mix(alg, updates[i], inboxes[i], step, views[i]) for i, (s, _) in sent.items()}
        states = {i: s for i, (s, _) in mixed.items()}
        updates = {i: update for i, (_, update) in mixed.items()}
    return states, updates


def _train(alg: Algorithm, states: States, tasks: Tasks, views: Views) -> tuple[States, Updates]:
    trained = {i: s.train(alg, tasks[i].data(s.round), views[i]) for i, s in states.items()}
    updates = {i: update._replace(loss=tasks[i].last_loss) for i, (_, update) in trained.items()}
    return {i: s for i, (s, _) in trained.items()}, updates


def _gossip_round(alg: Algorithm, states: States, tasks: Tasks, views: Views) -> States:
    states, mixed = exchange(alg, *_train(alg, states, tasks, views), views)
    return {i: s.end_round(alg, mixed[i], views[i]) for i, s in states.items()}


def _bilateral_round(alg: Algorithm, states: States, tasks: Tasks, views: Views) -> States:
    states, updates = _train(alg, states, tasks, views)
    steps, before = {i: update.x - update.before for i, update in updates.items()}, alg.mixing.step == "before"
    x = {i: s.x + steps[i] if before else s.x for i, s in states.items()}
    for i in sorted(states):
        peer = alg.mixing.peer(views[i])
        if peer is not None:
            asked = Message(i, peer, Kind.REQUEST, 0, views[i].round, 0, 0, alg.mixing.request(x[i]))
            x[peer], reply = alg.mixing.answer(x[peer], asked)
            told = Message(peer, i, Kind.REPLY, 0, views[i].round, 0, 0, reply)
            x[i] = alg.mixing.settle(x[i], Inbox([told]))
    x = x if before else {i: x[i] + steps[i] for i in x}
    return {i: s.end_round(alg, updates[i]._replace(x=x[i]), views[i]) for i, s in states.items()}


def _overlap_round(alg: Algorithm, states: States, tasks: Tasks, views: Views) -> States:
    began, early = states, alg.mixing.before_training
    sent: Mapping[NodeId, Outbox] = {}
    if early:
        states, sent = _give(alg, states, views)
    states, updates = _train(alg, states, tasks, views)
    states = {i: s._replace(x=updates[i].x) for i, s in states.items()}
    if not early:
        states, sent = _give(alg, states, views)
    inboxes = _deliver(sent, next(iter(views.values())).round, 0)
    after = {i: taken(alg, s, inboxes[i], views[i]) for i, s in states.items()}
    return {i: s._replace(x=began[i].x).end_round(alg, updates[i]._replace(x=s.x), views[i]) for i, s in after.items()}


def _give(alg: Algorithm, states: States, views: Views) -> tuple[States, Mapping[NodeId, Outbox]]:
    parted = {i: given(alg, s, views[i]) for i, s in states.items()}
    return {i: s for i, (s, _) in parted.items()}, {i: outbox for i, (_, outbox) in parted.items()}


def _server_round(alg: Algorithm, states: States, tasks: Tasks, views: Views) -> States:
    (hub,) = (i for i, view in views.items() if view.role is Role.SERVER)
    s, round = states[hub], views[hub].round
    if alg.served_alone(views[hub]):
        s = s.refine(alg, tasks[hub].objective, views[hub])
        return {i: (s if i == hub else states[i])._replace(round=round + 1) for i in states}
    down = _deliver({hub: alg.mixing.broadcast(s.mixing, s.x, views[hub])}, round, DOWN)
    after, up = {}, {}
    for i in states.keys() - {hub}:
        after[i], up[i] = _client(alg, states[i], tasks[i], down.get(i), views[i])
    mixing, x = alg.mixing.aggregate(s.mixing, s.x, _deliver(up, round, UP)[hub], views[hub])
    after[hub] = s._replace(x=x, mixing=mixing).refine(alg, tasks[hub].objective, views[hub])
    return {i: after[i]._replace(round=round + 1) for i in states}


def _client(alg: Algorithm, s: NodeState, task: Task, inbox: Inbox | None, view: View) -> tuple[NodeState, Outbox]:
    adopted = alg.mixing.adopt(inbox, s.x, view) if inbox is not None else None
    if inbox is None or adopted is None:
        return s, {}
    x, received = adopted
    s, update = noticed(alg, s, inbox, view)._replace(x=x, received=received).train(alg, task.data(view.round), view)
    s, outbox = reported(alg, s, update, view)
    return s.end_round(alg, update, view), outbox


def _deliver(outboxes: Mapping[NodeId, Outbox], round: int, step: int) -> dict[NodeId, Inbox]:
    inboxes: dict[NodeId, list[Message]] = {i: [] for i in outboxes}
    for src, outbox in outboxes.items():
        for dst, payload in outbox.items():
            inboxes.setdefault(dst, []).append(Message(src, dst, Kind.DATA, 0, round, step, 0, payload))
    return {i: Inbox(messages) for i, messages in inboxes.items()}


_PLAYED: Mapping[FamilyName, Callable[[Algorithm, States, Tasks, Views], States]] = {
    "gossip": _gossip_round,
    "server": _server_round,
    "bilateral": _bilateral_round,
    "overlap": _overlap_round,
}
