"""A fleet whose data lie apart: its scenario, and each client's own file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from netdfl.record.run import Run

PERSONAL = "SELECT node, round, name, value FROM metrics WHERE name LIKE 'personal_%' ORDER BY ALL"


def scenario(nodes: int, **more: Any) -> dict[str, Any]:
    """A ring that trains on `client_files`, whose clients hold out a fifth of their rows."""
    dataset = {
        "name": "client_files",
        "each": "{node}.csv",
        "target": "kind",
        "inputs": ["a", "b"],
        "classes": ["even", "odd"],
        "mean": [3, 2],
        "std": [2, 1.4],
        "client_test": 0.2,
    }
    return {
        "schema": "netdfl/1",
        "name": "apart",
        "nodes": nodes,
        "rounds": 4,
        "task": {"dataset": dataset, "model": {"name": "mlp", "hidden": [4]}, "batch_size": 8},
        "algorithm": {"name": "dpsgd", "lr": 0.3},
        "topology": "full",
        **more,
    }


def write_file(folder: Path, node: int, shift: int = 0) -> None:
    """Write the file of one client, with rows that no other client has; another `shift` gives other rows."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        (node + shift / 4 + k % 7, (3 * k) % 5 - node, "odd" if k % 7 > 3 else "even") for k in range(20 + 5 * node)
    ]
    with (folder / f"{node}.csv").open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows([("a", "b", "kind"), *rows])


def personal(run: Run) -> list[Any]:
    """Each node's own figures on the rows that it held out, of a run whose data lay apart; there must be some."""
    found = list(run.rows(PERSONAL))
    assert found
    return found
