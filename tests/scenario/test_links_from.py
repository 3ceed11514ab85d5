"""Files of networks and of measurements become rules of links, and what they say is what links then do."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import load, loads
from netdfl.scenario.loading.resolved import to_yaml
from netdfl.scenario.measured.graph_file import kilometres
from netdfl.scenario.measured.said import named
from netdfl.scenario.model.schema import Scenario

BASE = {"schema": "netdfl/1", "name": "real", "rounds": 3, "algorithm": "dpsgd", "world": "simulated"}
BASE |= {"task": {"kind": "consensus", "dim": 2}}
ZOO = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="Longitude" attr.type="double" for="node" id="d1"/>
  <key attr.name="Latitude" attr.type="double" for="node" id="d2"/>
  <key attr.name="label" attr.type="string" for="node" id="d3"/>
  <key attr.name="LinkSpeed" attr.type="string" for="edge" id="e1"/>
  <key attr.name="LinkSpeedUnits" attr.type="string" for="edge" id="e2"/>
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="e3"/>
  <key attr.name="LinkNote" attr.type="string" for="edge" id="e4"/>
  <key attr.name="Fibre" attr.type="string" for="edge" id="e5"/>
  <graph edgedefault="undirected">
    <node id="0"><data key="d1">13.4</data><data key="d2">52.5</data><data key="d3">Berlin</data></node>
    <node id="1"><data key="d1">2.35</data><data key="d2">48.85</data><data key="d3">Paris</data></node>
    <node id="2"><data key="d3">somewhere</data></node>
    <edge source="0" target="1"><data key="e1">10</data><data key="e2">G</data><data key="e3">1.0E10</data></edge>
    <edge source="1" target="2"><data key="e1">155</data><data key="e2">M</data><data key="e4">leased</data></edge>
    <edge source="2" target="0"><data key="e5">dark</data></edge>
  </graph>
</graphml>
"""
SNDLIB = """graph [
  node [ id 0 label "Aachen" x 6.04 y 50.76 ]
  node [ id 1 label "Bremen" x 8.8 y 53.08 ]
  edge [ source 0 target 1 capacity 40.0 length 300 packetLoss "1%" ]
  edge [ source 0 target 1 capacity 80.0 ]
]
"""
MATRICES = {
    "bare": "0 10 20\n12 0 NA\n22 30 0\n",
    "named": ",Berlin,Paris,Rome\nBerlin,0,10,20\nParis,12,0,-\nRome,22,30,0\n",
    "header": "Berlin;Paris;Rome\n0;10;20\n12;0;nan\n22;30;0\n",
}
WONDER = "source,destination,timestamp,min,avg,max,mdev\n"
WONDER += "4,9,t,50.1,60,99,1\n4,9,t,50.1,80,99,1\n9,4,t,1,62,9,1\n4,4,t,1,1,1,1\n"
IPERF = "20261122120000,10.0.0.1,5001,10.0.0.2,42,3,0.0-10.0,12500000,10000000\n"


def scenario(folder: Path, name: str, text: str, **more: object) -> Scenario:
    (folder / name).write_text(text)
    asked = {"file": str(folder / name), **more.pop("links_from", {})}  # type: ignore[dict-item]
    return load(BASE | {"nodes": 3, "topology": "full", "links_from": asked} | more)


def rules(found: Scenario) -> dict[str, dict[str, object]]:
    written = found.model_dump(mode="json", by_alias=True)["links"]
    plain = ("delay", "bandwidth", "probability", "rate", "p")
    return {
        selector: {key: next((value[p] for p in plain if p in value), value) for key, value in entry.items()}
        for selector, entry in written.items()
    }


def test_a_file_of_the_topology_zoo_gives_rates_and_where_asked_delays_by_distance(tmp_path: Path) -> None:
    found = scenario(tmp_path, "zoo.graphml", ZOO, topology={"kind": "graphml", "file": str(tmp_path / "zoo.graphml")})
    assert {key: sorted(entry) for key, entry in rules(found).items()} == {"0--1": ["rate"], "1--2": ["rate"]}
    assert "10000000000bit" in str(rules(found)["0--1"])
    assert "155000000bit" in str(rules(found)["1--2"])
    (told,) = (notice for notice in found.notices if notice.startswith("links_from"))
    assert "rules of 2 links" in told
    assert "it says no latency of 2 of them, no loss of 2 of them" in told
    assert "not understood: Fibre" in told

    far = scenario(tmp_path, "zoo.graphml", ZOO, links_from={"by_distance": True})
    assert sorted(rules(far)["0--1"]) == ["latency", "rate"]
    assert kilometres((52.5, 13.4), (48.85, 2.35)) == pytest.approx(878, rel=0.01)
    assert "4.38" in str(rules(far)["0--1"]["latency"])  # ms: 878 km at 200 km a ms


def test_names_of_sndlib_in_gml_with_parallel_links(tmp_path: Path) -> None:
    found = scenario(tmp_path, "nobel.gml", SNDLIB, nodes=2, topology="ring", links_from={"by_distance": True})
    (entry,) = rules(found).values()
    assert "60000000bit" in str(entry["rate"])  # the median of two parallel links
    assert "1.5ms" in str(entry["latency"])
    assert "0.01" in str(entry["loss"])


@pytest.mark.parametrize("kind", MATRICES)
def test_a_matrix_of_round_trips_gives_half_of_each_one_way(kind: str, tmp_path: Path) -> None:
    found = rules(scenario(tmp_path, "rtt.csv", MATRICES[kind]))
    assert {key: str(entry["latency"]) for key, entry in found.items()} == {
        "0->1": "5ms", "0->2": "10ms", "1->0": "6ms", "2->0": "11ms", "2->1": "15ms",
    }  # fmt: skip


def test_tables_with_a_pair_a_line(tmp_path: Path) -> None:
    wonder = rules(scenario(tmp_path, "pings.csv", WONDER, nodes=2, topology="ring"))
    assert {key: str(entry["latency"]) for key, entry in wonder.items()} == {"0->1": "35ms", "1->0": "31ms"}
    iperf = rules(scenario(tmp_path, "iperf.csv", IPERF, nodes=2, topology="ring"))
    assert {key: "10000000bit" in str(entry["rate"]) for key, entry in iperf.items()} == {"0->1": True}
    own = "src,dst,latency_us,bandwidth (Gbps),Packet Loss\n0,1,1500,2,0.5\n"
    (entry,) = rules(scenario(tmp_path, "own.csv", own, nodes=2, topology="ring")).values()
    assert sorted(entry) == ["latency", "loss", "rate"]
    assert "1.5ms" in str(entry["latency"])


def test_what_the_scenario_says_goes_before_and_links_that_no_graph_has_are_left_out(tmp_path: Path) -> None:
    own = {"default": {"loss": "1%"}, "0->1": {"latency": "99ms"}}
    found = scenario(
        tmp_path, "rtt.csv", "0 8 8 8\n8 0 8 8\n8 8 0 8\n8 8 8 0\n", nodes=4, topology="directed_ring", links=own
    )
    assert {key: str(entry.get("latency")) for key, entry in rules(found).items()} == {
        "default": "None", "0->1": "99ms", "1->2": "4ms", "2->3": "4ms", "3->0": "4ms",
    }  # fmt: skip
    assert rules(loads(to_yaml(found))) == rules(found)


SHADOW = """graph [
  directed 0
  node [ id 0 host_bandwidth_up "8 Mbit" host_bandwidth_down "76200 Kibit" ]
  node [ id 1 host_bandwidth_up "1 Gbit" host_bandwidth_down "2 Gbit" ]
  edge [ source 0 target 0 latency "1 ms" packet_loss 0.0 ]
  edge [ source 0 target 1 latency "50 ms" packet_loss 0.01 ]
  edge [ source 1 target 1 latency "1 ms" packet_loss 0.0 ]
]
"""
SILO = """graph [
  node [ id 0 uploadDelay 10 downloadDelay 2 ]
  node [ id 1 uploadDelay 0.5 downloadDelay 4 ]
  edge [ source 0 target 1 latency 20 availableBandwidth "80" ]
]
"""


def test_bandwidths_at_nodes_are_their_uplinks_and_downlinks(tmp_path: Path) -> None:
    found = scenario(
        tmp_path, "shadow.gml", SHADOW, nodes=2, topology={"kind": "gml", "file": str(tmp_path / "shadow.gml")}
    )
    said = rules(found)
    assert sorted(said) == ["0", "0--1", "1"]
    assert ("8000000bit" in str(said["0"]["uplink"]), "78028800bit" in str(said["0"]["downlink"])) == (True, True)
    assert ("1000000000bit" in str(said["1"]["uplink"]), "2000000000bit" in str(said["1"]["downlink"])) == (True, True)
    assert "50ms" in str(said["0--1"]["latency"])
    told = [notice for notice in found.notices if "shadow.gml" in notice]
    assert "host_bandwidth_down of nodes as downlink (2), host_bandwidth_up of nodes as uplink (2)" in told[0]
    assert [notice.partition(".gml: ")[2] for notice in told[1:]] == [
        "2 self-loops are left out: a node always keeps a share of its own"
    ]
    own = scenario(tmp_path, "shadow.gml", SHADOW, nodes=2, links={"0": {"uplink": "1Mbit"}})
    assert "1000000bit" in str(rules(own)["0"]["uplink"])
    run = netdfl.run(found, out=tmp_path / "run", page=False).run
    times = run.query("SELECT src, min(arrived_s - sent_s) FROM messages GROUP BY src").fetchall()
    slow, fast = (dict(times)[node] - 0.05 for node in (0, 1))
    nbytes = run.query("SELECT min(nbytes) FROM messages WHERE src = 0").fetchall()[0][0]
    assert slow == pytest.approx(8 * nbytes / 8e6, rel=1e-3), "of an uplink and a downlink the slower one counts"
    assert fast == pytest.approx(8 * nbytes / 78028800, rel=1e-3)


def test_delays_at_nodes_add_to_what_they_send_and_receive(tmp_path: Path) -> None:
    said = rules(scenario(tmp_path, "silo.gml", SILO, nodes=2, topology="ring"))
    assert {key: str(entry["latency"]) for key, entry in said.items()} == {"0->1": "34ms", "1->0": "22.5ms"}
    assert all("80000000bit" in str(entry["rate"]) for entry in said.values())


RIPE = "asn1,asn2,rtt_cnt,rtt_avg,rtt_std\n3320,1103,9,10,1\n3320,680,9,20,1\n1103,680,9,30,1\n"
PINGS = {
    "a summary of RIPE Atlas, its upper triangle": RIPE,
    "names of cities": "city_a;city_b;rtt (ms)\nbonn;bern;10\nbonn;graz;20\nbern;graz;30\n",
    "two columns of names under any heads": "where,whither,avg\nbonn,bern,10\nbonn,graz,20\nbern,graz,30\n",
    "one way of each pair": "source,destination,avg\nbonn,bern,10\nbonn,graz,20\ngraz,bern,30\n",
    "pandas": ",from_city,to_city,ping\n0,bonn,bern,10\n1,bonn,graz,20\n2,bern,graz,30\n",
}


@pytest.mark.parametrize("kind", PINGS)
@pytest.mark.parametrize("packed", [False, True])
def test_pings_between_two_names_hold_both_ways(kind: str, packed: bool, tmp_path: Path) -> None:
    if packed:
        (tmp_path / "p.csv.gz").write_bytes(gzip.compress(PINGS[kind].encode()))
        file = str(tmp_path / "p.csv.gz")
        found = load(BASE | {"nodes": 3, "topology": "full", "links_from": {"file": file}})
    else:
        found = scenario(tmp_path, "p.csv", PINGS[kind])
    a, b, c = (2, 1, 0) if "asn" in PINGS[kind] else (0, 1, 2)  # numbers go by size
    wanted = {frozenset((a, b)): "5ms", frozenset((a, c)): "10ms", frozenset((b, c)): "15ms"}
    got = {key: str(entry["latency"]) for key, entry in rules(found).items()}
    assert len(got) == 6
    assert all(wanted[frozenset(map(int, key.split("->")))] == latency for key, latency in got.items())
    assert any("one way as both (3)" in notice for notice in found.notices)


def test_what_is_measured_each_way_stays_so_and_one_way_delays_hold_one_way(tmp_path: Path) -> None:
    both = rules(scenario(tmp_path, "p.csv", "src,dst,rtt\n0,1,10\n1,0,30\n", nodes=2, topology="ring"))
    assert {key: str(entry["latency"]) for key, entry in both.items()} == {"0->1": "5ms", "1->0": "15ms"}
    one = rules(scenario(tmp_path, "p.csv", "src,dst,latency\n0,1,10\n", nodes=2, topology="ring"))
    assert list(one) == ["0->1"]
    named = scenario(
        tmp_path, "m.csv", ",a,b,c\na,0,10,20\nb,12,0,30\nc,22,32,0\n"
    )  # a matrix, though a and b are alike
    assert len(rules(named)) == 6


def test_a_graph_in_json_says_rules_of_links(tmp_path: Path) -> None:
    text = '{"nodes": [{"id": "x", "upload": 8}, {"id": "y"}], "links": [{"source": "x", "target": "y", "delay": 7}]}'
    said = rules(
        scenario(tmp_path, "g.json", text, nodes=2, topology={"kind": "edge_list", "file": str(tmp_path / "g.json")})
    )
    assert "7ms" in str(said["0--1"]["latency"])
    assert "8000000bit" in str(said["0"]["uplink"])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.gml", SHADOW.replace("8 Mbit", "fast"), "a.gml: the node 0: host_bandwidth_up: 'fast' is no rate"),
        ("a.json", '{"nodes": 1}', "a.json is no graph in JSON: expected"),
        (
            "a.csv",
            "city,town,when,rtt\nbonn,bern,noon,10\n",
            "give a square matrix, or a header with source and destination",
        ),
        ("a.csv", "0 1 2\n1 0\n", "a.csv:2: 2 values in a matrix of 2 rows|3 values in a matrix of 2 rows"),
        ("a.csv", "0 2 3\n1 0 2\n2 soon 0\n", "a.csv:3: 'soon' is no rtt"),
        ("a.csv", "src,dst,colour\n0,1,red\n", "none of src, dst, colour is a latency"),
        ("a.csv", "0 1\n1 0\n", "has 2 nodes, and the scenario 3"),
        ("a.graphml", "<graphml", "is not GraphML"),
        ("a.gml", "graph [ node [ id 0 ", "is not GML"),
        ("a.csv", "", "is empty"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(name: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=said):
        scenario(tmp_path, name, text)


@pytest.mark.parametrize(
    ("name", "what", "unit"),
    [
        ("RTT (ms)", "rtt", "ms"),
        ("delay_us", "latency", "us"),
        ("Bandwidth Mbps", "rate", "Mbit"),
        ("LinkSpeedRaw", "rate", "bit"),
    ],
)
def test_the_name_of_a_column_says_what_it_is_and_its_unit(name: str, what: str, unit: str) -> None:
    assert named(name) == (what, unit) or (named(name).what, named(name).unit) == (what, unit)


def test_a_simulated_fleet_shows_them(tmp_path: Path) -> None:
    found = scenario(tmp_path, "rtt.csv", MATRICES["bare"])
    run = netdfl.run(found, out=tmp_path / "run", page=False).run
    took = {
        (src, dst): s
        for src, dst, s in run.query(
            "SELECT src, dst, min(arrived_s - sent_s) FROM messages GROUP BY src, dst"
        ).fetchall()
    }
    assert took[0, 1] == pytest.approx(0.005)
    assert took[2, 1] == pytest.approx(0.015)
    assert took[1, 2] == 0
