"""When a run is over though nodes still have rounds before them, and what is to be said of those. For every world."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.reduce import Supply, supplies
from netdfl.diagnosis.snapshot import AwaitedFate, NodeNow, Snapshot, State, What
from netdfl.diagnosis.watch import Pace
from netdfl.record.status import FleetStatus, Phase

AFTER_SERVER_NS = NS_PER_S
"""How long after its server's end a fleet is looked at again and again."""
MOST_AFTER_SERVER_NS = 10 * NS_PER_S
"""How long clients may go on after their server's end where their pace is not slower than that."""
MOST_BY_ITSELF_NS = 60 * NS_PER_S
"""So long one wait of a client under a deadline, or its asking for a model, may take then."""


def is_over(findings: Collection[Finding], snapshot: Snapshot, running: Collection[NodeId]) -> bool:
    """Whether the run has nothing to wait for: every running node is held for good or has nothing to do any more.

    So it is where messages go in circles, too. While a node that crashed is due to return, its rounds are still to
    come; where no node runs this tells nothing, as one may be about to return.
    """
    if any(now.state is State.CRASHED and now.back_ns is not None for now in snapshot.nodes.values()):
        return False
    if any(finding.cause is Cause.LIVELOCK for finding in findings):
        return True
    left = set(running) - _held(findings)
    return bool(running) and all(_stands(snapshot, node) or is_idle(snapshot, node) for node in left)


def time_is_up(server_done_ns: int, now_ns: int, pace: Pace) -> bool:
    """Whether clients that still go on have had their time since their server's end."""
    return now_ns - server_done_ns >= max(MOST_AFTER_SERVER_NS, pace.patience_ns)


def goes_on(snapshot: Snapshot, running: Collection[NodeId]) -> bool:
    """Whether some client goes on by itself after its server's end.

    The scenario ends its pause or the outage of its link, however late; or its wait has a deadline, its message is
    still on its way or sent again, or it fetches a model.
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
    ends = wait.deadline_ns is not None or bool(coming)
    return ends and snapshot.at_ns - wait.since_ns < MOST_BY_ITSELF_NS


def _held(findings: Collection[Finding]) -> set[NodeId]:
    sure = [finding for finding in findings if finding.permanent and not finding.suspected]
    return {node for finding in sure for node in (*finding.roots, *finding.behind)}


def _stands(snapshot: Snapshot, node: NodeId) -> bool:
    """Whether a node was paused, and the scenario never resumes it."""
    now = snapshot.nodes[node]
    return now.state is State.STOPPED or (now.state is State.PAUSED and now.back_ns is None)


def is_idle(snapshot: Snapshot, node: NodeId) -> bool:
    """Whether a client waits for its server alone, which has finished, and nothing of it is on its way or unread.

    Who has a deadline goes on without it.
    """
    now = snapshot.nodes[node]
    if now.wait is None or now.early or not now.wait.essential or now.wait.what is not What.MESSAGE:
        return False
    if now.wait.deadline_ns is not None:
        return False
    coming = (AwaitedFate.IN_FLIGHT, AwaitedFate.HELD)
    return all(
        snapshot.nodes[source].state is State.FINISHED and not awaited.resent and awaited.fate not in coming
        for source, awaited in now.wait.awaited.items()
    )


def lasts(snapshot: Snapshot, finding: Finding) -> bool:
    """Whether one of the waits of `finding` is there still, and not of a client that has nothing to do any more."""
    now = ((snapshot.nodes[waiter].wait, source, round) for waiter, source, round in finding.waits)
    waits = any(wait is not None and wait.round == round and source in wait.missing for wait, source, round in now)
    return waits and not all(is_idle(snapshot, root) for root in finding.roots)


# what is said of who did not finish


def unfinished(
    status: FleetStatus, server: NodeId | None, findings: Collection[Finding] = (), snapshot: Snapshot | None = None
) -> list[str]:
    """Sentences about nodes that should have finished and have not, where none of `findings` says so already.

    `snapshot` is the fleet at its end, where some of its nodes still ran.
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
    """What is to be said where a server crashed, as the scenario wants, and did not return."""
    where = f"in round {round} of {rounds}"
    return f"node {server}, the server, crashed {where} and did not return: clients had no rounds after that"


def not_ended(left: Mapping[NodeId, int], rounds: int) -> list[str]:
    """What is to be said of nodes that were in these rounds, of `rounds`, when the run ended."""
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
