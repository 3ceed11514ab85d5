"""The `stalls` folder of a run: each finding with the snapshot that proves it and the stacks of the nodes in it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.core.errors import RunError
from netdfl.core.types import NodeId
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.snapshot import Snapshot
from netdfl.record.forms import OPEN, Count, Nanoseconds, NodeField, Pair, Seconds, read_form
from netdfl.record.plain_json import plain
from netdfl.record.run import RunDirectory

FOLDER = "stalls"
MOST_KEPT = 50
SMALL_FLEET = 100


@with_config(OPEN)
class Told(TypedDict):
    """A finding as it is kept, as far as the report reads it."""

    text: str
    round: Count
    roots: list[NodeField]
    culprits: list[NodeField]
    behind: list[NodeField]
    witness: list[Pair]
    began_s: Seconds
    found_s: Seconds
    permanent: bool


@with_config(OPEN)
class WaitForm(TypedDict):
    """What a node waits for, and since when: the awaited nodes are the keys."""

    since_ns: NotRequired[Nanoseconds]
    awaited: dict[Annotated[str, Field(pattern=r"^\d{1,7}$")], Any]


@with_config(OPEN)
class Now(TypedDict):
    """One node of the snapshot."""

    node: NodeField
    wait: WaitForm | None


@with_config(OPEN)
class Kept(TypedDict):
    """One file of the folder."""

    finding: Told
    nodes: list[Now]


_KEPT: TypeAdapter[Kept] = TypeAdapter(Kept)


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


def kept_stalls(run: Path) -> list[Kept]:
    """What `keep_stall` wrote, those that nothing ends first, then in the order in which they were found.

    Raises:
        InputError: one of them is damaged.
    """
    files = sorted((run / FOLDER).glob("*.json"))[:MOST_KEPT]
    kept = [found for path in files if (found := read_form(path, _KEPT)) is not None]
    return sorted(kept, key=lambda each: not each["finding"]["permanent"])
