"""Scripted events that a run ended before: counted, and the first one named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.record.directory import RunDirectory
from netdfl.record.remarks import find_unreached
from netdfl.record.run import open_run
from netdfl.record.store import StoreWriter

SECOND = 10**9


def found(path: Path, *events: dict[str, Any]) -> dict[str, Any] | None:
    """What a run of two nodes says of `events`: node 0 ended in round 5 at 3 s, node 1 crashed in round 2 at 1 s."""
    directory = RunDirectory.create(path, "q", 7, out=path / "run")
    directory.write("scenario.yaml", "")
    directory.write_events(events)
    with StoreWriter(directory.path, "fleet") as writer:
        writer.event(SECOND, 1, 2, "crash")
        writer.metrics(3 * SECOND, 0, 5, {"train_s": 1.0})
        writer.event(100 * SECOND, None, 5, "finish")
    return find_unreached(open_run(directory.path))


def event(source: int, **more: Any) -> dict[str, Any]:
    return {"action": "pause", "source": source, "nodes": [0, 1], **more}


@pytest.mark.parametrize(
    "late",
    [
        event(1, at_ns=4 * SECOND),
        event(1, at_round=3, nodes=[1]),
        event(1, at_round=6),
        {"action": "set", "source": 1, "at_round": 7, "links": [[[0], [1]]]},
    ],
)
def test_an_entry_of_which_nothing_came_is_named(tmp_path: Path, late: dict[str, Any]) -> None:
    assert found(tmp_path, event(0, at_ns=SECOND), late) == {"count": 1, "first": late, "ended_s": 3.0}


@pytest.mark.parametrize(
    "events",
    [
        [],
        [event(0, at_ns=3 * SECOND)],
        [event(0, at_ns=SECOND), event(0, at_ns=9 * SECOND)],
        [event(0, at_round=5)],
        [{"action": "set", "source": 0, "at_round": 5, "links": [[[0], [1]]]}],
    ],
)
def test_what_came_is_not(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    assert found(tmp_path, *events) is None
