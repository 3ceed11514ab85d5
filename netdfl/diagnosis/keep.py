"""The `stalls` folder of a run: each finding with the snapshot that proves it and the stacks of the nodes in it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from netdfl.core.errors import RunError
from netdfl.core.types import NodeId
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.snapshot import Snapshot
from netdfl.record.kept_stalls import FOLDER
from netdfl.record.kept_stalls import MOST_KEPT as MOST_KEPT
from netdfl.record.kept_stalls import Kept as Kept
from netdfl.record.kept_stalls import kept_stalls as kept_stalls
from netdfl.record.plain_json import plain
from netdfl.record.run import RunDirectory

SMALL_FLEET = 100


def keep_stall(run: RunDirectory, finding: Finding, snapshot: Snapshot) -> Path | None:
    """Write one finding with what proves it; None where the folder is full. Raises RunError on a full disk."""
    if not run.kept:
        return None
    folder = run.path / FOLDER
    try:
        folder.mkdir(exist_ok=True)
    except OSError as exc:
        raise RunError(f"{folder} can't be made: {exc.strerror}; everything recorded so far is kept") from exc
    number = len(list(folder.glob("*.json")))
    if number >= MOST_KEPT:
        return None
    shown = _shown(finding, snapshot)
    kept = [edge for edge in sorted(snapshot.edges) if shown.issuperset(edge)]
    edges = [{"src": src, "dst": dst} | asdict(snapshot.edges[src, dst]) for src, dst in kept]
    nodes = [asdict(node) for node in snapshot.nodes.values() if node.node in shown]
    found = {"at_ns": snapshot.at_ns, "nodes": nodes, "edges": edges}
    return RunDirectory(folder).write_json(f"{number:03d}.json", plain({"finding": finding.to_json(), **found}))


def _shown(finding: Finding, snapshot: Snapshot) -> set[NodeId]:
    """The nodes that prove the finding: all of a small fleet, else those that it names and whom these await."""
    if len(snapshot.nodes) <= SMALL_FLEET:
        return set(snapshot.nodes)
    named = {*finding.roots, *finding.culprits, *finding.behind, *(node for pair in finding.witness for node in pair)}
    waits = [snapshot.nodes[node].wait for node in named & snapshot.nodes.keys()]
    return named | {node for wait in waits if wait is not None for node in wait.awaited}
