"""Methods train in real processes: here a few kinds of message, each kind in `tests.soak.in_full`.

`tests.soak.every_method` has all methods.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from method_scenarios import scenario

import netdfl
from netdfl.record.judge import WELL
from netdfl.worlds.fork_client import ForkServer

QSGD = {"compression": {"kind": "qsgd", "bits": 8}}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "several steps of gossip": ("dfedsam_mgs", {}),
    "averages of masked vectors": ("dispfl", {}),
    "choco": ("choco_sgd", QSGD),
    "push-sum to whom the losses choose": ("dfedsgpsm_s", {}),
    "push-sum over compressed differences": ("osgp", QSGD),
    "push-sum that overlaps with training": ("overlap_sgp", {}),
    "pairs": ("ad_psgd", {}),
    "a server with controls": ("scaffold", {}),
    "a server with examples": ("fedsynsam", {}),
}
SAMPLED = (
    "choco",
    "push-sum that overlaps with training",
    "pairs",
    "a server with controls",
)


@pytest.fixture(scope="module")
def forkserver() -> Iterator[Callable[[], ForkServer]]:
    """Gives a fork server, and has the next one import torch meanwhile."""
    spare = [ForkServer.open()]

    def take() -> ForkServer:
        spare.append(ForkServer.open())
        return spare.pop(0)

    yield take
    spare[0].close()


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in SAMPLED else [pytest.mark.soak]) for kind in METHODS]
)
def test_it_trains_in_processes(kind: str, tmp_path: Path, forkserver: Callable[[], ForkServer]) -> None:
    name, more = METHODS[kind]
    file = tmp_path / "scenario.yaml"
    file.write_text(json.dumps(scenario(name, nodes=4, world={"kind": "processes"}, **more)))
    result = netdfl.run(netdfl.load(file), out=tmp_path / "run", page=False, forkserver=forkserver()).result
    assert result["verdict"] in WELL, result["reasons"]
    assert result["world"] == "processes"
    assert 0.0 <= result["test_accuracy"]["average_model"]["last"] <= 1.0
