"""What processes take of their machine: sampled where they run, in a table of its own, outside the event log."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from netdfl.record import resources
from netdfl.record.resources import EVERY_S, ResourceLog, parent_of, process_name, usage_here, usage_of
from netdfl.record.run import Run, open_run
from netdfl.report.data.resources import MOST_PROCESSES
from netdfl.report.data.resources import resources as shown
from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.agreeing import agreeing


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_sample_is_taken_when_it_is_due_and_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    now = [100.0]
    log = ResourceLog(tmp_path, "003", "node 3", lambda: now[0] - 99, node=3, monotonic_s=lambda: now[0])
    for now[0] in (100.0, 100.0 + EVERY_S - 0.01, 100.0 + EVERY_S, 102.5):
        log.sometimes()
    log.close()
    rows = lines(tmp_path / "store/resources-003.jsonl")
    assert [row["at_s"] for row in rows] == [1.0, 3.0, 3.5]
    assert {(row["process"], row["node"], row["pid"]) for row in rows} == {("node 3", 3, os.getpid())}
    assert [row["gpu_bytes"] for row in rows] == [None, None, None]


def test_others_are_sampled_as_long_as_they_live(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    log = ResourceLog(tmp_path, "x", "me", lambda: 1.0, others=lambda: {"parent": os.getppid(), "gone": 2**22 + 5})
    log.take()
    assert [row["process"] for row in lines(tmp_path / "store/resources-x.jsonl")] == ["me", "parent"]


def test_what_the_system_says_of_a_process_is_what_it_says_of_itself() -> None:
    seen, own = usage_of(os.getpid()), usage_here()
    assert seen is not None
    assert own.cpu_s >= seen.cpu_s - 2 / os.sysconf("SC_CLK_TCK")
    assert own.memory_bytes is not None
    assert seen.memory_bytes is not None
    assert 0.5 < own.memory_bytes / seen.memory_bytes < 2
    assert parent_of(os.getpid()) == os.getppid()


def test_names_with_brackets_and_systems_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PROC", tmp_path)
    assert (usage_of(7), parent_of(7), usage_here().memory_bytes) == (None, None, None)
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text("7 (a) b (c)) S 5 " + " ".join(str(i) for i in range(5, 40)))
    (tmp_path / "7/statm").write_text("9 3 1 0 0 0 0")
    found = usage_of(7)
    assert found is not None
    assert (parent_of(7), found.memory_bytes) == (5, 3 * os.sysconf("SC_PAGE_SIZE"))
    assert found.cpu_s == (14 + 15) / os.sysconf("SC_CLK_TCK")


def test_memory_of_a_gpu_is_asked_of_pytorch_only_once_it_uses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    used = SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 2, memory_reserved=lambda i: 10 * (i + 1))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=used))
    assert usage_here().gpu_bytes == 30
    used.is_initialized = lambda: False
    assert usage_here().gpu_bytes is None
    monkeypatch.delitem(sys.modules, "torch")
    assert usage_here().gpu_bytes is None


def test_processes_are_named_by_their_nodes() -> None:
    assert [process_name([4]), process_name([4, 5, 6])] == ["node 4", "nodes 4 to 6"]


def test_a_simulated_run_has_its_own_process_in_the_table(tmp_path: Path) -> None:
    text = agreeing("small", 3, 2, "seed: 3\nlinks: {default: {latency: 5ms}}", compute="10ms")
    run(loads(text), out=tmp_path / "run", page=False)
    rows = open_run(tmp_path / "run").rows("SELECT process, node, pid, cpu_s > 0, memory_bytes > 1e6 FROM resources")
    assert set(rows) == {("supervisor", None, os.getpid(), True, True)}


def planted(path: Path, *rows: tuple[float, str, int | None, int, float, int]) -> Run:
    (path / "store").mkdir(parents=True)
    (path / "scenario.yaml").write_text("name: planted\n")
    (path / "graph.json").write_text('{"num_nodes": 3, "edges": []}')
    names = ("at_s", "process", "node", "pid", "cpu_s", "memory_bytes")
    text = "".join(json.dumps(dict(zip(names, row, strict=True)) | {"gpu_bytes": None}) + "\n" for row in rows)
    (path / "store/resources-x.jsonl").write_text(text)
    return open_run(path)


def test_the_page_has_cores_by_time_over_all_lives_of_a_process(tmp_path: Path) -> None:
    life = [(0.0, "node 0", 0, 10, 1.0, 100), (2.0, "node 0", 0, 10, 2.0, 200), (4.0, "node 0", 0, 10, 2.5, 300)]
    again = [(8.0, "node 0", 0, 11, 0.5, 50), (10.0, "node 0", 0, 11, 2.5, 60)]
    found = shown(
        planted(
            tmp_path / "a", *life, *again, (0.0, "supervisor", None, 9, 5.0, 7), (10.0, "supervisor", None, 9, 5.0, 7)
        )
    )
    assert found is not None
    assert found["at_s"] == [0, 2, 4, 6, 8, 10]
    first, second = found["processes"]
    assert (first["name"], second["name"]) == ("node 0", "supervisor")
    assert first["cores"] == [None, 0.5, 0.25, None, 0, 1]
    assert first["memory_bytes"] == [100, 200, 300, None, 50, 60]
    assert found["total"]["memory_bytes"] == [107, 207, 307, 7, 57, 67]
    assert (first["gpu_bytes"], found["total"]["gpu_bytes"], found["num_processes"]) == (None, None, 2)


@pytest.mark.parametrize("rows", [(), ((1.0, "node 0", 0, 10, 1.0, 100),)])
def test_without_a_second_moment_there_is_nothing_to_draw(
    tmp_path: Path, rows: tuple[tuple[float, str, int | None, int, float, int], ...]
) -> None:
    assert shown(planted(tmp_path / "a", *rows)) is None


def test_of_many_processes_those_with_the_most_cpu_time_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    many = range(MOST_PROCESSES + 1)
    rows = [(at, f"p{i}", None, i, 100.0 - i + at * i, 1) for i in many for at in (0.0, 2.0)]
    found = shown(planted(tmp_path / "a", *rows))
    assert found is not None
    assert [each["name"] for each in found["processes"]] == [f"p{i}" for i in reversed(many)][:MOST_PROCESSES]
    assert found["total"]["memory_bytes"] == [len(many)] * 2


def test_rows_that_can_not_be_are_left_out(tmp_path: Path) -> None:
    good = (1.0, "node 2", 2, 10, 0.0, 0)
    bad = [
        (1.0, "node 3", 3, 10, 1.0, 1),
        (2e9, "node 0", 0, 10, 1.0, 1),
        (1.0, "node 0", 0, 10, -1.0, 1),
        (1.0, "node 0", 0, 10, 1.0, -1),
    ]
    assert planted(tmp_path / "a", good, *bad).rows("SELECT process FROM resources") == [("node 2",)]
