"""The scheduled return of a crashed node: its time, with or without its state, and the round in which it begins.

A node that joins late is treated as one that returns without its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from netdfl.core.types import NodeId
from netdfl.links.schedule.events import CompiledEvent


class Return(NamedTuple):
    """The return of a crashed node, with or without the state that it had at the end of its last round.

    `weight` is the push-sum weight with which a node without its state begins. A node with its state trains through
    every round that it missed if `replays`, and else leaves them out.
    """

    at_ns: int
    keep_state: bool
    weight: int = 0
    replays: bool = False

    @classmethod
    def by(cls, event: CompiledEvent, at_ns: int) -> Self:
        """Return the `Return` at `at_ns` that `event`, a restart or a late joining, describes."""
        keep = event.action != "join" and event.parameters.get("state", "kept") == "kept"
        replays = event.parameters.get("rejoin") == "replay"
        return cls(at_ns, keep, event.parameters.get("rejoin_weight", int(event.action == "join")), replays)


def returns_by_node(events: Iterable[CompiledEvent]) -> dict[NodeId, list[CompiledEvent]]:
    """Return the restart events by node, so that each node searches only its own."""
    found: dict[NodeId, list[CompiledEvent]] = {}
    for event in events:
        if event.action == "restart":
            for node in event.nodes:
                found.setdefault(node, []).append(event)
    return found


def joins_by_node(events: Iterable[CompiledEvent]) -> dict[NodeId, CompiledEvent]:
    """Return, for each node that joins late, the event by which it does."""
    return {node: event for event in events if event.action == "join" for node in event.nodes}


def find_return(
    events: Sequence[CompiledEvent], node: NodeId, at_ns: int, *, source: int, at_round: int | None
) -> Return | None:
    """Find the first return of `node` after it crashed at `at_ns`; None: it stays away.

    `source` is the schedule entry that made it crash, and `at_round` the round of this crash, if it was scheduled by
    round.
    """
    found = []
    for event in events:
        if event.action != "restart" or node not in event.nodes:
            continue
        when = event.at_ns
        if event.at_round is not None and (event.source, event.at_round) == (source, at_round):
            when = at_ns + event.after_ns
        if when is not None and when > at_ns:  # at one moment, a return comes before a crash
            found.append(Return.by(event, when))
    return min(found, default=None)


def fresh_round(crashed_in: int, others: Iterable[int]) -> int:
    """Return the first round for a node that lost its state: the first that no other node has begun.

    A node that kept its state begins with the round in which it crashed, and sends that round's messages again.
    Receivers ignore duplicates, so a push-sum message (value and weight) that the node had sent counts once only.
    """
    return max(crashed_in, 1 + max(others, default=-1))


def keeps_state(events: Sequence[CompiledEvent], node: NodeId) -> bool:
    """Return whether the schedule may restart `node` with the state that it had at the end of a round."""
    return any(
        event.action == "restart" and node in event.nodes and event.parameters.get("state", "kept") == "kept"
        for event in events
    )
