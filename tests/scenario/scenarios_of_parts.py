"""Scenarios with a part of a user's own, written for tests of its contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import load
from netdfl.scenario.model.contracts import CONTRACTS

SCENARIO = """schema: netdfl/1
name: own
nodes: 4
rounds: 2
algorithm: {name: dfedavg}
"""
PLACES = {
    "topology": "topology: {kind: P}",
    "weights": "topology: {kind: ring, weights: {kind: P}}",
    "selection": "topology: {kind: ring, selection: {kind: P}}",
    "dataset": "topology: ring\ntask: {dataset: {name: P}}",
    "partition": "topology: ring\ntask: {dataset: {name: digits, partition: {kind: P}}}",
    "augmentation": "topology: ring\ntask: {dataset: {name: digits, augment: {kind: P}}}",
    "model": "topology: ring\ntask: {model: {name: P}}",
    "training loss": "topology: ring\ntask: {loss: {name: P}}",
    "metric": "topology: ring\ntask: {metrics: [{name: P}]}",
    "task": "topology: ring\ntask: {kind: P}",
    "compression": "topology: ring\ncompression: {kind: P}",
    "loss": "topology: ring\nlinks: {default: {loss: {model: P}}}",
    "latency": "topology: ring\nlinks: {default: {latency: {dist: P}}}",
    "rate": "topology: ring\nlinks: {default: {rate: {kind: P}}}",
    "uplink": "topology: ring\nlinks: {default: {uplink: {kind: P}}}",
    "downlink": "topology: ring\nlinks: {default: {downlink: {kind: P}}}",
    "duplicate": "topology: ring\nlinks: {default: {duplicate: {kind: P}}}",
    "corrupt": "topology: ring\nlinks: {default: {corrupt: {kind: P}}}",
    "reorder": "topology: ring\nlinks: {default: {reorder: {kind: P}}}",
    "compute time": "topology: ring\nworld: {kind: simulated, compute: {kind: P}}",
}


def written(tmp_path: Path, what: str, program: str) -> Path:
    """A scenario whose part `what` is `parts:mine` of `program`, on its sixth line or below."""
    (tmp_path / "parts.py").write_text(program)
    text = SCENARIO + PLACES.get(what, "topology: ring") + "\n"
    if what == "algorithm":
        text = text.replace("dfedavg", "P")
    file = tmp_path / "s.yaml"
    file.write_text(text.replace(" P", ' "parts:mine"'))
    return file


def refused(tmp_path: Path, what: str, program: str) -> str:
    """What loading says; checked to be one problem, at the name of the part."""
    file = written(tmp_path, what, program)
    with pytest.raises(ScenarioError) as caught:
        load(file)
    (problem,) = caught.value.problems
    line = file.read_text().splitlines()[problem.line - 1]
    assert line[problem.column - 1 :].startswith('"parts:mine"')
    assert "\n" not in str(problem)
    return str(problem)


def definition(what: str, body: str) -> str:
    context = CONTRACTS[what].context
    return f"\ndef mine({', '.join(context)}{', /' if context else ''}):\n    {body}\n"
