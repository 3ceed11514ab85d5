"""What a held replay says of messages on links that flows share."""

from __future__ import annotations

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.channel import Links
from netdfl.links.rules.base import Transit
from netdfl.links.spec import LinksSpec
from netdfl.replaying.moment import way_of
from tests.links.driving import LinkRun

MS = 10**6


def test_a_message_goes_waits_for_its_turn_or_is_held() -> None:
    rules = {"0": {"uplink": "8Mbit"}, "default": {"latency": "5ms"}, "0->2": {"state": "down_hold"}}
    links, run = Links(LinksSpec(rules, {}, 3), Streams(0)), LinkRun()
    for number, dst in enumerate((1, 1, 2)):
        run.enter(links.path(0, dst), Transit(0, dst, Kind.DATA, number, 0, 0, 10**6), 0)
    run.engine.run(MS)
    ways = {flight.content.round: way_of(flight) for flight in run.engine.flights()}  # type: ignore[arg-type]
    assert ways == {
        0: (1005 * MS, "arrives at 1.005 s, through latency"),
        1: (None, "waits behind other messages of its link"),
        2: (None, "held by a link that is down"),
    }


def test_when_a_message_leaves_a_shared_downlink_ahead_of_it_is_not_guessed() -> None:
    links, run = Links(LinksSpec({"1": {"downlink": "8Mbit"}}, {}, 2), Streams(0)), LinkRun()
    run.submit(links.path(0, 1), Transit(0, 1, Kind.DATA, 0, 0, 0, 10**6), 3 * MS)
    (flight,) = run.engine.flights()
    assert way_of(flight) == (None, "goes on at 0.003 s over a link that is shared")  # type: ignore[arg-type]
