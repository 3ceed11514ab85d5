"""A user's part that writes to what it is given, as in-place operations do, is refused or changes no figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.core.errors import InputError
from netdfl.scenario.model.contracts import CONTRACTS

OWN = """
from dataclasses import dataclass, replace

import numpy as np
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.extend import Compressor, EncodedVector, Gossip, PlainStart, to_array, to_tensor
from torch.nn import functional


class Rounding(Compressor):
    def variance(self, dim):
        return dim / 4 / 127**2

    def compress(self, x, rng):
        x = x.clone()
        step = float(x.abs().max()) / 127
        x /= step
        return EncodedVector(len(x), {"codes": to_array(x.round())}, {"step": step})

    def decompress(self, encoded):
        x = to_tensor(encoded.arrays["codes"]).clone()
        x *= encoded.meta["step"]
        return x


def compression():
    return Rounding()


class Start(PlainStart):
    def begin(self, state, x, view):
        y = x.clone()
        y *= 0.99
        return state, y


def start(exchange, /):
    return replace(ALGORITHMS["dfedavg"].build(exchange), start=Start())


@dataclass(frozen=True)
class Mixed(Gossip):
    def mix(self, state, update, inbox, step, view):
        before = update.before.clone()
        before *= 0.5
        return super().mix(state, update, inbox, step, view)


def mixing(exchange, /):
    return replace(ALGORITHMS["dfedavg"].build(exchange), mixing=Mixed())


def partition(labels, num_clients, streams, /):
    order, labels = np.argsort(labels, kind="stable"), labels.copy()
    labels.sort()
    return np.array_split(order, num_clients)


def augmentation(x, rng, /):
    x = x.clone()
    x += 0.1
    return x


def training_loss(outputs, targets, /):
    targets = targets.clone()
    targets += 1
    targets %= 10
    return functional.cross_entropy(outputs, targets)


def metric(outputs, targets, /):
    outputs, targets = outputs.clone(), targets.clone()
    outputs.copy_(outputs.softmax(1))
    found = float(outputs.max(1).values.mean())
    outputs.zero_()
    targets.zero_()
    return found
"""
TASK = {"dataset": {"name": "digits"}, "model": {"name": "mlp", "hidden": [8]}}
WRITING: dict[str, tuple[str, dict[str, Any], str]] = {
    "compression": ("x.clone()", {"compression": {"kind": "own:compression"}}, "wrote to the vector that it was given"),
    "decompression": (
        ").clone()",
        {"compression": {"kind": "own:compression"}},
        "wrote to what it decoded",
    ),
    "algorithm": ("x.clone()", {"algorithm": "own:start"}, "the start Start wrote to the vector that it was given"),
    "mixing": ("update.before.clone()", {"algorithm": "own:mixing"}, "the mixing Mixed wrote to update.before"),
    "partition": (
        "labels.copy()",
        {"task": TASK | {"dataset": {"name": "digits", "partition": {"kind": "own:partition"}}}},
        "",
    ),
    "augmentation": (
        "x.clone()",
        {"task": TASK | {"dataset": {"name": "digits", "augment": {"kind": "own:augmentation"}}}},
        "",
    ),
    "training loss": ("targets.clone()", {"task": TASK | {"loss": {"name": "own:training_loss"}}}, ""),
    "metric": ("s.clone()", {"task": TASK | {"metrics": [{"name": "own:metric"}]}}, ""),
}
"""Of each kind the copy that it makes, the keys that name it, and what is said of one without the copy, if anything."""
OFTEN = ("compression", "partition")
KINDS = [pytest.param(kind, marks=[pytest.mark.soak] * (kind not in OFTEN)) for kind in WRITING]


def text_of(folder: Path, keys: dict[str, Any]) -> Path:
    scenario: dict[str, Any] = {"schema": "netdfl/1", "name": "writes", "nodes": 4, "rounds": 3, "topology": "ring"}
    scenario |= {"task": TASK, "algorithm": "dfedavg", "world": "simulated"} | keys
    (folder / "s.yaml").write_text(json.dumps(scenario))
    return folder / "s.yaml"


def told(folder: Path, keys: dict[str, Any]) -> tuple[str, Any]:
    """Return what is said of a run of the part in this folder, and its figures."""
    try:
        loaded = netdfl.load(text_of(folder, keys))
        result = netdfl.run(loaded, out=folder / "run", page=False).result
    except InputError as error:
        return str(error), None
    return " ".join(result["reasons"]), result["metrics"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_writes_to_what_it_is_given_changes_no_figure_in_silence(kind: str, tmp_path: Path) -> None:
    copy, keys, said = WRITING[kind]
    careful, writing = tmp_path / "careful", tmp_path / "writing"
    careful.mkdir()
    writing.mkdir()
    (careful / "own.py").write_text(OWN)
    without = copy.rpartition(".")[0]
    assert OWN.count(copy) >= 1
    (writing / "own.py").write_text(OWN.replace(copy, without))
    reason, figures = told(careful, keys)
    assert (reason, figures is not None) == ("", True)
    reason, found = told(writing, keys)
    if said:
        assert said in reason
        assert f"({writing}/own.py:" in reason
    else:
        assert (reason, found) == ("", figures)


def test_each_kind_of_part_that_is_given_something_to_write_to_is_tried() -> None:
    arrays = {"labels", "outputs", "targets", "x"}
    given = {kind for kind, contract in CONTRACTS.items() if arrays & set(contract.context)}
    assert given | {"algorithm", "compression"} <= set(WRITING)
