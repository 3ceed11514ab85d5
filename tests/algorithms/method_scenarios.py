"""A small scenario for every method of the catalog: a few clients, digits, two rounds. Shared with the soak suite."""

from __future__ import annotations

from typing import Any

from algorithm_fleets import SMALL

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.training.siamese import TRANSFORMATIONS

GRAPHS = {"server": "star", "average": "full", "column": "random_push", "both_ways": "ring", "doubly": "ring"}
QUICK: dict[str, dict[str, Any]] = {
    "oledfl_sgd": {"beta": 0.4},
    "oledfl_sam": {"beta": 0.4},
    "dfedsgpsm_s": {"neighbors": 2},
    "slowmo": {"every": 2},
    "dispfl": {"density": 0.5},
    "dynafed": {"augment": list(TRANSFORMATIONS)},
}


def scenario(name: str, **more: Any) -> dict[str, Any]:
    """Six clients, two rounds of two small batches; `more` replaces keys."""
    entry = ALGORITHMS[name]
    graph = "full" if entry.selects else next(GRAPHS[need] for need in GRAPHS if need in entry.needs)
    parameters = {"lr": 0.05, "local_steps": 2} | SMALL.get(name, {}) | QUICK.get(name, {})
    return {
        "schema": "netdfl/1",
        "name": name,
        "nodes": 6,
        "rounds": 2,
        "world": {"kind": "simulated"},
        "task": {"dataset": {"name": "digits"}, "model": "mlp", "batch_size": 16},
        "algorithm": {"name": name} | parameters,
        "topology": {"kind": graph} | ({"out_neighbors": 2} if graph == "random_push" else {}),
        "evaluation": {"every": 2, "local": "none"},
    } | more
