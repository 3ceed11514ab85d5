"""Made-up fleets for the tests of the diagnosis: short to write by hand, or drawn at random."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hypothesis import strategies as st

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, EdgeNow, NodeNow, Snapshot, State, WaitKind, WaitNow


def waits(
    node: NodeId,
    on: Mapping[NodeId, AwaitedMessage] | Collection[NodeId],
    *,
    need: int | None = None,
    round: int = 0,
    have: Collection[NodeId] = (),
    what: WaitKind = WaitKind.MESSAGE,
    since_ns: int = 0,
    deadline_ns: int | None = None,
    gone: Collection[NodeId] = (),
    undecided: Collection[NodeId] = (),
    essential: bool = False,
    from_anybody: bool = False,
    ends_ns: int | None = None,
) -> NodeNow:
    """`node` waits for `on`: unsent messages where no fate is given, all of them where no `need` is given."""
    awaited = dict(on) if isinstance(on, Mapping) else {source: AwaitedMessage() for source in on}
    wait = WaitNow(
        round=round,
        need=len(awaited) + len(have) if need is None else need,
        awaited=awaited,
        have=frozenset(have),
        gone=frozenset(gone),
        undecided=frozenset(undecided),
        essential=essential,
        from_anybody=from_anybody,
        since_ns=since_ns,
        deadline_ns=deadline_ns,
        what=what,
    )
    state = State.SENDING if what is WaitKind.ROOM else State.WAITING
    own = {"round": round, "finished": round - 1, "since_ns": since_ns, "ends_ns": ends_ns}
    return NodeNow(node=node, state=state, wait=wait, **own)


def is_(node: NodeId, state: State, *, round: int = 0, **more: Any) -> NodeNow:
    return NodeNow(node=node, state=state, round=round, finished=round - 1, **more)


def fleet(
    *nodes: NodeNow, edges: Mapping[Edge, EdgeNow] | None = None, at_ns: int = 10**9, detector: str = "none"
) -> Snapshot:
    by_id = {now.node: now for now in nodes}
    return Snapshot(at_ns=at_ns, nodes=by_id, edges=edges or {}, detector=detector)


def lost(src: NodeId, dst: NodeId, reason: str = "loss") -> AwaitedMessage:
    return AwaitedMessage(AwaitedFate.LOST, reason, (src, dst))


FLYING = AwaitedMessage(AwaitedFate.IN_FLIGHT)


@st.composite
def fleets(draw: st.DrawFn, most: int = 6, states: Collection[State] = tuple(State)) -> Snapshot:
    """Any fleet: states, waits of every type, fates, edges cut for good or for a while."""
    size, ends = draw(st.integers(2, most)), st.sampled_from([None, None, None, 20])
    nodes, edges = [], {}
    for node in range(size):
        state = draw(st.sampled_from([*states, State.WAITING, State.WAITING, State.WAITING]))
        if state not in (State.WAITING, State.SENDING):
            back = draw(st.sampled_from([None, 10])) if state in (State.CRASHED, State.PAUSED) else None
            nodes.append(is_(node, state, back_ns=back, ends_ns=draw(ends)))
            continue
        others = draw(st.sets(st.integers(0, size - 1).filter(lambda n, own=node: n != own), min_size=1))
        usual = [AwaitedFate.UNSENT] * 3
        fates = st.sampled_from([*usual, AwaitedFate.IN_FLIGHT, AwaitedFate.LOST, AwaitedFate.NEVER])
        flags = st.sampled_from([{}, {"resent": True}, {"replaced": True}])
        on = {other: AwaitedMessage(draw(fates), **draw(flags)) for other in sorted(others)}
        gone, undecided = (draw(st.sets(st.sampled_from(sorted(on)), max_size=1)) for _ in range(2))
        what = WaitKind.ROOM if state is State.SENDING else WaitKind.MESSAGE
        more = {"undecided": undecided, "essential": draw(st.integers(0, 4)) == 0, "ends_ns": draw(ends)}
        nodes.append(waits(node, on, need=draw(st.integers(1, len(on))), gone=gone, what=what, **more))
        for other in sorted(on):
            if draw(st.integers(0, 5)) == 0:
                edges[other, node] = EdgeNow(up=False, heals_ns=draw(st.sampled_from([None, 10])))
    return fleet(*nodes, edges=edges, detector=draw(st.sampled_from(["none", "heartbeat", "oracle"])))


def plain_waits(draw: st.DrawFn, size: int, need: str) -> Snapshot:
    """Nodes that run, or wait for unsent messages: for all of them (`all`) or for any one (`any`)."""
    nodes = []
    for node in range(size):
        on = draw(st.sets(st.integers(0, size - 1).filter(lambda n, own=node: n != own)))
        nodes.append(waits(node, on, need=len(on) if need == "all" else 1) if on else is_(node, State.RUNNING))
    return fleet(*nodes)
