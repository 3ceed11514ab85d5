"""The diagnosis of a snapshot, its confirmation by a second one, and the detection of livelock.

`diagnose` joins three searches: stalls that nothing ends (`causes.py`), stalls that have lasted long (`slow.py`), and
livelock, where messages pass and no round ends. Each finding (diagnosed stall) gets the settings of the scenario that
would end it, as tried on the snapshot.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import NodeId
from netdfl.diagnosis.causes import find_doubtful, find_stuck
from netdfl.diagnosis.ending import is_idle
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.remedies import CHANGES, Allows, advise
from netdfl.diagnosis.slow import find_slow
from netdfl.diagnosis.snapshot import AWAY, Snapshot, State
from netdfl.diagnosis.trying import Trials
from netdfl.diagnosis.why import Grounds


def diagnose(
    snapshot: Snapshot,
    *,
    patience_ns: int,
    window: Snapshot | None = None,
    allows: Allows | None = lambda setting: True,
) -> list[Finding]:
    """Return all stalls that a snapshot shows: the permanent ones, then those that have lasted `patience_ns`.

    `window` is an earlier snapshot; if messages have passed since then without progress, that is a livelock. A
    finding's remedies are settings that would end the stall and that `allows` accepts: it returns whether a setting
    could be added to the scenario. None: remedies are not sought.
    """
    found = find_stuck(snapshot)
    roots = {node for finding in found for node in finding.roots}
    behind = {node for finding in found for node in finding.behind} - roots
    found += find_doubtful(snapshot, behind, patience_ns)
    stuck = roots | behind
    slow = find_slow(snapshot, stuck, patience_ns)
    blamed = {culprit for finding in found for culprit in finding.culprits}
    alone = [finding for finding in slow if finding.roots == finding.culprits and blamed.issuperset(finding.culprits)]
    idle = [finding for finding in slow if all(is_idle(snapshot, root) for root in finding.roots)]
    found += [finding for finding in slow if finding not in (*alone, *idle)]
    livelock = find_livelock(window, snapshot) if window is not None and not found else None
    found += [] if livelock is None else [livelock]
    if allows is None:
        return [replace(finding, remedies=None) for finding in found]
    trials = Trials(snapshot, CHANGES)
    return [advise(finding, snapshot, allows, trials) for finding in found]


def confirm(findings: Collection[Finding], first: Snapshot, second: Snapshot) -> list[Finding]:
    """Return `findings`; mark permanent stalls as `suspected` unless two snapshots show the same waits of their nodes.

    Answers to probes come at different times, so one snapshot may show a wait and miss the message that ended it. If
    two snapshots show the same waits and the same counts, the fleet was in this state at a moment between them.
    """
    return [
        replace(finding, suspected=True) if finding.permanent and not _still(finding, first, second) else finding
        for finding in findings
    ]


def _still(finding: Finding, first: Snapshot, second: Snapshot) -> bool:
    held = {*finding.roots, *(node for node in finding.culprits if second.nodes[node].wait is not None)}
    edges = {edge for edge in (*first.edges, *second.edges) if edge[1] in held}
    return all(_same_wait(node, first, second) for node in held) and all(
        first.edge(*edge).counts == second.edge(*edge).counts for edge in edges
    )


def _same_wait(node: NodeId, first: Snapshot, second: Snapshot) -> bool:
    one, two = (snapshot.nodes[node].wait for snapshot in (first, second))
    return one is not None and two is not None and (one.since_ns, one.have) == (two.since_ns, two.have)


LIVELOCK_MESSAGES = 3
LONGEST_ROUND_NS = 3600 * NS_PER_S
"""The longest time, in ns, that a node's round may still need at its pace before it counts as endless."""


def find_livelock(before: Snapshot, now: Snapshot) -> Finding | None:
    """Return a livelock: messages passed between two snapshots, but no node finished a round or is about to.

    A node may be about to finish if it worked all the time, if it has just returned, or if it made steps of its round
    and at that pace needs at most `LONGEST_ROUND_NS` for the others. A node that is down for good never is.
    """
    ended = (State.FINISHED, *AWAY)
    alive = [n for n, own in now.nodes.items() if own.state not in ended and not own.is_down_for_good]
    if not alive or any(now.nodes[n].finished != before.nodes[n].finished for n in now.nodes):
        return None
    if any(_unmoved(before, now, node) or _will_end(before, now, node) for node in alive):
        return None
    more = {edge: now.edges[edge].sent - before.edge(*edge).sent for edge in now.edges}
    busy = tuple(sorted({src for (src, _), count in more.items() if count >= LIVELOCK_MESSAGES}))
    if not busy:
        return None
    edges = tuple(edge for edge, count in sorted(more.items()) if count >= LIVELOCK_MESSAGES)
    rounds = tuple(now.nodes[node].round for node in alive)
    grounds = Grounds(at_ns=now.at_ns, passed=sum(more.values()), window_ns=now.at_ns - before.at_ns, rounds=rounds)
    return Finding(
        cause=Cause.LIVELOCK,
        roots=busy,
        culprits=busy,
        grounds=grounds,
        round=min(rounds),
        behind=tuple(sorted(set(alive) - set(busy))),
        witness=edges,
        began_ns=before.at_ns,
        found_ns=now.at_ns,
    )


def _unmoved(before: Snapshot, now: Snapshot, node: NodeId) -> bool:
    """Return whether `node` was busy or down all the time since the snapshot `before`, without a wait for messages."""
    own, then = now.nodes[node], before.nodes[node]
    return (own.wait is None and own.since_ns <= before.at_ns) or then.state in AWAY


def _will_end(before: Snapshot, now: Snapshot, node: NodeId) -> bool:
    """Return whether a node will finish its round if it continues to make steps at the same pace."""
    then, own = before.nodes[node], now.nodes[node]
    if then.round != own.round or own.step <= then.step:
        return False
    return (own.steps - own.step) * (now.at_ns - before.at_ns) <= (own.step - then.step) * LONGEST_ROUND_NS
