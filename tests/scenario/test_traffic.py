"""What `explain` says of a fleet's traffic is what a run sends."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from netdfl.core.errors import InputError
from netdfl.record.run import open_run
from netdfl.running.run import run
from netdfl.scenario.explain.explain import explain
from netdfl.scenario.explain.terminal_tables import show
from netdfl.scenario.load import load

ROUNDS = 3


def _fleet(algorithm: str, **more: object) -> dict[str, object]:
    return {
        "schema": "netdfl/1",
        "name": "traffic",
        "nodes": 4,
        "rounds": ROUNDS,
        "world": "simulated",
        "task": {"kind": "quadratic", "dim": 4000},
        "algorithm": {"name": algorithm, "local_steps": 1, "lr": 0.1},
        "topology": "ring" if algorithm == "dfedsam_mgs" else "star",
        **more,
    }


@pytest.mark.parametrize(
    ("algorithm", "more", "vectors"),
    [
        ("scaffold", {}, 2.0),
        ("fedsmoo", {}, 2.0),
        ("mofedsam", {}, 1.5),
        ("scaffold", {"compression": {"kind": "float16"}}, 1.625),
        ("scaffold", {"compression": {"kind": "float16", "extras": "compressed"}}, 1.25),
        ("dfedsam_mgs", {}, 4.0),
    ],
)
def test_explain_counts_every_vector_that_a_run_sends(
    tmp_path: Path, algorithm: str, more: dict[str, object], vectors: float
) -> None:
    scenario = load(_fleet(algorithm, **more))
    said = explain(scenario).traffic
    run(scenario, out=tmp_path / "run", page=False)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert said.bytes_in_all == pytest.approx(result["bytes_sent"], rel=0.02)
    assert said.bytes_in_all == pytest.approx(vectors * 4000 * 8 * 8 * ROUNDS, rel=0.02)


LOSSY = {"topology": "ring", "links": {"default": {"loss": 0.3, "latency": "2ms"}}}
KINDS = {"ack": "acknowledgements", "query": "questions", "status": "answers", "notice": "notices"}


@pytest.mark.parametrize(
    ("more", "beside"),
    [
        ({"topology": "ring", "wait": {"deadline": "none"}}, set()),
        (LOSSY | {"delivery": {"kind": "acknowledged", "timeout": "20ms"}, "wait": {"deadline": "none"}}, {"ack"}),
        (LOSSY | {"wait": {"deadline": "auto"}}, {"query", "status"}),
    ],
)
def test_explain_names_the_kinds_of_messages_that_a_run_counts_beside_its_own(
    tmp_path: Path, more: dict[str, object], beside: set[str]
) -> None:
    scenario = load(_fleet("dpsgd", **more))
    said = explain(scenario).traffic
    run(scenario, out=tmp_path / "run", page=False)
    counted = "SELECT kind, count(DISTINCT (src, dst, round, step)) FROM messages GROUP BY kind"
    kinds = dict(open_run(tmp_path / "run").rows(counted))
    assert kinds.pop("data") == said.messages_in_all == said.messages_per_round * ROUNDS
    assert set(kinds) == beside
    assert {kind for kind, word in KINDS.items() if word in " ".join(said.beside)} == beside
    console = Console(file=io.StringIO(), width=200)
    show(explain(scenario), console)
    assert f"{said.messages_in_all:g} messages with models" in console.file.getvalue()  # type: ignore[attr-defined]
    assert ("a run counts these, too" in console.file.getvalue()) == bool(beside)  # type: ignore[attr-defined]


SIZED = {
    "schema": "netdfl/1",
    "name": "sized",
    "nodes": 6,
    "rounds": 2,
    "world": "simulated",
    "task": {"kind": "sized", "bytes": "10MB"},
    "topology": {"kind": "random_sym", "neighbors": 2},
    "links": {"default": {"rate": "800Mbit"}},
}


@pytest.mark.parametrize(("algorithm", "vectors"), [("dpsgd", 1), ("sgp", 1)])
def test_a_message_of_a_sized_task_counts_as_what_it_claims(tmp_path: Path, algorithm: str, vectors: int) -> None:
    scenario = load(SIZED | {"algorithm": algorithm})
    run(scenario, out=tmp_path / "run", page=False)
    rows = open_run(tmp_path / "run").rows("SELECT nbytes, arrived_s - sent_s FROM messages WHERE kind = 'data'")
    assert explain(scenario).traffic.message_bytes == pytest.approx(vectors * 10e6, abs=1000)
    for nbytes, took_s in rows:
        assert nbytes == pytest.approx(vectors * 10e6, abs=1000)
        assert took_s == pytest.approx(nbytes * 8 / 800e6, abs=1e-6)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"world": "processes"}, "sends real bytes"),
        ({"compression": {"kind": "top_k", "fraction": 0.1}}, "four numbers"),
        ({"task": {"kind": "sized"}}, "bytes"),
    ],
)
def test_a_sized_task_is_refused_where_its_claim_means_nothing(more: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        load(SIZED | {"algorithm": "choco_sgd" if "compression" in more else "dpsgd", **more})
