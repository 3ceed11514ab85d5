"""Livelock: messages pass, and no node comes to the end of a round."""

from __future__ import annotations

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.snapshot import Snapshot, State

LIVELOCK_MESSAGES = 3
LONGEST_ROUND_NS = 3600 * NS_PER_S
"""A round of many steps that would take longer than this from now on counts as one that never ends."""


def find_livelock(before: Snapshot, now: Snapshot) -> Finding | None:
    """Messages passed between the two snapshots, no node finished a round, and none is about to.

    Who was at work all the time may be, and so may who got on in the steps of its round, where at that pace the rest
    of them take no longer than `LONGEST_ROUND_NS`.
    """
    alive = [n for n, own in now.nodes.items() if own.state not in (State.FINISHED, State.CRASHED)]
    if not alive or any(now.nodes[n].finished != before.nodes[n].finished for n in now.nodes):
        return None
    if any(_unmoved(before, now, node) or _will_end(before, now, node) for node in alive):
        return None
    more = {edge: now.edges[edge].sent - before.edge(*edge).sent for edge in now.edges}
    busy = tuple(sorted({src for (src, _), count in more.items() if count >= LIVELOCK_MESSAGES}))
    if not busy:
        return None
    edges = tuple(edge for edge, count in sorted(more.items()) if count >= LIVELOCK_MESSAGES)
    window = words.seconds(now.at_ns - before.at_ns)
    where = words.rounds([now.nodes[node].round for node in alive])
    what = (
        f"{sum(more.values())} messages passed in {window} and no node finished a round: {words.nodes(busy)} in {where}"
    )
    return Finding(
        cause=Cause.LIVELOCK,
        roots=busy,
        culprits=busy,
        what=what,
        round=min(now.nodes[node].round for node in alive),
        behind=tuple(sorted(set(alive) - set(busy))),
        witness=edges,
        began_ns=before.at_ns,
        found_ns=now.at_ns,
    )


def _unmoved(before: Snapshot, now: Snapshot, node: NodeId) -> bool:
    """Whether a node did one thing other than waiting through the whole window: a straggler's mark."""
    own = now.nodes[node]
    return own.wait is None and own.since_ns <= before.at_ns


def _will_end(before: Snapshot, now: Snapshot, node: NodeId) -> bool:
    """Whether a node comes to the end of its round, if its steps go on as they did."""
    then, own = before.nodes.get(node), now.nodes[node]
    if then is None or then.round != own.round or own.step <= then.step:
        return False
    return (own.steps - own.step) * (now.at_ns - before.at_ns) <= (own.step - then.step) * LONGEST_ROUND_NS
