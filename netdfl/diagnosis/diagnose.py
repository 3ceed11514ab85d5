"""The whole diagnosis of a moment, and what two moments confirm."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from netdfl.core.types import NodeId
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.ending import is_idle
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.livelock import find_livelock
from netdfl.diagnosis.remedies import Allows, advise
from netdfl.diagnosis.slow import find_slow
from netdfl.diagnosis.snapshot import Snapshot


def diagnose(
    snapshot: Snapshot, *, patience_ns: int, window: Snapshot | None = None, allows: Allows = lambda setting: True
) -> list[Finding]:
    """Everything that holds the fleet up: what nothing ends first, then what has lasted `patience_ns`.

    `window` is a snapshot from before; messages without progress since then are a livelock. `allows` says which
    settings the scenario could be given, from which the remedies are taken.
    """
    found = find_stuck(snapshot)
    stuck = {node for finding in found for node in (*finding.roots, *finding.behind)}
    slow = find_slow(snapshot, stuck, patience_ns)
    blamed = {culprit for finding in found for culprit in finding.culprits}
    alone = [finding for finding in slow if finding.roots == finding.culprits and blamed.issuperset(finding.culprits)]
    idle = [finding for finding in slow if all(is_idle(snapshot, root) for root in finding.roots)]
    found += [finding for finding in slow if finding not in (*alone, *idle)]
    livelock = find_livelock(window, snapshot) if window is not None and not found else None
    found += [] if livelock is None else [livelock]
    return [advise(finding, snapshot, allows) for finding in found]


def confirm(findings: Collection[Finding], first: Snapshot, second: Snapshot) -> list[Finding]:
    """Mark what nothing ends as `suspected`, unless its nodes stood still between the two snapshots.

    Answers to probes come at different times, so one snapshot may show a wait and miss the message
    that ended it. Where the same waits and the same counts are seen twice, the fleet stood so at the
    moment between.
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
