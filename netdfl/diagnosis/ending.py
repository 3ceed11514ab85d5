"""The end of a run whose nodes have rounds left, and the sentences about these nodes, for simulated and real fleets.

A run ends early if no running node can continue: each is held by a permanent stall, or has nothing left to do, as a
client without its server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.reduce import Supply, supplies
from netdfl.diagnosis.snapshot import AWAY, AwaitedFate, NodeNow, Snapshot, State, WaitKind
from netdfl.diagnosis.watch import Pace
from netdfl.record.status import FleetStatus, Phase

AFTER_SERVER_NS = NS_PER_S
"""Time in ns between two checks whether clients still make progress, after the end of their server."""
MOST_AFTER_SERVER_NS = 10 * NS_PER_S
"""Time in ns for which clients may continue after the end of their server.

Slow clients may continue for as long as a wait may last before it counts as a stall.
"""
MOST_BY_ITSELF_NS = 60 * NS_PER_S
"""The longest time in ns for which a client that waits, or fetches a model, counts as able to continue by itself.

This is after the end of the client's server. The wait must have a deadline, or its message must be on its way.
"""


def is_over(findings: Collection[Finding], snapshot: Snapshot, running: Collection[NodeId]) -> bool:
    """Return whether no running node can continue: each is blocked permanently, or has nothing left to do.

    A livelock counts, too. A run is not over while a node is due to return or to join. Nor is it over if no node is
    running, for one may be about to return.
    """
    if any(now.state in AWAY and now.back_ns is not None for now in snapshot.nodes.values()):
        return False
    if any(finding.cause is Cause.LIVELOCK for finding in findings):
        return True
    left = set(running) - _held(findings)
    return bool(running) and all(_stands(snapshot, node) or is_idle(snapshot, node) for node in left)


def time_is_up(server_done_ns: int, now_ns: int, pace: Pace) -> bool:
    """Return whether clients have used up their time after the end of their server; slow fleets get more time."""
    return now_ns - server_done_ns >= max(MOST_AFTER_SERVER_NS, pace.patience_ns)


def goes_on(snapshot: Snapshot, running: Collection[NodeId]) -> bool:
    """Return whether some client will continue by itself after the end of its server.

    It will if the scenario ends its pause or the outage of its link, or if its message will be sent again, however
    late; or, within `MOST_BY_ITSELF_NS`, if its wait has a deadline, its message is on its way, or it fetches a model.
    """
    return any(_goes_on(snapshot, snapshot.nodes[node]) for node in running)


def _goes_on(snapshot: Snapshot, now: NodeNow) -> bool:
    wait = now.wait
    if wait is None:
        lasts_ns = snapshot.at_ns - now.since_ns
        return now.back_ns is not None or (now.state is State.FETCHING and lasts_ns < MOST_BY_ITSELF_NS)
    coming = [source for source, how in supplies(snapshot, now.node, wait).items() if how is Supply.SURE]
    edges = (snapshot.edge(*(wait.awaited[source].edge or (source, now.node))) for source in coming)
    if any(edge.heals_ns is not None for edge in edges):
        return True
    if any(wait.awaited[source].resent for source in coming):
        return True  # its sender gives up after so many attempts, which may last longer than anything else
    ends = wait.deadline_ns is not None or bool(coming)
    return ends and snapshot.at_ns - wait.since_ns < MOST_BY_ITSELF_NS


def _held(findings: Collection[Finding]) -> set[NodeId]:
    sure = [finding for finding in findings if finding.permanent and not finding.suspected]
    return {node for finding in sure for node in (*finding.roots, *finding.behind)}


def _stands(snapshot: Snapshot, node: NodeId) -> bool:
    """Return whether a node can't continue: its event loop has stopped, or it is paused and never resumed."""
    now = snapshot.nodes[node]
    return now.state is State.STOPPED or (now.state is State.PAUSED and now.back_ns is None)


def is_idle(snapshot: Snapshot, node: NodeId) -> bool:
    """Return whether a client waits only for its finished server, with no message under way or unread.

    A client with a deadline is not idle: it continues at the deadline.
    """
    now = snapshot.nodes[node]
    if now.wait is None or now.early or not now.wait.essential or now.wait.what is not WaitKind.MESSAGE:
        return False
    if now.wait.deadline_ns is not None:
        return False
    coming = (AwaitedFate.IN_FLIGHT, AwaitedFate.HELD)
    return all(
        snapshot.nodes[source].state is State.FINISHED and not awaited.resent and awaited.fate not in coming
        for source, awaited in now.wait.awaited.items()
    )


def lasts(snapshot: Snapshot, finding: Finding) -> bool:
    """Return whether some wait of a stall still lasts; False if all nodes that wait first are idle clients."""
    now = ((snapshot.nodes[waiter].wait, source, round) for waiter, source, round in finding.waits)
    waits = any(wait is not None and wait.round == round and source in wait.missing for wait, source, round in now)
    return waits and not all(is_idle(snapshot, root) for root in finding.roots)


# sentences about nodes that did not finish


def unfinished(
    status: FleetStatus, server: NodeId | None, findings: Collection[Finding] = (), snapshot: Snapshot | None = None
) -> list[str]:
    """Return sentences about nodes that should have finished but did not, unless the stalls in `findings` name them.

    `snapshot` is the fleet at the end of the run, if some nodes still ran.
    """
    told = {node for finding in findings for node in (*finding.roots, *finding.culprits, *finding.behind)}
    said: list[str] = []
    if snapshot is not None:
        left = [own.node for own in status.running if own.node not in told and not is_idle(snapshot, own.node)]
        said += _by_state([snapshot.nodes[node] for node in left], status.rounds)
    if server is not None and server not in told and status.nodes[server].phase is Phase.CRASHED:
        said.append(without_server(server, status.nodes[server].round, status.rounds))
    return said


def without_server(server: NodeId, round: int, rounds: int) -> str:
    """Return the sentence about a server that crashed by the schedule and did not return."""
    where = f"in round {round} of {rounds}"
    return f"node {server}, the server, crashed {where} and did not return: clients had no rounds after that"


def not_ended(left: Mapping[NodeId, int], rounds: int) -> list[str]:
    """Return the sentence about nodes that had rounds left at the end of the run; `left` has their rounds."""
    if not left:
        return []
    where = words.rounds(list(left.values()))
    return [f"{words.nodes(list(left))} had not finished when the run ended: {where} of {rounds}"]


def _by_state(left: Sequence[NodeNow], rounds: int) -> Iterator[str]:
    paused = [now for now in left if now.state is State.PAUSED and now.back_ns is None]
    stopped = [now for now in left if now.state is State.STOPPED]
    for nodes, what in ((paused, "paused and never resumed"), (stopped, "stopped: no answer comes any more")):
        if nodes:
            where = words.rounds([now.round for now in nodes])
            who = words.nodes([now.node for now in nodes])
            yield f"{who} {'is' if len(nodes) == 1 else 'are'} {what}, in {where} of {rounds}"
    yield from not_ended({now.node: now.round for now in left if now not in paused and now not in stopped}, rounds)
