"""What acknowledged delivery gives up is counted, with the mass that is gone, and said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from netdfl.report.words import remarks
from netdfl.running.judged import FinishedRun

SETS = (
    "nodes=6",
    "rounds=30",
    "task={kind: consensus, dim: 4, dtype: float64}",
    "algorithm=sgp",
    "topology={kind: random_push, out_neighbors: 2}",
    "world.compute=10ms",
    "wait.deadline=40ms",
    "links={default: {latency: 5ms, loss: 30%}}",
)


def test_shares_given_up_are_the_mass_that_is_missing(simulated: Callable[..., FinishedRun]) -> None:
    finished = simulated(*SETS, "delivery={kind: acknowledged, attempts: 1, timeout: 12ms}")
    given_up = finished.result["given_up"]
    assert given_up["messages"] > given_up["lost"] > 0
    (said,) = remarks(finished.result)
    assert said.startswith(f"delivery gave up {given_up['messages']} messages")
    missing = 6 * (1 - finished.result["weight_sum"])
    open = finished.run.rows("SELECT sum(value) FROM metrics WHERE name = 'limbo_weight' AND round = 29")[0][0]
    assert given_up["lost_weight"] <= missing + 1e-12
    assert missing <= open + 1e-12


def test_where_nothing_is_given_up_nothing_is_said(simulated: Callable[..., FinishedRun]) -> None:
    finished = simulated(*SETS, "delivery=acknowledged")
    assert finished.result["given_up"] == {"messages": 0, "lost": 0, "lost_weight": 0.0}
    assert not any("gave up" in said for said in remarks(finished.result))


@pytest.mark.parametrize("answers", ["data", "ack"])
def test_who_lost_only_the_answer_lost_no_mass(answers: str, simulated: Callable[..., FinishedRun]) -> None:
    lost = f"links.default.loss={{model: drop_list, messages: [{{round: 3, kind: {answers}}}]}}"
    finished = simulated(*SETS, lost, "delivery={kind: acknowledged, attempts: 1, timeout: 12ms}")
    given_up, missing = finished.result["given_up"], 6 * (1 - finished.result["weight_sum"])
    assert given_up["messages"] == 12
    assert given_up["lost"] == (12 if answers == "data" else 0)
    assert given_up["lost_weight"] == pytest.approx(missing, abs=1e-12)
