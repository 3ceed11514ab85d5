"""Networks and matrices as studies and services publish them become rules of links; each example is made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import load
from netdfl.scenario.measured.graph_file import MeasuredNetwork, read_graph_file
from netdfl.scenario.measured.table_file import read_table_file
from netdfl.scenario.model.schema import Scenario
from tests.topology.test_sndlib import TRIANGLE

UNITS = {"delay_unit": "ms", "rate_unit": "Mbit"}
SILOS = """graph [
  node [ id 0 label "Lima" ]
  node [ id 1 label "San Jos&#233;" ]
  node [ id 2 label "Lima" ]
  edge [ source 0 target 1 distance 3800.5 capacity 1500000000.0 ]
  edge [ source 1 target 2 distance 3800.5 LinkSpeed "2.5" LinkSpeedUnits "G" capacity 2500000000.0 ]
  edge [ source 0 target 2 distance 0.0 ]
]
"""


def scenario(folder: Path, name: str, text: str, **more: object) -> Scenario:
    (folder / name).write_text(text)
    said = {"schema": "netdfl/1", "name": "real", "rounds": 3, "algorithm": "dpsgd", "world": "simulated"}
    said |= {"nodes": 3, "topology": "full", "task": {"kind": "consensus", "dim": 2}}
    return load(said | {"links_from": {"file": str(folder / name)}} | more)


def graph(folder: Path, text: str, name: str = "g.gml", **more: object) -> MeasuredNetwork:
    (folder / name).write_text(text)
    return read_graph_file(str(folder / name), **({"by_distance": False} | UNITS | more))  # type: ignore[arg-type]


def table(folder: Path, text: str, name: str = "rtt.csv", **more: str) -> MeasuredNetwork:
    (folder / name).write_text(text)
    return read_table_file(str(folder / name), **({"values": "rtt"} | UNITS | more))


def one_way_ms(found: MeasuredNetwork) -> dict[tuple[int, int], float]:
    return {edge: round(1000 * facts.latency_s[0], 6) for edge, facts in sorted(found.facts.items())}


def test_a_network_of_silos_has_labels_distances_and_capacities_in_bits(tmp_path: Path) -> None:
    found = graph(tmp_path, SILOS, by_distance=True)
    assert {edge: facts.rate_bps for edge, facts in found.facts.items()} == {
        (0, 1): [1.5e9], (1, 2): [2.5e9, 2.5e9], (0, 2): [],
    }  # fmt: skip
    assert one_way_ms(found) == {(0, 1): 19.0025, (0, 2): 0.0, (1, 2): 19.0025}
    assert found.read_as["capacity as rate in bit/s"] == 2
    assert found.read_as["LinkSpeed as rate"] == 1
    told = scenario(tmp_path, "silos.gml", SILOS).notices
    assert any("capacity as rate in bit/s (2)" in line for line in told)


@pytest.mark.parametrize(
    ("capacities", "unit", "rates"),
    [
        (("1000000", "2000000"), "Mbit", [1e6, 2e6]),  # as Mbit/s a Tbit/s and more
        (("999999", "2000000"), "Mbit", [999999e6, 2e12]),
        (("1000000", "2000000"), "kbit", [1e9, 2e9]),  # the scenario says it
        (('"1000000 kbps"', "2000000"), "Mbit", [1e9, 2e6]),
        (('"1000000 kbps"', '"2 Gbps"'), "Mbit", [1e9, 2e9]),
    ],
)
def test_bare_capacities_are_in_bits_where_each_would_be_a_terabit(
    capacities: tuple[str, str], unit: str, rates: list[float], tmp_path: Path
) -> None:
    edges = "".join(f"edge [ source {n} target {n + 1} capacity {each} ]\n" for n, each in enumerate(capacities))
    text = "graph [\n" + "".join(f"node [ id {n} ]\n" for n in range(3)) + edges + "]\n"
    found = graph(tmp_path, text, rate_unit=unit)
    assert [facts.rate_bps[0] for _, facts in sorted(found.facts.items())] == rates


def test_a_network_of_sndlib_gives_rates_and_where_asked_delays_by_distance(tmp_path: Path) -> None:
    found = graph(tmp_path, TRIANGLE, "net.xml", by_distance=True)
    assert found.facts[0, 1].rate_bps == [622e6]
    assert found.facts[0, 1].latency_s[0] == pytest.approx(163e3 / 2e8, rel=0.02)
    assert found.facts[1, 2].rate_bps == []
    assert any("1 of its links has no installed capacity" in note for note in found.notes)
    told = scenario(tmp_path, "net.xml", TRIANGLE, topology={"kind": "graphml", "file": str(tmp_path / "net.xml")})
    assert sorted(told.links) == ["0--1"]


REGIONS = {"east": {"east": 4.0, "west": 60.0, "south": 120.0}, "west": {"east": 62.0, "south": None}, "south": {}}
WANTED = {(0, 1): 30.0, (0, 2): 60.0, (1, 0): 31.0}
AVERAGES = [
    {"region": "east", "averages": [{"regionTo": "west", "average": 60}, {"regionTo": "south", "average": 120.0}]},
    {"region": "west", "averages": [{"regionTo": "east", "average": 62.0}]},
]
MATRICES = {
    "plain.json": json.dumps(REGIONS),
    "below.json": json.dumps({"metadata": {"unit": "milliseconds"}, "data": REGIONS}),
    "averages.json": json.dumps(AVERAGES),
    "named.csv": 'to \\ from,"east","west","south"\n"east",4,60,120\n"west",62,,\n"south",,,\n',
    "other order.csv": ",south,east,west\neast,120,4,60\nwest,,62,\nsouth,,,\n",
    "units.csv": "4ms,60 ms,120ms\n62ms,-,-\n-,-,-\n",
    "index.csv": ",0,1,2\n0,4,60,120\n1,62,,\n2,,,\n",
}


@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix_of_regions_is_the_same_whoever_wrote_it(name: str, tmp_path: Path) -> None:
    assert one_way_ms(table(tmp_path, MATRICES[name], name)) == WANTED
    found = scenario(tmp_path, name, MATRICES[name])
    assert sorted(found.links) == ["0->1", "0->2", "1->0"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", ",east,west\neast,0,1\nnorth,1,0\n", r"a\.csv:1: column 'west' has no row of that name; give rows"),
        ("a.json", '{"a": {"b": "soon"}, "b": {}}', r"a\.json: a to b: 'soon' is no rtt"),
        ("a.json", '{"a": 1}', r"a\.json is no graph in JSON"),
        ("a.json", "[[1, 2]]", r"a\.json is no graph in JSON"),
        ("a.json", "{", r"a\.json is not JSON"),
    ],
)
def test_what_is_no_matrix_is_refused_with_place_and_form(name: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=said):
        scenario(tmp_path, name, text)


DEVICES = "node,device,compute_ms,uplink_kbps,downlink (Mbps)\n0,d7,1.5,800,2\n2,d3,2,,3\n"


def test_a_table_of_nodes_gives_their_uplinks_and_downlinks(tmp_path: Path) -> None:
    found = scenario(tmp_path, "devices.csv", DEVICES)
    rates = {key: {way: each.rate for way, each in entry.written().items()} for key, entry in found.links.items()}
    assert rates == {"0": {"uplink": 800e3, "downlink": 2e6}, "2": {"downlink": 3e6}}
    with pytest.raises(ScenarioError, match=r"devices\.csv:3: uplink_kbps: 'fast' is no rate"):
        scenario(tmp_path, "devices.csv", DEVICES.replace("2,d3,2,,", "2,d3,2,fast,"))
    with pytest.raises(ScenarioError, match=r"devices\.csv:2: expected node,.* the node as a number from 0 on"):
        scenario(tmp_path, "devices.csv", DEVICES.replace("0,d7", "zero,d7"))
