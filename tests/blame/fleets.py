"""Small fleets whose times are known in closed form, run on disk and blamed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netdfl.blame.blaming import Blame
from netdfl.blame.run import RunBlame, open_blame
from netdfl.running.run import run
from netdfl.scenario.load import load

MS = 10**6
COMPUTE, LATENCY, DEADLINE = 10 * MS, 5 * MS, 100 * MS
RING: Mapping[str, Any] = {
    "schema": "netdfl/1",
    "name": "ring",
    "nodes": 4,
    "rounds": 5,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 1},
    "algorithm": "dpsgd",
    "topology": "ring",
    "wait": {"deadline": "100ms"},
    "links": {"default": {"latency": "5ms"}},
    "evaluation": {"local": "none"},
}
"""A round takes 15 ms: 10 of computing, 5 on the link."""


def listed(*rounds: int) -> dict[str, Any]:
    """Rules of a link that loses the messages of these rounds."""
    return {"loss": {"model": "drop_list", "messages": [{"round": round} for round in rounds]}}


def opened(plain: Mapping[str, Any], where: Path, target: Any = None, **more: Any) -> RunBlame:
    """Run `plain` in the folder `where`, unless it did, and open its blame; deadlines are blamed if asked for alone."""
    more.setdefault("but", ["deadline"])
    path = where / "run"
    if not path.exists():
        run(load(dict(plain)), out=path, page=False)
    return open_blame(path, target, **more)


def blamed(plain: Mapping[str, Any], where: Path, target: Any = None, **more: Any) -> Blame:
    """Run `plain` in the folder `where`, and blame it."""
    return opened(plain, where, target, **more).play()


def gains(blame: Blame) -> dict[str, float | None]:
    """The gain of each candidate by itself, by its text."""
    return {row.candidate.text: blame.gain(row.outcome) for row in blame.rows}


def found(blame: Blame) -> list[str]:
    """The texts of the set."""
    return [each.text for each in blame.found or ()]
