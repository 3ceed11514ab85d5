"""Nodes on no graph train as if each were a fleet of its own: the baseline of what talking gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netdfl

FLEET: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "alone",
    "nodes": 3,
    "rounds": 2,
    "world": "simulated",
    "task": {"dataset": "digits", "model": "mlp"},
    "algorithm": {"name": "dfedavg", "local_epochs": 1},
    "evaluation": {"local": "all"},
}


def figures(path: Path) -> list[tuple[object, ...]]:
    wanted = "node IS NOT NULL AND (name LIKE 'test%' OR name = 'train_loss')"
    return netdfl.open_run(path).rows(f"SELECT node, round, name, value FROM metrics WHERE {wanted} ORDER BY ALL")


def messages(path: Path) -> int:
    return int(netdfl.open_run(path).rows("SELECT count(*) FROM messages")[0][0])


def test_nobody_sends_and_each_trains_on_its_own(tmp_path: Path) -> None:
    apart = netdfl.run({**FLEET, "topology": "alone"}, out=tmp_path / "alone", page=False)
    unheard = {"topology": "ring", "wait": {"for": "none"}, "links": {"default": {"loss": 1.0}}}
    silent = netdfl.run({**FLEET, **unheard}, out=tmp_path / "unheard", page=False)
    assert apart.result["verdict"] == "done"
    assert (messages(apart.path), messages(silent.path)) == (0, 12)
    assert len(figures(apart.path)) >= 6
    assert figures(apart.path) == figures(silent.path)
