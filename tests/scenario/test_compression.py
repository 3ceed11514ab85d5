"""What `scheme: auto` means, what is warned of, and the memory that `explain` shows."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.scenario.build import build_network
from netdfl.scenario.compression import scheme_of, vectors_kept
from netdfl.scenario.explain import explain
from netdfl.scenario.load import loads
from netdfl.scenario.schema import Scenario


def scenario(algorithm: str, topology: str, compression: str, **more: Any) -> Scenario:
    lines = {"algorithm": algorithm, "topology": topology, "compression": compression, **more}
    text = "schema: netdfl/1\nname: c\nnodes: 12\nrounds: 300\ntask: {kind: consensus, dim: 1000}\n"
    return loads(text + "\n".join(f"{key}: {value}" for key, value in lines.items()))


@pytest.mark.parametrize(
    ("algorithm", "topology", "scheme"),
    [
        ("dfedavgm", "ring", "choco"),
        ("dfedavgm", "{kind: random_sym, redraw_every: 0}", "choco"),
        ("dfedavgm", "random_sym", "deepsqueeze"),
        ("dfedavgm", "{kind: full, selection: {kind: random_k, k: 3}, weights: uniform}", "deepsqueeze"),
        ("osgp", "{kind: random_push, out_neighbors: 4}", "edge"),
        ("osgp", "directed_ring", "edge"),
        ("fedavg", "star", "plain"),
        ("deepsqueeze", "ring", "deepsqueeze"),
        ("choco_sgd", "ring", "choco"),
        ("delicoco", "ring", "choco"),
    ],
)
def test_auto(algorithm: str, topology: str, scheme: str) -> None:
    try:
        loaded = scenario(algorithm, topology, "qsgd")
    except Exception as error:
        pytest.fail(str(error))
    assert scheme_of(loaded) == scheme


@pytest.mark.parametrize(
    ("algorithm", "topology", "compression", "vectors"),
    [
        ("dfedavg", "ring", "qsgd", 2 + 2),
        ("osgp", "directed_ring", "qsgd", 2 + 1),
        ("osgp", "{kind: random_push, out_neighbors: 4}", "qsgd", 11 + 11 + 1),
        ("osgp", "directed_ring", "{kind: qsgd, scheme: push_sum}", 1 + 2),
        ("dfedavg", "random_sym", "qsgd", 2),
        ("fedavg", "star", "qsgd", 0),
        ("fedavg", "star", "{kind: qsgd, scheme: ef21}", 13),
    ],
)
def test_the_memory_of_references(algorithm: str, topology: str, compression: str, vectors: int) -> None:
    loaded = scenario(algorithm, topology, compression)
    assert vectors_kept(loaded, build_network(loaded)) == vectors
    assert explain(loaded)["compression"]["bytes_kept"] == vectors * 1000 * 8 // (2 if _is_float32(loaded) else 1)


def _is_float32(loaded: Scenario) -> bool:
    return getattr(loaded.task, "params", {}).get("dtype", "float32") == "float32"


@pytest.mark.parametrize(
    ("algorithm", "topology", "compression", "words"),
    [
        ("dfedavg", "ring", "{kind: qsgd, bits: 2}", "diverges; use scaled: true"),
        ("dfedavg", "ring", "{kind: qsgd, bits: 4, norm: l2}", "diverges"),
        ("dfedavg", "ring", "{kind: random_k, unbiased: true}", "diverges"),
        ("osgp", "directed_ring", "{kind: top_k, gamma: 0.9}", "may diverge under edge"),
        ("dfedavg", "ring", "{kind: qsgd, scheme: unsafe}", "bare models"),
    ],
)
def test_what_goes_wrong_is_said_beforehand(algorithm: str, topology: str, compression: str, words: str) -> None:
    (notice,) = scenario(algorithm, topology, compression).notices
    assert words in notice


@pytest.mark.parametrize(
    "compression", ["qsgd", "{kind: qsgd, bits: 4}", "{kind: qsgd, bits: 2, scaled: true}", "top_k"]
)
def test_what_goes_well_is_not_warned_of(compression: str) -> None:
    assert scenario("dfedavg", "ring", compression).notices == ()


def test_choco_can_not_scale_up_what_came() -> None:
    with pytest.raises(Exception, match="use on_missing: self or last"):
        scenario("dfedavg", "ring", "qsgd", wait="{on_missing: renormalise}")
