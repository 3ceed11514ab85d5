"""A run's figures as metrics: each from its place in the record, in the text that Prometheus' own parser reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from netdfl.core.errors import InputError
from netdfl.exports.metrics import KINDS, MetricValues, metrics_text, read_figures
from netdfl.record.resources import Usage

Values = dict[tuple[str, ...], float]


def values(text: bytes) -> Values:
    """Each number by the metric's name and its labels' values, in the order of the labels' names."""
    found = text_string_to_metric_families(text.decode())
    samples = [sample for family in found for sample in family.samples]
    return {(each.name, *(each.labels[name] for name in sorted(each.labels))): each.value for each in samples}


def planted(path: Path) -> Path:
    (path / "store").mkdir(parents=True)
    (path / "scenario.yaml").write_text("name: planted\n")
    (path / "graph.json").write_text('{"num_nodes": 2, "edges": []}')
    status = {
        "rounds": 9, "rounds_done": 3, "bytes_sent": 700, "elapsed_s": 5.0,
        "messages": {"sent": 12, "delivered": 7, "lost": 2, "unfinished": 3},
        "nodes": [{"node": 0, "round": 3, "phase": "running"}, {"node": 1, "round": 4, "phase": "crashed"}],
        "waiting": [{"node": 0, "round": 3, "awaited": [1], "since_s": 3.5}],
    }  # fmt: skip
    (path / "fleet.json").write_text(json.dumps(status))
    wait = {"node": 0, "round": 1, "step": 0, "kind": "data", "deadline_s": None, "last_src": None, "missing": []}
    with (path / "store/waits-000.jsonl").open("w") as file:
        for since_s, until_s, ended in ((0, 1, "came"), (2, 2.5, "came"), (3, 7, "deadline")):
            file.write(json.dumps(wait | {"since_s": since_s, "until_s": until_s, "ended": ended}) + "\n")
    with (path / "store/resources-000.jsonl").open("w") as file:
        for pid, at_s, cpu_s, memory, gpu in ((5, 0, 1, 90, None), (5, 2, 2, 80, None), (6, 9, 0.5, 70, 30)):
            row = {"at_s": at_s, "process": "node 0", "node": 0, "pid": pid, "cpu_s": cpu_s}
            file.write(json.dumps(row | {"memory_bytes": memory, "gpu_bytes": gpu}) + "\n")
    return path


def test_each_figure_of_a_run_is_a_metric(tmp_path: Path) -> None:
    found = values(metrics_text([read_figures(planted(tmp_path / "run"), "here")]))
    assert found == {
        ("netdfl_rounds", "here"): 9, ("netdfl_rounds_done", "here"): 3,
        ("netdfl_node_round", "0", "here"): 3, ("netdfl_node_round", "1", "here"): 4,
        ("netdfl_nodes", "here", "running"): 1, ("netdfl_nodes", "here", "crashed"): 1,
        ("netdfl_messages_sent_total", "here"): 12, ("netdfl_messages_under_way", "here"): 3,
        ("netdfl_messages_total", "delivered", "here"): 7, ("netdfl_messages_total", "lost", "here"): 2,
        ("netdfl_messages_total", "undeliverable", "here"): 0, ("netdfl_messages_total", "late", "here"): 0,
        ("netdfl_messages_total", "duplicate", "here"): 0, ("netdfl_messages_total", "refused", "here"): 0,
        ("netdfl_sent_bytes_total", "here"): 700,
        ("netdfl_waits_total", "came", "here"): 2, ("netdfl_waits_total", "deadline", "here"): 1,
        ("netdfl_wait_seconds_total", "came", "here"): 1.5, ("netdfl_wait_seconds_total", "deadline", "here"): 4,
        ("netdfl_waiting_seconds", "0", "here"): 1.5,
        ("netdfl_process_cpu_seconds_total", "node 0", "here"): 2.5,
        ("netdfl_process_memory_bytes", "node 0", "here"): 70,
        ("netdfl_process_gpu_bytes", "node 0", "here"): 30,
    }  # fmt: skip


def test_a_run_that_has_just_begun_has_zeros_and_a_damaged_one_says_so(tmp_path: Path) -> None:
    path = planted(tmp_path / "run")
    (path / "fleet.json").unlink()
    assert values(metrics_text([read_figures(path, "x")]))["netdfl_rounds_done", "x"] == 0
    (path / "fleet.json").write_text('{"messages": {"sent": -1}}')
    with pytest.raises(InputError, match=r"fleet\.json is damaged"):
        read_figures(path, "x")


def test_a_node_has_its_number_in_each_metric_once() -> None:
    own = MetricValues(
        labels={"run": "a", "node": "3"}, node_rounds={"3": 8}, waiting={"3": 1.5}, phases={"running": 1},
        waits={"came": (1, 2.0)}, processes={"node 3": Usage(1.0, None)},
    )  # fmt: skip
    found = values(metrics_text([own]))
    assert found["netdfl_node_round", "3", "a"] == 8
    assert found["netdfl_waiting_seconds", "3", "a"] == 1.5
    assert found["netdfl_waits_total", "came", "3", "a"] == 1
    assert found["netdfl_process_cpu_seconds_total", "3", "node 3", "a"] == 1
    assert not any(name.startswith("netdfl_process_memory") for name, *_ in found)


def test_without_runs_the_metrics_are_named_all_the_same() -> None:
    text = metrics_text([]).decode()
    assert all(f"# TYPE {kind.name}" in text for kind in KINDS)
    assert values(text.encode()) == {}


def test_labels_with_quotes_and_lines_are_read_back() -> None:
    name = 'a "b"\\\n'
    assert ("netdfl_rounds", name) in values(metrics_text([MetricValues(labels={"run": name})]))
