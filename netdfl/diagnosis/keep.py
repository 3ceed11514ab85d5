"""The `stalls` folder of a run: each finding with the whole snapshot and the stacks of the nodes in it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netdfl.core.errors import RunError
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.snapshot import Snapshot
from netdfl.record.plain_json import plain
from netdfl.record.run import RunDirectory

FOLDER = "stalls"
MOST_KEPT = 50


def keep_stall(run: Path, finding: Finding, snapshot: Snapshot) -> Path | None:
    """Write one finding with what proves it; None where the folder is full. Raises RunError on a full disk."""
    folder = run / FOLDER
    try:
        folder.mkdir(exist_ok=True)
    except OSError as exc:
        raise RunError(f"{folder} can't be made: {exc.strerror}; everything recorded so far is kept") from exc
    number = len(list(folder.glob("*.json")))
    if number >= MOST_KEPT:
        return None
    edges = [{"src": src, "dst": dst} | asdict(edge) for (src, dst), edge in sorted(snapshot.edges.items())]
    nodes = [asdict(node) for node in snapshot.nodes.values()]
    found = {"at_ns": snapshot.at_ns, "nodes": nodes, "edges": edges}
    return RunDirectory(folder).write_json(f"{number:03d}.json", plain({"finding": finding.to_json(), **found}))


def kept_stalls(run: Path) -> list[dict[str, Any]]:
    """What `keep_stall` wrote, those that nothing ends first, then in the order in which they were found."""
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((run / FOLDER).glob("*.json"))]
    return sorted(kept, key=lambda each: not each["finding"]["permanent"])
