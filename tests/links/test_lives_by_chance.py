"""What goes down by chance, and which entries may say so beside another, moment by moment."""

from __future__ import annotations

from typing import Any, cast

import pytest

from netdfl.core.rng import Streams
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.compiling import Entry
from netdfl.links.schedule.when import Facts, Span

CHURN = {"from": "10s", "to": "20s", "churn": [0, 1], "up": "1s", "down": "1s"}
FACTS = Facts(4, Streams(3), {}, 100 * 10**9, 50)


def refused(*entries: dict[str, Any]) -> list[tuple[int, str]]:
    try:
        compile_events(entries, FACTS)
    except ScheduleError as error:
        return error.problems
    return []


def crash(at: str, **more: Any) -> dict[str, Any]:
    return {"at": at, "crash": 1} | more


@pytest.mark.parametrize(
    ("other", "meets"),
    [
        (crash("9999999999ns", restart_after="1ns"), True),
        (crash("9999999998ns", restart_after="1ns"), False),
        (crash("10s", restart_after="1s"), True),
        (crash("19999999999ns", restart_after="1s"), True),
        (crash("20s", restart_after="1s"), False),
        (crash("5s", restart_after="10s"), True),
        (crash("5s", restart_after="30s"), False),
        (crash("15s", restart_after="1s", crash=2), False),
        (crash("15s", restart_after="1s", crash=[1, 2]), True),
        (crash("15s", restart_after="1s", crash="*"), True),
        ({"at_round": 3, "crash": 1, "restart_after": "1s"}, False),
        (CHURN | {"from": "20s", "to": "30s"}, False),
        (CHURN | {"from": "19s", "to": "30s"}, True),
        (CHURN | {"from": "0s", "to": "10s"}, False),
        (CHURN | {"from": "0s", "to": "11s"}, True),
        (CHURN | {"churn": [2, 3]}, False),
        ({"at": "15s", "for": "1s", "pause": 1}, False),
    ],
)
def test_a_node_that_lives_by_chance_is_not_crashed_by_another_entry_then(other: dict[str, Any], meets: bool) -> None:
    for entries, churn, wrong in (((CHURN, other), 0, 1), ((other, CHURN), 1, 0)):
        both = "churn" in other
        found = [(index, text) for index, text in refused(*entries) if "at random times then" in text]
        assert [index for index, _ in found] == [1 if both else wrong] * meets
        low = 0 if both or other.get("crash") == "*" else 1
        said = f"node {low} crashes and returns at random times then, by events[{0 if both else churn}]"
        assert all(text.startswith(said) for _, text in found)


class Drawn:
    """Streams of which each draw is the next of these."""

    def __init__(self, *draws: float) -> None:
        self.draws = iter(draws)

    def rng(self, *name: object) -> Drawn:
        return self

    def exponential(self, mean: float) -> float:
        return next(self.draws, 99)


@pytest.mark.parametrize(
    ("draws", "outages"),
    [
        ((8, 5), [(9, 10)]),
        ((9,), []),
        ((3, 2, 2, 9), [(4, 7)]),
        ((3, 2, 1, 9), [(4, 7), (9, 10)]),
        ((0.9, 0.9, 9), [(1, 2)]),
    ],
)
def test_an_outage_by_chance_begins_before_its_span_ends_and_ends_with_it(
    draws: tuple[float, ...], outages: list[tuple[int, int]]
) -> None:
    entry = Entry(Facts(2, cast(Streams, Drawn(*draws))), 0, [Span(0, 10)])
    assert list(entry.outages((0, 1), 5, 5)) == outages


def test_a_heal_by_rounds_is_of_what_broke_by_rounds_and_one_by_the_clock_of_the_clocks() -> None:
    for broken in ({"at": "1s"}, {"at_round": 1}):
        for healed in ({"at": "2s"}, {"at_round": 2}):
            found = refused(broken | {"link": "0->1", "state": "down_drop"}, healed | {"heal": "0->1"})
            assert [index for index, _ in found] == [1] * (broken.keys() != healed.keys())
