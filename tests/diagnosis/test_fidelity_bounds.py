"""The bounds of an emulation's fidelity are held to the nanosecond and the packet, and each miss has its sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.diagnosis.fidelity import (
    EVENT,
    FEWEST,
    MOST_LATE_NS,
    FidelityVerdict,
    LinkTimes,
    Meter,
    NetworkDelays,
    judge_fidelity,
    judge_packets,
)
from netdfl.record.run import Run
from netdfl.record.store import StoreWriter

MS = 1_000_000
DELAY_MS = 100


def judged(
    path: Path, late_ms: float, num: int = FEWEST, ways: NetworkDelays | None = None, **bound: Any
) -> FidelityVerdict:
    """A run of one link, 0->1, whose messages are all so late."""
    meter = Meter(lags_ns=[3 * MS, MS, 2 * MS])
    for number in range(num):
        sent = number * 1000 * MS
        meter.arrived(0, 1000, sent, sent + DELAY_MS * MS, sent + round((DELAY_MS + late_ms) * MS))
    with StoreWriter(path, "001") as store:
        store.event(0, 1, 0, EVENT, **meter.to_json())
    more = {} if ways is None else {"ways": ways}
    return judge_fidelity(Run(path), **{"relative": 0.0, "slack_ns": 0} | bound, **more)


@pytest.mark.parametrize(
    ("late_ms", "num", "bound", "missed"),
    [
        (5, FEWEST, {"slack_ns": 5 * MS}, False),
        (6, FEWEST, {"slack_ns": 5 * MS}, True),
        (6, FEWEST - 1, {"slack_ns": 5 * MS}, False),
        (20, FEWEST, {"relative": 0.25}, False),
        (30, FEWEST, {"relative": 0.25}, True),
        (20, FEWEST, {"relative": 0.25, "slack_ns": 5 * MS}, False),
        (20, FEWEST, {"relative": 0.05, "slack_ns": 25 * MS}, False),
    ],
)
def test_a_link_may_be_late_by_the_larger_of_both_bounds(
    late_ms: float, num: int, bound: dict[str, Any], missed: bool, tmp_path: Path
) -> None:
    found = judged(tmp_path, late_ms, num, **bound)
    assert bool(found.missed) == missed
    assert found.summary is not None
    assert (found.summary["links_judged"], found.summary["links_missed"]) == (int(num >= FEWEST), int(missed))


def test_a_miss_is_told_with_its_figures(tmp_path: Path) -> None:
    found = judged(tmp_path, 30, relative=0.2, slack_ns=5 * MS)
    assert found.missed == (
        "the emulation missed its bound on 1 of 1 links: half of the messages of 0->1 came 30.0 ms late or more, "
        "with 100.0 ms scheduled in the mean (allowed: 20% or 5 ms); "
        "use fewer nodes or more cores, or widen world.fidelity"
    )
    assert found.summary is not None
    assert found.summary["bound"] == {"relative": 0.2, "slack_s": 0.005}
    assert found.summary["loop_lag_s"] == {"1": {"p50": 0.002, "p99": 0.003, "max": 0.003}}


def network(**way: float) -> NetworkDelays:
    return NetworkDelays(
        {"machines": {"east": [0], "west": [1, 2]}, "network": [{"src": "east", "dst": "west", **way}]}
    )


@pytest.mark.parametrize(
    ("way", "adds_s"),
    [
        ({"round_trip_s": 0.04}, 0.02),
        ({"round_trip_s": 0.04, "rate_bps": 80_000}, 0.12),
        ({"round_trip_s": 0.04, "rate_bps": 0}, 0.02),
        ({"rate_bps": 80_000}, 0.0),
    ],
)
def test_a_network_adds_half_a_round_trip_and_the_bytes_at_its_rate(way: dict[str, float], adds_s: float) -> None:
    ways = network(**way)
    assert ways.adds_s(0, 1, 1000) == pytest.approx(adds_s, rel=1e-12)
    assert ways.adds_s(1, 2, 1000) == ways.adds_s(1, 0, 1000) == ways.adds_s(0, 7, 1000) == 0
    assert ways.name(0, 2) == "east and west"
    assert NetworkDelays({}).adds_s(0, 1, 1000) == 0


@pytest.mark.parametrize(("trip_s", "to_blame"), [(0.030, False), (0.032, True)])
def test_the_network_is_to_blame_for_more_than_half_of_what_is_late(
    trip_s: float, to_blame: bool, tmp_path: Path
) -> None:
    found = judged(tmp_path, 30, ways=network(round_trip_s=trip_s))
    assert found.summary is not None
    assert found.summary["links"][0]["network_s"] == trip_s / 2
    blame = (
        "the network between east and west takes 16.0 ms of it by itself: place these nodes on one machine "
        "(world.sites), schedule longer delays, or widen world.fidelity"
    )
    assert found.missed.endswith(blame) == to_blame
    assert found.missed.endswith("use fewer nodes or more cores, or widen world.fidelity") != to_blame


def test_the_rate_of_a_link_is_that_from_its_first_arrival_on() -> None:
    times = LinkTimes()
    times.add(500, 0, 10, 20)
    one = times.to_json()
    assert (one["scheduled_rate_bps"], one["achieved_rate_bps"]) == (None, None)
    times.add(1000, 100, 1010, 520)
    times.add(1500, 200, 510, 270)
    assert times.to_json() == {
        "messages": 3,
        "mean_bytes": 1000,
        "scheduled_delay_s": (10 + 910 + 310) / 3 / 1e9,
        "achieved_delay_s": (20 + 420 + 70) / 3 / 1e9,
        "median_error_s": -240 / 1e9,
        "worst_error_s": 10 / 1e9,
        "scheduled_rate_bps": 8 * 2500 * 1e9 / 1000,
        "achieved_rate_bps": 8 * 2500 * 1e9 / 500,
    }


def test_only_what_a_link_delayed_is_measured_each_sender_by_itself() -> None:
    meter = Meter()
    for src, due in ((5, 11), (3, 11), (5, 12), (5, 10), (4, 9)):
        meter.arrived(src, 7, 10, due, 20)
    links = meter.to_json()["links"]
    assert isinstance(links, dict)
    assert [(src, times["messages"]) for src, times in links.items()] == [("3", 1), ("5", 2)]
    assert meter.to_json()["loop_lag_s"] == {"p50": 0, "p99": 0, "max": 0}
    meter.lags_ns = list(range(0, 200_000_000, MS))[::-1]
    assert meter.to_json()["loop_lag_s"] == {"p50": 0.1, "p99": 0.198, "max": 0.199}


# packets

LATE = "one packet in a hundred came more than {} ms late"
WAITED = "one in a hundred waited more than {} ms in its device before it was read"


@pytest.mark.parametrize(
    ("counts", "missed"),
    [
        ({}, []),
        ({"late_ns": {"99": MOST_LATE_NS}, "waited_ns": {"99": MOST_LATE_NS}}, []),
        ({"late_ns": {"99": 2 * MOST_LATE_NS}}, [LATE.format(17)]),
        ({"waited_ns": {"99": 4 * MOST_LATE_NS}}, [WAITED.format(34)]),
        ({"unread": 1, "packets": {"sent": 999}}, []),
        (
            {"unread": 1, "packets": {"sent": 998}},
            ["the kernel dropped 1 of 999 packets because nobody read them in time"],
        ),
        (
            {"late_ns": {"99": 2 * MOST_LATE_NS}, "waited_ns": {"99": 2 * MOST_LATE_NS}, "unread": 1},
            [
                LATE.format(17),
                WAITED.format(17),
                "the kernel dropped 1 of 1 packets because nobody read them in time",
            ],
        ),
    ],
)
def test_packets_are_late_or_unread_beyond_a_bound(counts: dict[str, Any], missed: list[str]) -> None:
    busy = "the machine is too busy to carry the fleet's packets; use fewer nodes or lower rates"
    assert judge_packets(counts) == (f"{'; '.join(missed)}: {busy}" if missed else "")
