"""What `scheme: auto` means, what is warned of, and the memory that `explain` shows."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from netdfl.core.errors import ScenarioError
from netdfl.scenario.build import build_network, scheme_of
from netdfl.scenario.explain.explain import explain
from netdfl.scenario.explain.memory import counts_all, vectors_kept
from netdfl.scenario.explain.terminal_tables import show
from netdfl.scenario.load import loads
from netdfl.scenario.model.schema import Scenario


def scenario(algorithm: str, topology: str, compression: str, **more: Any) -> Scenario:
    lines = {"algorithm": algorithm, "topology": topology, "compression": compression, **more}
    given = {"schema": "netdfl/1", "name": "c", "nodes": 12, "rounds": 300, "task": "{kind: consensus, dim: 1000}"}
    return loads("\n".join(f"{key}: {value}" for key, value in {**given, **lines}.items()))


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
def test_auto_is_the_scheme_that_fits_the_algorithm(algorithm: str, topology: str, scheme: str) -> None:
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
    found = explain(loaded).compression
    assert found is not None
    assert found.bytes_kept == vectors * 1000 * 8 // (2 if _is_float32(loaded) else 1)


def _is_float32(loaded: Scenario) -> bool:
    return getattr(loaded.task, "params", {}).get("dtype", "float32") == "float32"


@pytest.mark.parametrize(
    ("algorithm", "topology", "compression", "words"),
    [
        ("dfedavg", "ring", "{kind: qsgd, bits: 2, gamma: 0.1}", "choco diverges; use scaled: true, more bits"),
        ("dfedavg", "ring", "{kind: qsgd, bits: 2}", "diverges, so gamma: auto moves references by 0.25 of what"),
        ("dfedavg", "ring", "{kind: qsgd, bits: 4, norm: l2}", "scaled: true, norm: max, more bits"),
        ("dfedavg", "ring", "{kind: random_k, unbiased: true}", "slowly; use unbiased: false"),
        ("dfedavg", "random_sym", "{kind: random_k, unbiased: true}", "deepsqueeze diverges"),
        ("sgp", "directed_ring", "{kind: random_k, fraction: 0.9, count: 4, unbiased: true}", "edge diverges"),
        ("fedavg", "star", "{kind: random_k, unbiased: true, scheme: ef21}", "ef21 diverges"),
        ("osgp", "directed_ring", "{kind: top_k, gamma: 0.9}", "may diverge under edge"),
        ("dfedavg", "ring", "{kind: qsgd, scheme: unsafe}", "bare models"),
    ],
)
def test_what_goes_wrong_is_said_beforehand(algorithm: str, topology: str, compression: str, words: str) -> None:
    (notice,) = scenario(algorithm, topology, compression).notices
    assert words in notice


@pytest.mark.parametrize(
    "compression",
    [
        "qsgd",
        "{kind: qsgd, bits: 4}",
        "{kind: qsgd, bits: 2, scaled: true}",
        "{kind: qsgd, norm: l2, bucket: 0}",
        "top_k",
        "{kind: random_k, count: 1000, unbiased: true, gamma: 0.9}",
    ],
)
def test_what_goes_well_is_not_warned_of(compression: str) -> None:
    assert scenario("dfedavg", "ring", compression).notices == ()


def test_choco_can_not_scale_up_what_came() -> None:
    with pytest.raises(Exception, match="use on_missing: self or last"):
        scenario("dfedavg", "ring", "qsgd", wait="{on_missing: renormalise}")


WHOLE = "{kind: qsgd, bits: 8, norm: l2, bucket: 0}"


def test_the_trial_is_at_the_models_size_where_the_compressor_depends_on_it() -> None:
    """The relative noise of a norm of the whole vector grows with its length."""
    (notice,) = scenario("dpsgd", "ring", WHOLE, task="{kind: consensus, dim: 320010}").notices
    assert "adds 2.6 times the energy" in notice


@pytest.mark.parametrize(("count", "notices"), [(3000, 0), (2000, 1)])
def test_the_size_of_a_model_that_is_trained_is_known_too(count: int, notices: int) -> None:
    """The default mlp on digits has 4,810 parameters."""
    compression = f"{{kind: random_k, count: {count}, unbiased: true}}"
    assert len(scenario("dpsgd", "ring", compression, task="train").notices) == notices


@pytest.mark.parametrize(
    ("compression", "what"),
    [
        ("{kind: qsgd, bits: 1, scaled: true}", "bits: 1 is the sign compressor"),
        ("{kind: chain, bits: 1, entropy: true}", "bits: 1 is the sign compressor"),
        ("{kind: top_k, fraction: 0}", "send nothing; write a fraction over 0"),
    ],
)
def test_a_compressor_that_can_not_be_built_is_refused_at_its_line(compression: str, what: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario("dpsgd", "ring", compression)
    (problem,) = refused.value.problems
    assert what in problem.what
    assert problem.line == 8


@pytest.mark.parametrize(
    ("algorithm", "compression", "remedy"),
    [
        ("dpsgd", "{kind: qsgd, scheme: unsafe, gamma: 0.3}", "use scheme: choco"),
        ("{name: qdfedavgm, form: literal}", "{kind: qsgd, gamma: 0.3}", "use form: reference"),
    ],
)
def test_a_step_size_that_would_be_ignored_is_refused(algorithm: str, compression: str, remedy: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario(algorithm, "ring", compression)
    (problem,) = refused.value.problems
    assert remedy in problem.remedy
    assert problem.line == 8


def test_graphs_that_are_redrawn_seldom_are_counted_to_the_end() -> None:
    """100 draws in 2000 rounds: by the rounds, only 13 of them would be."""
    graph = "{kind: random_push, out_neighbors: 2, redraw_every: 20}"
    loaded = scenario("osgp", graph, "qsgd", nodes=40, rounds=2000)
    network = build_network(loaded)
    used = [set[tuple[str, int]]() for _ in range(40)]
    for round in range(2000):
        for node in range(40):
            used[node] |= {("to", j) for j in network.graph(round).out_neighbors(node)}
            used[node] |= {("from", j) for j in network.graph(round).in_neighbors(node)}
    kept = vectors_kept(loaded, network)
    assert kept == max(len(edges) for edges in used) + 1
    assert counts_all(loaded, network, kept)


def test_more_graphs_than_are_counted_are_said_to_be_more() -> None:
    graph = "{kind: random_push, out_neighbors: 1, redraw_every: 1}"
    loaded = scenario("osgp", graph, "qsgd", nodes=200, rounds=300)
    found = explain(loaded)
    assert found.compression is not None
    assert not found.compression.counts_all
    console = Console(width=150, record=True, file=StringIO())
    show(found, console)
    assert "at least" in console.export_text()


@pytest.mark.parametrize(("scheme", "allowed"), [("ef21", False), ("ef14", True), ("auto", True)])
def test_what_all_clients_have_said_is_not_weighed_by_the_examples_of_some(scheme: str, allowed: bool) -> None:
    given = ("{name: fedavg, weighting: samples}", "star", f"{{kind: qsgd, scheme: {scheme}}}")
    if allowed:
        assert scenario(*given).algorithm.params["weighting"] == "samples"
        return
    with pytest.raises(ScenarioError, match="use weighting: uniform, or scheme: plain or ef14"):
        scenario(*given)
