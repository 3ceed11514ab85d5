"""Links that keep no order, without loss: every message is waited for, and nothing else is changed by it."""

from __future__ import annotations

import pytest
from small_scenario import Run, small

from netdfl.host.blueprint import make_algorithm

FREE = "{dist: exponential, mean: 50ms, order: free}"
LINKS = "links={default: {latency: 10ms}, '0->1': {%s}}"
EVENT = "events=[{at: 10ms, for: 1s, link: '0->1', %s}]"
OVERTAKING = (
    LINKS % f"latency: {FREE}",
    LINKS % "reorder: {probability: 0.3, delay: 200ms}",
    EVENT % f"latency: {FREE}",
    EVENT % "reorder: {probability: 0.3, delay: 200ms}",
)
IN_ORDER = (
    "links={}",
    LINKS % "latency: {dist: exponential, mean: 50ms}, duplicate: 5%, rate: 1Mbit",
    LINKS % "latency: none, reorder: none",
    LINKS % "reorder: 0",
    EVENT % "latency: 30ms, loss: 10%",
    EVENT % "latency: {dist: exponential, mean: 50ms}",
)


def ordered(*sets: str) -> bool:
    return make_algorithm(small(*sets)).wait.ordered


def test_waits_know_whether_links_keep_order() -> None:
    assert [rule for rule in OVERTAKING if ordered(rule)] == []
    assert [rule for rule in IN_ORDER if not ordered(rule)] == []
    assert ordered(LINKS % f"latency: {FREE}", "world.loss_layer=packet")


@pytest.mark.parametrize("rule", [f"latency: {FREE}", "latency: 10ms, reorder: {probability: 0.3, delay: 200ms}"])
def test_without_loss_nothing_is_late_or_missing(simulated: Run, rule: str) -> None:
    finished = simulated("nodes=6", "rounds=40", "wait.deadline=auto", f"links={{default: {{{rule}}}}}")
    fates = finished.run.rows("SELECT fate, count(*) FROM messages WHERE kind = 'data' GROUP BY fate")
    assert fates == [("delivered", 480)]
    assert finished.run.rows("SELECT count(*) FROM events WHERE kind = 'missing'") == [(0,)]
