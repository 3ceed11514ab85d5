"""A path that is forgotten is kept nowhere."""

from __future__ import annotations

from netdfl.core.rng import Streams
from netdfl.links.channel import Links
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec


def test_nothing_is_kept_of_a_path_that_is_forgotten() -> None:
    events = compile_events([{"at": "1s", "link": "0->1", "latency": "3s"}], Facts(4, Streams(7)))
    net = Links(LinksSpec({"default": {"latency": "1s"}}, {}, 4), Streams(7), events)
    net.path(0, 1)
    assert len(net._paths) == 1
    net.forget(2, 3)
    net.forget(0, 1)
    assert (net._paths, net._values) == ({}, {})
