"""A record in memory and the same one in files are observed alike, and so judged alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.core.fates import Fate
from netdfl.core.outcome import Outcome
from netdfl.core.types import Kind, MessageId, Payload, StepId
from netdfl.explore.observed import observe
from netdfl.explore.rows import MemoryStore
from netdfl.record.base import WaitEnd, WaitRecord
from netdfl.record.observations import Observations
from netdfl.record.result import StoredRecord
from netdfl.record.run import open_run
from netdfl.record.store import StoreWriter

MS = 1_000_000


def data(round: int, edge: tuple[int, int], fate: str, *, attempt: int = 0, at_ms: int | None = None) -> Outcome:
    read, sent_ns = Fate.read(fate), (round if at_ms is None else at_ms) * MS
    id = MessageId(Kind.DATA, 0, StepId(round, 0), 0, attempt)
    return Outcome((edge,), id, 100 + round, sent_ns, sent_ns + 5 if read in Fate.ARRIVED else None, read)


def event(at_ms: int, node: int | None, round: int, kind: str, **details: Any) -> tuple[Any, ...]:
    return "event", (at_ms * MS, node, round, kind), details


def metric(at_ms: int, node: int | None, round: int, **figures: float) -> tuple[Any, ...]:
    return "metrics", (at_ms * MS, node, round, figures), {}


def wait(node: int, ended: WaitEnd, *missing: int) -> tuple[Any, ...]:
    return "wait", (WaitRecord(node, 0, 0, Kind.DATA, 0, MS, MS, ended, None, missing),), {}


def sent(*outcomes: Outcome) -> list[tuple[Any, ...]]:
    return [("outcome", (each, [Payload()] * len(each.edges)), {}) for each in outcomes]


FATES = ("delivered", "late", "duplicate", "dropped:loss", "dropped:queue", "failed:gone", "refused:not_finite")
NAN = float("nan")
RECORDS: dict[str, list[tuple[Any, ...]]] = {
    "nothing": [],
    "every fate": sent(*(data(round, (round % 3, 3), fate) for round, fate in enumerate(FATES))),
    "figures, whole and not": [
        metric(1, None, 0, test_accuracy=0.5, mean_local_accuracy=0.25, test_loss=2.0, weight_sum=1.0),
        metric(5, None, 2, test_accuracy=0.75, test_loss=NAN, test_mae=3.0),
        metric(3, None, 1, test_accuracy=0.875, consensus_distance=float("inf"), test_loss=1.0),
    ],
    "figures of nodes on data of their own": [
        *(metric(8 + node, node, 1, personal_accuracy=0.25 * node, personal_loss=1.0) for node in range(3)),
        metric(4, 0, 0, personal_accuracy=0.5, personal_loss=NAN),
        metric(5, 1, 0, personal_loss=NAN),
        metric(9, None, 1, mean_personal_loss=2.0),
    ],
    "losses and weights of nodes": [
        *(metric(round, node, round, train_loss=1.0 / (1 + node + round)) for round in range(3) for node in range(2)),
        metric(4, 0, 3, train_loss=NAN, weight=0.0),
        *(metric(round, 1, round, weight=2.0**-round) for round in (1, 4, 2)),
    ],
    "waits": [
        wait(0, WaitEnd.CAME),
        wait(1, WaitEnd.DEADLINE, 0, 2),
        wait(1, WaitEnd.DEADLINE),
        wait(2, WaitEnd.GONE, 1),
    ],
    "deaths, and another node's pause after them": [
        event(3, 1, 4, "died", reason="killed by SIGKILL"),
        event(4, 2, 4, "training_error", error="out of memory"),
        event(5, 1, 4, "died", reason="again"),
        event(6, 0, 4, "pause"),
        event(7, 0, 4, "resume"),
        event(8, 3, 4, "died", signal="SIGSEGV"),
        event(9, 4, 4, "died", exit_code=3),
        event(9, 5, 4, "died"),
    ],
    "numbers that are none": [
        event(2, 1, 3, "not_finite"),
        event(1, 1, 2, "not_finite"),
        event(2, None, 1, "not_finite"),
        metric(3, 2, 1, train_loss=NAN),
        event(4, 0, 3, "refused", src=1, reason="not_finite", what="x"),
        event(4, 2, 4, "refused", src=1, reason="not_finite", what="y"),
        event(4, None, -1, "refused", src=None, reason="version", what="z", messages=100),
        event(5, 2, 4, "outlier", src=1, of="model", size=1e9, usual=2.0),
        event(6, 0, 3, "outlier", src=1, of="model", size=1e8, usual=1.0),
        event(7, 0, 3, "outlier", src=2, of="weight", size=4.0, usual=0.25),
        event(5, 2, 4, "mixed_not_finite", src=1),
        event(6, 2, 5, "mixed_not_finite", src=1),
    ],
    "weight that is gone": [
        *sent(data(0, (0, 1), "dropped:loss"), data(0, (0, 1), "delivered", attempt=1)),
        *sent(data(1, (0, 1), "dropped:loss")),
        event(2, 0, 0, "given_up", dst=1, step=0, weight=0.25),
        event(2, 0, 1, "given_up", dst=1, step=0, weight=0.5),
        event(3, 1, 2, "crash", weight=0.75),
        event(4, 1, 2, "restart"),
        event(5, 1, 3, "rejoin", source=0, weight=0.0),
        event(6, 2, 3, "crash", weight=1.5),
        event(7, 2, 3, "restart"),
    ],
    "a restart without its state that has not rejoined": [
        event(1, 1, 2, "crash", state="lost", weight=0.75),
        event(2, 1, 2, "restart"),
    ],
    "a state lost after one that was kept": [
        event(1, 1, 2, "crash", state="kept", weight=4.0),
        event(2, 1, 2, "restart"),
        event(3, 1, 2, "crash", state="lost", weight=0.75),
        event(4, 1, 2, "restart"),
        event(5, 1, 3, "rejoin", source=0, weight=0.0),
    ],
    "given up, and not stored as its receiver crashed": [
        *sent(data(1, (0, 1), "delivered"), data(2, (0, 1), "delivered"), data(3, (0, 1), "delivered")),
        *(event(9, 1, round, "untaken", src=0, step=0) for round in (1, 2)),
        event(9, 1, 2, "crash", state="kept", weight=1.0),
        event(10, 1, 2, "restart"),
        *sent(data(2, (0, 1), "delivered", attempt=1, at_ms=15)),
        *(event(20, 0, round, "given_up", dst=1, step=0, weight=0.5 * round) for round in (1, 2, 3)),
    ],
    "not stored by a node that stays away with it": [
        *sent(data(1, (0, 1), "delivered")),
        event(9, 1, 1, "untaken", src=0, step=0),
        event(9, 1, 2, "crash", state="kept", weight=1.0),
        event(20, 0, 1, "given_up", dst=1, step=0, weight=0.5),
    ],
    "taken by two lives, of which one lost it": [
        *sent(data(1, (0, 1), "delivered"), data(2, (0, 1), "failed:gone")),
        event(3, 1, 2, "crash", state="lost", weight=1.0),
        event(4, 1, 2, "restart"),
        event(5, 1, 3, "rejoin", source=0, weight=0.0),
        *sent(*(data(round, (0, 1), "delivered", attempt=1, at_ms=7) for round in (1, 2))),
        event(7, 1, 1, "taken_again", src=0, step=0, weight=0.25),
        event(7, 1, 2, "taken_again", src=0, step=0, weight=0.125),
    ],
    "refused by the next life": [
        *sent(data(1, (0, 1), "delivered")),
        event(3, 1, 2, "crash", state="lost", weight=1.0),
        event(4, 1, 2, "restart"),
        event(7, 1, 1, "taken_again", src=0, step=0, weight=0.25),
    ],
    "kept by its sender to the end": [
        *sent(data(1, (0, 1), "delivered"), data(2, (0, 1), "failed:gone")),
        event(3, 1, 2, "crash", state="lost", weight=1.0),
        event(4, 1, 2, "restart"),
        *sent(data(5, (0, 1), "delivered")),
        *(event(9, 0, round, "unacknowledged", dst=1, step=0, weight=0.0625 * round) for round in (1, 2, 5)),
    ],
    "kept by its sender, which ended before its receiver returned": [
        *sent(data(1, (0, 1), "delivered")),
        event(3, 1, 2, "crash", state="lost", weight=1.0),
        event(4, 0, 1, "unacknowledged", dst=1, step=0, weight=0.25),
        event(9, 1, 2, "restart"),
    ],
    "kept by its sender, and in the lost state of a node that stays away": [
        *sent(data(1, (0, 1), "delivered")),
        event(3, 1, 2, "crash", state="lost", weight=1.0),
        event(9, 0, 1, "unacknowledged", dst=1, step=0, weight=0.25),
    ],
    "kept by its sender, which sent it again after a crash": [
        *sent(data(1, (0, 1), "delivered")),
        event(2, 0, 1, "unacknowledged", dst=1, step=0, weight=0.25),
        event(2, 0, 1, "crash", state="kept", weight=1.0),
        event(3, 1, 2, "crash", state="lost", weight=1.0),
        event(4, 0, 1, "restart"),
        event(5, 1, 2, "restart"),
    ],
}
LOST = {
    "weight that is gone": 1.25,
    "a restart without its state that has not rejoined": 0.75,
    "a state lost after one that was kept": 0.75,
    "given up, and not stored as its receiver crashed": 0.5,
    "not stored by a node that stays away with it": 0.0,
    "taken by two lives, of which one lost it": 0.75,
    "refused by the next life": 0.75,
    "kept by its sender to the end": 1 - 0.0625,
    "kept by its sender, which ended before its receiver returned": 0.75,
    "kept by its sender, and in the lost state of a node that stays away": 0.0,
    "kept by its sender, which sent it again after a crash": 1.0,
}


def both(record: list[tuple[Any, ...]], path: Path) -> tuple[Observations, Observations]:
    (path / "scenario.yaml").write_text("name: observed\n")
    rows = MemoryStore()
    with StoreWriter(path, "fleet") as store:
        for recorder in (rows, store):
            for method, args, more in record:
                getattr(recorder, method)(*args, **more)
    return observe(rows), StoredRecord.of(open_run(path)).observed


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_rows_in_memory_are_observed_as_those_in_files(record: list[tuple[Any, ...]], tmp_path: Path) -> None:
    in_memory, in_files = both(record, tmp_path)
    assert in_memory == in_files


@pytest.mark.parametrize("name", LOST)
def test_lost_weight_is_counted_to_the_last_share(name: str, tmp_path: Path) -> None:
    for observed in both(RECORDS[name], tmp_path):
        assert observed.lost_weight == LOST[name]


def test_a_pause_of_another_node_hides_no_death(tmp_path: Path) -> None:
    for observed in both(RECORDS["deaths, and another node's pause after them"], tmp_path):
        assert [death.node for death in observed.deaths] == [1, 2, 3, 4, 5]
        assert [death.why for death in observed.deaths][1] == "training error: out of memory"
