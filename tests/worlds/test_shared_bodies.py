"""Bodies by reference in a real fleet, and how much memory the nodes of a machine share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.host import memory
from netdfl.host.blueprint import Blueprint
from netdfl.record.judge import WELL
from netdfl.scenario.load import load, loads

NEVER_INLINE = """
import sys
import numpy as np
from netdfl.training.data.dataset import Dataset
from netdfl.transport import wire

parts = wire.FrameWriter.body

def refuse(payload):
    assert not payload.arrays, "a vector went inline"
    return parts(payload)

if "netdfl.worlds.forkserver" in sys.orig_argv:  # not where the test runs
    wire.FrameWriter.body = staticmethod(refuse)

def data(root, /):
    x, y = np.ones((40, 1, 8, 8), np.float32), np.arange(40) % 10
    return Dataset(x, y, x, y, num_classes=10)
"""
FLEET = """
schema: netdfl/1
name: shared
nodes: 3
rounds: 4
task: {dataset: {name: "never_inline:data"}, model: {name: mlp, hidden: [100]}, batch_size: 8}
algorithm: dpsgd
topology: full
world: {kind: processes, shared_from: 1kB, fidelity: {relative: 100, slack: 100s}}
links: {default: {latency: 5ms}}
events: [{at_round: 2, pause: 1, for: 50ms}]
evaluation: {local: none}
"""


def test_the_bodies_of_a_fleet_are_in_its_memory_and_nothing_of_that_is_left(tmp_path: Path) -> None:
    """Behind emulated links too, which act on messages as ever."""
    before = set(os.listdir("/dev/shm"))
    (tmp_path / "never_inline.py").write_text(NEVER_INLINE)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    finished = netdfl.run(load(tmp_path / "fleet.yaml"), out=tmp_path / "run", page=False)
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    rows = finished.run.rows("SELECT fate, nbytes, arrived_s - sent_s FROM messages WHERE kind = 'data'")
    assert len(rows) == 3 * 2 * 4
    assert {fate for fate, _, _ in rows} == {"delivered"}
    assert min(nbytes for _, nbytes, _ in rows) > 4 * 7510
    assert min(took_s for _, _, took_s in rows) >= 0.005
    assert set(os.listdir("/dev/shm")) <= before


NODES = range(4)


def blueprint(**world: Any) -> Blueprint:
    task = "task: {kind: consensus, dim: 100000}\nalgorithm: dpsgd\ntopology: ring\n"
    text = f"schema: netdfl/1\nname: shared\nnodes: 4\nrounds: 1\n{task}"
    return Blueprint.of(loads(text + f"world: {{kind: processes, {', '.join(f'{k}: {v}' for k, v in world.items())}}}"))


def test_the_memory_is_bounded_by_the_model_and_by_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    made = memory.shared_memory(blueprint(shared_from="32KiB"), NODES)
    assert made is not None
    assert (list(made.starts), made.least_bytes) == ([0, 1, 2, 3], 32 << 10)
    assert 8 * 400_000 <= made.part < 8 * 500_000
    monkeypatch.setattr(memory, "free_bytes", lambda: 8_000_000)
    made = memory.shared_memory(blueprint(shared_from="32KiB"), NODES)
    assert made is not None
    assert made.part == 1_003_520  # a quarter of the half, in pages
    monkeypatch.setattr(memory, "free_bytes", lambda: 3_000_000)
    assert memory.shared_memory(blueprint(shared_from="32KiB"), NODES) is None
    assert memory.shared_memory(blueprint(shared_from="null"), NODES) is None
    assert memory.shared_memory(blueprint(shared_from="1MiB"), NODES) is None
