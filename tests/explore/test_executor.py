"""A run in memory is the run that `netdfl run` makes: the same event log, the same verdict, the same figures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.explore.execute import Executor
from netdfl.scenario.load import loads

FAULTS = Path("scenarios/faults")
LOSSY = {"default": {"latency": {"dist": "uniform", "low": "1ms", "high": "9ms"}, "loss": 0.2}}


@pytest.mark.parametrize(
    "changes",
    [
        {"events": [{"at_round": 2, "drop": "1->2"}]},
        {"algorithm": "sgp", "links": LOSSY, "delivery": "plain", "wait": {"deadline": "50ms"}},
        {"algorithm": "sgp", "links": LOSSY, "delivery": {"kind": "acknowledged", "attempts": 2}},
        {
            "events": [{"at": "20ms", "crash": 1, "restart_after": "15ms", "state": "lost"}],
            "wait": {"deadline": "auto"},
        },
        {"algorithm": "ad_psgd", "events": [{"at_round": 1, "pause": 2, "for": "40ms"}]},
        {"algorithm": "fedavg", "topology": "star", "expect": {"consensus_distance": {"at_most": 1e-12}}},
    ],
)
def test_it_is_the_run_of_netdfl_run(changes: dict[str, Any], small: dict[str, Any], tmp_path: Path) -> None:
    scenario = netdfl.load(small | changes)
    executor = Executor()
    executor.run(scenario.model_copy(update={"events": []}))
    run = executor.run(scenario)
    result = netdfl.run(scenario, out=tmp_path / "run", page=False).result
    assert run.event_log_hash == result["event_log_hash"]
    assert run.verdict == result["verdict"]
    assert_told(run.reasons, result["reasons"])
    both = {name for name in run.figures if isinstance(result.get(name), float | int)}
    assert both >= {"consensus_distance", "bytes_sent", "virtual_duration_s", "timeouts"}
    assert {name: run.figures[name] for name in both} == pytest.approx({name: result[name] for name in both})
    assert_told([each.text for each in run.stalls], [e["text"] for e in (*result["deadlocks"], *result["stalls"])])


def assert_told(in_memory: Sequence[str], in_files: Sequence[str]) -> None:
    """Hold sentences to those of the run with files, which alone also say which settings would end a stall."""
    assert len(in_memory) == len(in_files)
    for short, whole in zip(in_memory, in_files, strict=True):
        assert whole.startswith(short.removesuffix("."))
        assert "setting" not in short


TWO_CLASSES = """
from pathlib import Path

from netdfl.training.data.dataset import Dataset
from netdfl.training.data.datasets import digits


def odd_or_even():
    whole = digits(Path())
    return Dataset(whole.train_x, whole.train_y % 2, whole.test_x, whole.test_y % 2, 2)
"""
COLLAPSING = """
schema: netdfl/1
name: two-classes
seed: 1
nodes: 8
rounds: 12
world: simulated
task:
  dataset: {name: "two_classes:odd_or_even", partition: {kind: dirichlet, alpha: 0.3}}
  model: mlp
algorithm: {name: osgp, lr: 0.1, local_epochs: 1}
topology: {kind: random_push, out_neighbors: 3}
delivery: plain
wait: {deadline: 200ms}
links: {default: {loss: 40%}}
evaluation: {every: 4}
expect: {collapsed: none}
"""


def test_a_collapse_to_guessing_is_told_in_memory_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses between two classes are right half of the time, so the model ends at more than half of its best."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two_classes.py").write_text(TWO_CLASSES)
    scenario = loads(COLLAPSING)
    run = Executor(0).run(scenario)
    assert run.verdict == "fail"
    assert list(run.reasons) == netdfl.run(scenario, out=tmp_path / "run", page=False).result["reasons"]


def test_a_run_in_memory_writes_nothing(small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Executor().run(netdfl.load(small | {"events": [{"at_round": 2, "drop": "1->2"}]}))
    assert list(tmp_path.iterdir()) == []


def test_luck_is_of_links_alone(small: dict[str, Any]) -> None:
    def losses(luck: int | None, seed: int = 0) -> tuple[float | None, float | None]:
        world = small["world"] | ({} if luck is None else {"luck": luck})
        run = Executor().run(netdfl.load(small | {"world": world, "links": LOSSY, "wait": {"deadline": "20ms"}}))
        return run.figures["lost"], run.figures["error"]

    assert losses(None) == losses(0)
    assert losses(1) != losses(0)


def test_what_breaks_netdfl_is_kept(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdfl.node.mailbox.Mailbox.close", lambda self, slot: 1 / 0)
    run = Executor().run(netdfl.load(small))
    assert run.verdict == "unknown"
    assert "ZeroDivisionError" in run.broke


def test_a_run_without_end_is_ended(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def for_ever(self: object, slot: object) -> None:
        while True:
            pass

    monkeypatch.setattr("netdfl.node.mailbox.Mailbox.close", for_ever)
    run = Executor(limit_s=0.2).run(netdfl.load(small))
    assert "the run was not over after 0.2 s" in run.broke


def test_what_a_library_counts_of_its_own_is_no_leak_after_several_runs(small: dict[str, Any]) -> None:
    """DuckDB, which reads tables, says at an interpreter's end what `gc.freeze` still holds."""
    runs = f"small = netdfl.load({small!r}); executor = Executor(); executor.run(small); executor.run(small)"
    code = f"import duckdb, netdfl; from netdfl.explore.execute import Executor; duckdb.connect(); {runs}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
