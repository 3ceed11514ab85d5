"""What a whole run does once and not many times, as counts."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.record.run import Run
from netdfl.worlds.simulated.arithmetic import rare_collections

SMALL = {
    "schema": "netdfl/1",
    "name": "small",
    "nodes": 4,
    "rounds": 3,
    "topology": {"kind": "ring"},
    "algorithm": {"name": "dpsgd"},
    "task": {"kind": "consensus", "dim": 2},
    "world": {"kind": "simulated"},
}


@contextmanager
def full_collections() -> Iterator[list[int]]:
    """Count the garbage collector's looks through everything."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            seen.append(1)

    gc.callbacks.append(note)
    try:
        yield seen
    finally:
        gc.callbacks.remove(note)


def test_the_record_is_read_once_for_the_verdict_and_once_for_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts: list[bool] = []
    lay_out = Run._lay_out

    def counted(self: Run, *args: Any, **options: Any) -> None:
        layouts.append(True)
        lay_out(self, *args, **options)

    monkeypatch.setattr(Run, "_lay_out", counted)
    netdfl.run(SMALL, out=tmp_path / "bare", page=False)
    assert len(layouts) == 1
    netdfl.run(SMALL, out=tmp_path / "paged")
    assert len(layouts) == 3


def test_held_tables_are_read_anew_afterwards(tmp_path: Path) -> None:
    run = netdfl.run(SMALL, out=tmp_path / "run", page=False).run
    count = "SELECT count(*) FROM metrics"
    ((before,),) = run.rows(count)
    row = '{"at_s":0.0,"node":0,"round":0,"name":"more","value":1.0}\n'
    with run.held():
        with (run.path / "store" / "metrics-fleet.jsonl").open("a") as file:
            file.write(row)
        assert run.rows(count) == [(before,)]
        with run.held():
            assert run.metrics.count("*").fetchall() == [(before,)]
    assert run.rows(count) == [(before + 1,)]
    assert run.metrics.count("*").fetchall() == [(before + 1,)]


def test_the_heap_is_looked_through_only_where_the_last_fleet_is_not_freed() -> None:
    class Fleet:
        pass

    def lives(fleet: Fleet) -> int:
        with full_collections() as seen, rare_collections(fleet):
            return len(seen)

    first, second, third = Fleet(), Fleet(), Fleet()
    lives(first)
    assert lives(second) == 1
    del second
    assert lives(third) == 0
