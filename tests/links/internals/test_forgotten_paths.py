"""A path that is forgotten is kept nowhere."""

from __future__ import annotations

from typing import Any

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.channel import Links
from netdfl.links.rules.base import Transit
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec

S = 10**9


def unit(round: int = 0, nbytes: int = 100, *, src: int = 0, dst: int = 1, **more: int) -> Transit:
    return Transit(src, dst, Kind.DATA, round, more.get("step", 0), more.get("attempt", 0), nbytes)


def links(block: dict[str, Any], *entries: dict[str, Any]) -> tuple[Links, list[CompiledEvent]]:
    events = compile_events(entries, Facts(4, Streams(7), {}, 100 * S, 50))
    return Links(LinksSpec(block, {}, 4), Streams(7), events), events


def test_a_path_is_kept_until_it_is_forgotten_and_then_made_as_the_link_is_now() -> None:
    net, (event,) = links({"default": {"latency": "1s"}}, {"at": "1s", "link": "0->1", "latency": "3s"})
    path = net.path(0, 1)
    assert net.path(0, 1) is path
    net.forget(2, 3)
    net.forget(0, 1)
    assert (net._paths, net._values) == ({}, {})
    assert net.apply(event, S) == []
    fresh = net.path(0, 1)
    assert fresh is not path
    (leaves,) = fresh.stages[0].enter(unit(), 0)
    assert leaves.at_ns == 3 * S
