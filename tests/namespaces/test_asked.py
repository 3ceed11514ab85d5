"""The load that a scenario asks of the forwarder: links, access links and core links, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import MachineError
from netdfl.links.rules.rate import Rate
from netdfl.packets.asked import asked_bps
from netdfl.packets.engines import choose, packet_links
from netdfl.packets.received import open_received
from netdfl.scenario.build import build_links, compile_schedule
from netdfl.scenario.load import load
from netdfl.worlds.containers.compose import acts_on_packets

BASE: dict[str, Any] = {"schema": "netdfl/1", "name": "u", "nodes": 4, "rounds": 2, "world": "namespaces"}
BASE |= {"task": "consensus", "algorithm": "dpsgd", "topology": "full"}
CORE = {"links": {"a--b": {"rate": "7Mbit"}, "b--c": {"rate": "5Mbit"}}, "place": {"0..1": "a", "2": "b", "3": "c"}}


def asked(links: dict[str, Any], **more: Any) -> float:
    scenario = load(BASE | {"links": links} | more)
    return asked_bps(scenario, build_links(scenario)) / 1e6


@pytest.mark.parametrize(
    ("links", "mbit"),
    [
        ({}, 0),
        ({"default": {"rate": "2Mbit"}}, 12 * 2),
        ({"0->1": {"rate": "2Mbit"}}, 2),
        ({"default": {"uplink": "10Mbit"}}, 40),
        ({"default": {"downlink": "10Mbit"}}, 40),
        ({"default": {"uplink": "10Mbit", "downlink": "8Mbit"}}, 32),
        ({"default": {"uplink": "10Mbit", "rate": "2Mbit"}}, 24),
        ({"default": {"uplink": "5Mbit", "rate": "2Mbit"}}, 20),
        ({"0": {"uplink": "10Mbit"}, "1..3": {"downlink": "3Mbit"}}, 10),
        ({"0": {"uplink": "10Mbit"}, "0->1": {"rate": "2Mbit"}}, 10),
    ],
)
def test_nodes_ask_for_what_their_links_let_pass(links: dict[str, Any], mbit: float) -> None:
    assert asked(links) == mbit


def test_core_links_let_no_more_out_of_their_sites() -> None:
    # a, b and c have four directions out, 7 + 7 + 5 + 5; nodes 0 and 1 have 10 each to one another
    assert asked({"default": {"uplink": "10Mbit"}}, underlay=CORE) == 40
    assert asked({"default": {"uplink": "30Mbit"}}, underlay=CORE) == 24 + 2 * 30
    within = CORE | {"place": {"0": "a", "1..3": "b"}}
    assert asked({}, underlay=within) == 14, "what has no limit does not count"
    assert asked({"1..3": {"uplink": "100Mbit"}}, underlay=within) == 314
    apart = {"links": {"a--b": {"rate": "7Mbit"}}, "place": {"0": "a", "1": "b"}}
    assert asked({}, underlay=apart, nodes=2, topology="ring") == 14


@pytest.mark.parametrize(("mbit", "said"), [(200, "tun"), (201, "402 Mbit/s together, .* netem has no core links")])
def test_what_core_links_carry_both_ways_is_within_what_the_forwarder_does(mbit: int, said: str) -> None:
    underlay = {"links": {"a--b": {"rate": f"{mbit}Mbit"}}}
    scenario = load(BASE | {"underlay": underlay, "nodes": 2, "topology": "ring"})
    spec, events = build_links(scenario), compile_schedule(scenario)
    if said == "tun":
        assert choose(scenario, spec, events) == said
    else:
        with pytest.raises(MachineError, match=said):
            choose(scenario, spec, events)


def test_the_forwarder_between_containers_has_core_links_and_the_same_bound(tmp_path: Path) -> None:
    for mbit in (200, 201):
        underlay = {"links": {"a--b": {"rate": f"{mbit}Mbit"}}}
        scenario = load(BASE | {"underlay": underlay, "nodes": 2, "topology": "ring", "world": "containers"})
        if mbit == 201:
            with pytest.raises(MachineError, match="402 Mbit/s together, and the forwarder between containers"):
                open_received(scenario, tmp_path / "socket")
        else:
            open_received(scenario, tmp_path / "socket").close()
        assert acts_on_packets(scenario)
        stages = packet_links(scenario, build_links(scenario), []).path(0, 1).stages
        assert [stage.shape.rate_bps for stage in stages if isinstance(stage, Rate)] == [mbit * 1e6]


def test_netem_has_no_core_links() -> None:
    scenario = load(BASE | {"underlay": CORE, "world": {"kind": "namespaces", "engine": "netem"}})
    with pytest.raises(MachineError, match=r"netem has no core links; use world.engine: tun"):
        choose(scenario, build_links(scenario), [])


def test_where_netem_lacks_its_package_the_command_is_named_that_adds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdfl.packets.engines.netem_available", lambda: False)
    scenario = load(BASE | {"world": {"kind": "namespaces", "engine": "netem"}})
    with pytest.raises(
        MachineError, match=r"no pyroute2 \(run `.* install .*'netdfl\[namespaces\]'`\); use world.engine"
    ):
        choose(scenario, build_links(scenario), [])
