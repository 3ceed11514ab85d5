"""The automatic deadline: a lost message costs little, a slow node is waited for, and nothing grows for ever."""

from __future__ import annotations

import pytest
from deadlines import COLUMNS, GRAPHS, LOSSES, ROWS, Ran, ran, read

TEN_TIMES = {"compute": "200ms", "stragglers": {"nodes": [0], "factor": 10}}
EXACT = 1e-15
"""How near nodes of a fleet that lost nothing for good come to each other in sixty rounds on a random graph."""


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_lost_messages_cost_little_and_make_none_late(seed: int) -> None:
    found = ran("random", "50ms", {}, 0.05, seed)
    assert found.duration_s < 30
    assert found.late < 0.02 * 3840
    assert found.consensus < EXACT


def test_with_compute_a_lost_message_costs_less_than_a_round() -> None:
    found = ran("random", "50ms", {"compute": "200ms"}, 0.05, 1)
    assert found.duration_s < 3 * 15
    assert found.late < 0.02 * 3840


@pytest.fixture(scope="module")
def lossless() -> Ran:
    """A fleet with a node ten times slower than the others, and without loss."""
    return ran("random", "50ms", TEN_TIMES, 0, 1)


@pytest.mark.parametrize(("loss", "most_s"), [(0, 121), (0.05, 135)])
def test_a_node_ten_times_slower_is_waited_for(loss: float, most_s: float, lossless: Ran) -> None:
    found = ran("random", "50ms", TEN_TIMES, loss, 1) if loss else lossless
    assert found.late == 0
    assert found.duration_s < most_s
    assert found.consensus < EXACT


def test_compute_beyond_the_first_deadline_is_waited_for() -> None:
    slow = {"compute": {"kind": "lognormal", "mean": "4s", "jitter": "1500ms"}}
    found = ran("random", "50ms", slow, 0, 1, rounds=6)
    assert found.late == 0


def test_a_network_that_becomes_slower_is_followed() -> None:
    slower = [{"at": "2s", "link": "default", "latency": "1s"}]
    found = ran("random", "50ms", {}, 0.01, 1, rounds=40, events=slower)
    assert found.late < 16
    assert found.duration_s < 40 * 4


@pytest.mark.parametrize("graph", [pytest.param(each, marks=[pytest.mark.soak] * (each != "ring")) for each in GRAPHS])
def test_nothing_grows_for_ever(graph: str) -> None:
    short, long = (ran(graph, "50ms", {}, 0.3, 1, rounds=rounds).duration_s for rounds in (30, 60))
    assert long < 3 * short
    assert long < 60 * 2.5


def test_what_is_asked_stays_rare_where_nothing_is_lost(lossless: Ran) -> None:
    assert lossless.sent < 1.3 * 3840


def test_the_guide_shows_the_rows_and_their_picture() -> None:
    """It draws what the command counted: twelve kinds of fleet at each loss, of which a lossless one takes its time."""
    found = read()
    assert (len(found), list(found[0])) == (12 * len(LOSSES), list(COLUMNS))
    assert {row["against no loss"] for row in found if row["loss"] == "0%"} == {"1.00"}
    guide = (ROWS.parents[1] / "waiting.md").read_text(encoding="utf-8")
    picture = ROWS.with_suffix(".svg")
    assert f"(waiting/{ROWS.name})" in guide
    assert f"(waiting/{picture.name})" in guide
    assert all(f"{graph}, 50 ms" in picture.read_text(encoding="utf-8") for graph in GRAPHS)
