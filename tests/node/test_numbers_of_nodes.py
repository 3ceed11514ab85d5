"""How long and how often a node asks, waits, sends again and remembers, where the scenario says nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.node import asking, deadline, delivery, heartbeats, ledger, state_transfer, worker
from netdfl.node.asking import PeerQuery, QueriedWait
from netdfl.node.delivery import ResendPolicy
from netdfl.node.mailbox import Mailbox
from netdfl.node.waits import OpenWait

S, MS = 10**9, 10**6

LIMITS: list[tuple[Any, dict[str, float]]] = [
    (asking, {"FIRST_NS": S // 2, "LEAST_NS": 50 * MS, "LATEST_NS": 2 * S, "LONGEST_NS": 60 * S}),
    (asking, {"LATEST_FIRST_NS": 4 * S, "LAST_WAITS": 9, "SILENT_NS": 2 * S, "SILENT_TIMES": 4}),
    (asking, {"TRIES": 6, "BACKOFF": 1.5, "MOST_OPEN": 256}),
    (deadline.AutoDeadline, {"FIRST_NS": 30 * S, "LEAST_NS": 2 * S, "LONGEST_NS": 600 * S, "ROUNDS": 12, "LAGS": 4}),
    (deadline, {"LAST": 32}),
    (deadline.Suspects, {"TIMES": 2}),
    (delivery, {"FIRST_NS": S // 2, "LEAST_NS": 20 * MS, "FACTOR": 3, "DOUBLINGS": 5}),
    (heartbeats, {"MOST_BEATS": 1000, "AVERAGES": 5, "RECENT": 100}),
    (
        ledger,
        {"LAST": 8, "LAST_LOST": 32, "MOST_SAID": 500, "MOST_RUNS": 256, "EACH_RECORDED": 100, "MOST_ORIGINS": 16},
    ),
    (state_transfer, {"ASKS": 8, "FIRST_NS": S // 2, "LONGEST_NS": 4 * S}),
    (worker.ThreadWorker, {"INLINE_NUMEL": 1_000_000, "INLINE_S": 0.002}),
    (worker.BatchWorker, {"INLINE_S": 0.0}),
]


@pytest.mark.parametrize(("of", "limits"), LIMITS)
def test_a_node_goes_by_these_limits(of: Any, limits: dict[str, float]) -> None:
    assert {name: getattr(of, name) for name in limits} == limits


def test_what_is_not_said_of_a_node_is_so() -> None:
    assert ResendPolicy() == ResendPolicy(timeout_ns="auto", attempts=20)
    mailbox = Mailbox(keep_late=False)
    assert (mailbox.stale, mailbox.bound, mailbox.num_kept) == (0, 1024, 0)
    assert mailbox.is_over((-1, 0)) is True  # type: ignore[arg-type]
    assert mailbox.is_over((0, 0)) is False  # type: ignore[arg-type]
    wait = OpenWait(0, 0, None, 1, 0, None, set())
    assert (wait.asks, wait.unanswered, wait.kind) == (False, False, "data")
    asked = PeerQuery(0, 0)
    assert (asked.attempts, asked.tries, asked.said_done) == (0, 0, 0)
    assert not QueriedWait((0, 0), 0, 1, 0, lambda: (), {}).learned  # type: ignore[arg-type]
