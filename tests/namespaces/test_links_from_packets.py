"""What a file says of links is what packets between namespaces meet: within 3 %."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.scenario.load import load
from tests.namespaces.udp_probe import Probe, network

ZOO = """graph [ directed 1
  node [ id 0 label "a" ] node [ id 1 label "b" ]
  edge [ source 0 target 1 LinkSpeed "1" LinkSpeedUnits "M" ]
  edge [ source 1 target 0 LinkSpeedRaw 2000000.0 ]
]
"""
MATRIX = ",a,b\na,0,80\nb,120,0\n"
PACKET = 500  # bytes of a probe's packet, its headers included


def links_of(tmp_path: Path, name: str, text: str) -> dict[str, Any]:
    """The rules of links that a file says, as a scenario writes them."""
    (tmp_path / name).write_text(text)
    base = {"schema": "netdfl/1", "name": "real", "nodes": 2, "rounds": 1, "world": "namespaces", "topology": "ring"}
    base |= {"task": "consensus", "algorithm": "dpsgd", "links_from": {"file": str(tmp_path / name)}}
    said = load(base).model_dump(mode="json", by_alias=True)["links"]
    return {link: {key: _said(rule) for key, rule in rules.items()} for link, rules in said.items()}


def _said(rule: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in rule.items() if value is not None}


def test_the_latencies_of_a_matrix(tmp_path: Path) -> None:
    """The fastest of many packets, so that a busy machine does not matter."""
    with network(tmp_path, links_of(tmp_path, "rtt.csv", MATRIX)) as made:
        for edge, latency_s in (((0, 1), 0.04), ((1, 0), 0.06)):
            probe = Probe(made, *edge)
            probe.burst(80, pause_s=0.005)
            fastest = min(arrived - sent for sent, arrived in probe.came.values()) / 1e9
            assert fastest == pytest.approx(latency_s, rel=0.03)


def test_the_rates_of_a_drawn_network(tmp_path: Path) -> None:
    """From the first packet to the last of a queue that takes half a second."""
    with network(tmp_path, links_of(tmp_path, "zoo.gml", ZOO)) as made:
        for edge, rate_bps in (((0, 1), 1e6), ((1, 0), 2e6)):
            probe = Probe(made, *edge)
            probe.burst(150, PACKET)
            times = sorted(arrived for _, arrived in probe.came.values())
            nbytes = (len(times) - 1) * PACKET
            assert 8e9 * nbytes / (times[-1] - times[0]) == pytest.approx(rate_bps, rel=0.03)
