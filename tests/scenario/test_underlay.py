"""The block `underlay`: what is read of files, what is written out, and what is refused, with place and remedy."""

from __future__ import annotations

import gzip
import json
import re
from math import acos, cos, radians, sin
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import load, loads
from netdfl.scenario.loading.identity import scenario_hash
from netdfl.scenario.loading.resolved import to_plain, to_yaml
from netdfl.scenario.model.schema import Scenario

BASE: dict[str, Any] = {"schema": "netdfl/1", "name": "u", "nodes": 3, "rounds": 2, "world": "simulated"}
BASE |= {"task": "consensus", "algorithm": "dpsgd", "topology": "full"}
GML = """graph [
  node [ id 4 label "Bern" Latitude 46.95 Longitude 7.45 ]
  node [ id 7 label "Oslo" Latitude 59.91 Longitude 10.75 ]
  node [ id 9 label "Rome" Latitude 41.9 Longitude 12.5 ]
  edge [ source 4 target 7 latency "12ms" bandwidth "2Gbps" ]
  edge [ source 4 target 9 delay_us 7000 packet_loss "1%" ]
]"""
ZOO = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="d0" />
  <key attr.name="Latitude" attr.type="double" for="node" id="d1" />
  <key attr.name="Longitude" attr.type="double" for="node" id="d2" />
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d3" />
  <graph edgedefault="undirected">
    <node id="0"><data key="d0">Bern</data><data key="d1">46.95</data><data key="d2">7.45</data></node>
    <node id="1"><data key="d0">Rome</data><data key="d1">41.9</data><data key="d2">12.5</data></node>
    <edge source="0" target="1"><data key="d3">10000000.0</data></edge>
  </graph>
</graphml>"""
NAMED = {"nodes": [{"id": "a"}, {"id": "b"}], "links": [{"source": "a", "target": "b", "rtt": 8, "rate": 5}]}


def scenario(folder: Path, name: str, text: str, underlay: dict[str, Any] | None = None, **more: Any) -> Scenario:
    (folder / name).write_text(text)
    return load(BASE | {"underlay": {"file": str(folder / name)} | (underlay or {})} | more)


def core(found: Scenario) -> dict[str, Any]:
    links: Any = to_plain(found)["underlay"]["links"]  # type: ignore[index]
    return {
        name: {k: value for k, value in link.items() if (k, value) != ("queue", None)} for name, link in links.items()
    }


def test_core_links_are_read_with_the_labels_of_their_sites(tmp_path: Path) -> None:
    found = scenario(tmp_path, "three.gml", GML, {"core": "1Gbit"})
    assert core(found) == {
        "Bern--Oslo": {"latency": "12ms", "rate": "2000000000bit", "loss": 0.0},
        "Bern--Rome": {"latency": "7ms", "rate": "1000000000bit", "loss": 0.01},
    }
    assert found.underlay is not None
    assert found.underlay.place == {"0": "Bern", "1": "Oslo", "2": "Rome"}
    (told,) = (notice for notice in found.notices if notice.startswith("underlay"))
    assert told == (
        "underlay three.gml: 2 core links, by bandwidth as rate (1), delay_us as latency (1), latency as latency (1), "
        "packet_loss as loss (1); 1 of them have no rate there: as core says"
    )


def test_distance_gives_a_latency_where_it_is_asked_for(tmp_path: Path) -> None:
    found = scenario(tmp_path, "zoo.graphml", ZOO, {"latency": "distance"}, nodes=2, topology="ring")
    ((name, link),) = core(found).items()
    assert name == "Bern--Rome"
    assert link == {"latency": link["latency"], "rate": "10000000bit", "loss": 0.0}
    (north, east), (south, west) = ([radians(each) for each in place] for place in ((46.95, 7.45), (41.9, 12.5)))
    angle = acos(sin(north) * sin(south) + cos(north) * cos(south) * cos(east - west))
    assert float(link["latency"].removesuffix("ms")) == pytest.approx(6371 * angle * 5e-3, abs=1e-4)


def test_directed_links_have_a_capacity_and_a_delay_each_way(tmp_path: Path) -> None:
    text = json.dumps(
        NAMED | {"directed": True, "links": [*NAMED["links"], {"source": "b", "target": "a", "delay": 9}]}
    )
    found = scenario(tmp_path, "two.json", text, nodes=2, topology="ring")
    assert core(found) == {
        "a->b": {"latency": "4ms", "rate": "5000000bit", "loss": 0.0},
        "b->a": {"latency": "9ms", "rate": None, "loss": 0.0},
    }


def test_sites_keep_their_names_where_labels_are_missing_alike_or_no_names(tmp_path: Path) -> None:
    for labels in (("", ""), ("x", "x"), ("x--y", "z"), ("x", "")):
        nodes = [{"id": name, "label": label} for name, label in zip("ab", labels, strict=True)]
        found = scenario(tmp_path, "two.json", json.dumps(NAMED | {"nodes": nodes}), nodes=2, topology="ring")
        assert list(core(found)) == ["a--b"]
    numbered = NAMED | {"nodes": [{"id": 1}, {"id": 0}], "links": [{"source": 1, "target": 0, "rtt": 8}]}
    assert list(core(scenario(tmp_path, "n.json", json.dumps(numbered), nodes=2, topology="ring"))) == ["0--1"]


def test_what_the_scenario_says_of_a_link_goes_before_its_file(tmp_path: Path) -> None:
    said = {"Oslo--Bern": {"rate": "3Mbit"}, "Bern--Rome": {"latency": "1ms", "loss": 0}}
    assert core(scenario(tmp_path, "three.gml", GML, {"links": said})) == {
        "Bern--Oslo": {"latency": "12ms", "rate": "3000000bit", "loss": 0.0},
        "Bern--Rome": {"latency": "1ms", "rate": None, "loss": 0.0},
    }
    queued = scenario(tmp_path, "three.gml", GML, {"links": {"Bern--Rome": {"queue": "64kB"}}})
    assert core(queued)["Bern--Rome"] == {"latency": "7ms", "rate": None, "loss": 0.01, "queue": "64000B"}


def test_access_is_the_uplink_and_downlink_where_links_say_none() -> None:
    links = {"default": {"uplink": "5Mbit", "latency": "1ms"}, "0": {"downlink": "7Mbit"}}
    found = load(BASE | {"underlay": {"links": {"a--b": {}}, "access": "20Mbit"}, "links": links})
    plain: Any = to_plain(found)["links"]
    assert plain["default"]["uplink"]["rate"] == "5000000bit"
    assert plain["default"]["downlink"]["rate"] == "20000000bit"
    assert plain["default"]["downlink"]["sharing"] == "fair"
    assert plain["0"]["downlink"]["rate"] == "7000000bit"
    assert found.underlay is not None
    assert found.underlay.access is None


def test_a_loaded_underlay_needs_its_file_no_more_and_loads_to_itself(tmp_path: Path) -> None:
    found = scenario(
        tmp_path, "three.gml", GML, {"core": "1Gbit", "access": "9Mbit", "place": "random", "reroute": "5s"}
    )
    (tmp_path / "three.gml").unlink()
    again = loads(to_yaml(found))
    assert to_plain(again) == to_plain(found)
    assert scenario_hash(again) == scenario_hash(found)
    assert scenario_hash(found) != scenario_hash(load(BASE))
    assert scenario_hash(load(BASE | {"underlay": None})) == scenario_hash(load(BASE))


def test_a_packed_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "three.gml.gz").write_bytes(gzip.compress(GML.encode()))
    found = load(BASE | {"underlay": {"file": str(tmp_path / "three.gml.gz")}})
    assert len(core(found)) == 2


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no links": ({}, ("underlay", "without core links", "give file: x.graphml")),
    "no file": ({"file": "nowhere.gml"}, ("file", "'nowhere.gml' not found")),
    "a table": ({"file": "a.csv"}, ("file", "is no graph; give a .graphml")),
    "no graph": ({"file": "bad.gml"}, ("file", "is not GML")),
    "no edges": ({"file": "alone.gml"}, ("file", "has no links; give a file with edges")),
    "no latency": (
        {"file": "zoo.graphml"},
        ("file", "no latency of the core link Bern--Rome; add latency: dist"),
    ),
    "no distance": (
        {"file": "bare.json", "latency": "distance"},
        ("file", "no latency of the core link a--b, nor how far apart its sites are; add links: {a--b: {"),
    ),
    "odd name": ({"file": "odd.json"}, ("file", "a site can't be called 'a--x'; give it a name without --")),
    "unknown link": (
        {"file": "three.gml", "links": {"Bern--Osl": {}}},
        ("file", "the file has no core link 'Bern--Osl'; did you mean Bern--Oslo?"),
    ),
    "no name": ({"links": {"paris": {}}}, ("links", "'paris' names no core link; write paris--zurich")),
    "itself": ({"links": {"a--a": {}}}, ("links", "a core link from a site to itself; name two sites")),
    "twice": ({"links": {"a--b": {}, "b->a": {}}}, ("links", "the core link b->a is named twice")),
    "unknown site": (
        {"links": {"a--b": {}}, "place": {"0..2": "c"}},
        ("place", "there is no site 'c'; choose one of a, b"),
    ),
    "no node": ({"links": {"a--b": {}}, "place": {"0..3": "a"}}, ("place", "there is no node 3")),
    "out of reach": (
        {"links": {"a--b": {}, "c->a": {}}, "place": {"0..1": "a", "2": "c"}},
        ("place", "node 0 on a can't reach node 2 on c: no core links lead there; add one, or place"),
    ),
    "no way of placing": ({"links": {"a--b": {}}, "place": "somewhere"}, ("place", "in order", "random")),
    "a rate of 0": (
        {"links": {"a--b": {"rate": "0Mbit"}}},
        ("rate", "a rate of 0 carries nothing"),
    ),
    "no time": ({"links": {"a--b": {}}, "reroute": "0s"}, ("reroute", "above 0")),
    "unknown key": ({"links": {"a--b": {"speed": "1Mbit"}}}, ("speed",)),
}
FILES = {
    "a.csv": "0,1\n",
    "bad.gml": "graph [ node [ id 0",
    "alone.gml": "graph [ node [ id 0 ] node [ id 1 ] ]",
    "zoo.graphml": ZOO,
    "bare.json": json.dumps(NAMED | {"links": [{"source": "a", "target": "b"}]}),
    "odd.json": json.dumps(
        {"nodes": [{"id": "a--x"}, {"id": "b"}], "links": [{"source": "a--x", "target": "b", "rtt": 1}]}
    ),
    "three.gml": GML,
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_named_with_its_place_and_remedy(name: str, tmp_path: Path) -> None:
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    written, said = REFUSED[name]
    whole = BASE | {"underlay": written, "events": [{"at": "1s", "cut": "a--b"}]}
    (tmp_path / "s.yaml").write_text(json.dumps(whole, indent=1))
    with pytest.raises(ScenarioError) as refused:
        load(tmp_path / "s.yaml")
    (problem,) = refused.value.problems
    key, *parts = said
    where = re.search(r"s\.yaml:(\d+)", text := str(problem))
    assert where is not None, text
    assert f'"{key}"' in (tmp_path / "s.yaml").read_text().splitlines()[int(where[1]) - 1], text
    assert all(part in text for part in parts), text


@pytest.mark.parametrize("kind", ["processes", "slurm", "ray", "namespaces", "containers"])
def test_every_world_carries_core_links(kind: str) -> None:
    assert load(BASE | {"underlay": {"links": {"a--b": {}}}, "world": kind}).underlay is not None


@pytest.mark.parametrize("world", ["namespaces", "containers"])
def test_events_that_are_about_messages_are_refused_of_core_links_for_packets(world: str) -> None:
    below = {"links": {"a--b": {}}}
    for event, what in (
        ({"at": "1s", "cut": "a--b", "mode": "down_hold"}, "no router keeps packets"),
        ({"at_round": 1, "cut": "a--b"}, "a packet belongs to no round"),
        ({"at": "1s", "core": "a--b", "loss": {"model": "drop_list", "messages": [{"round": 1}]}}, "has no name"),
    ):
        load(BASE | {"underlay": below, "world": {"kind": world, "loss_layer": "message"}, "events": [event]})
        with pytest.raises(ScenarioError, match=what):
            load(BASE | {"underlay": below, "world": world, "events": [event]})


def test_the_model_of_tcp_takes_core_links() -> None:
    world = {"kind": "simulated", "loss_layer": "packet"}
    assert load(BASE | {"underlay": {"links": {"a--b": {}}}, "world": world}).underlay is not None


def test_a_server_is_placed_as_the_last_node() -> None:
    served = BASE | {"algorithm": "fedavg", "topology": "star"}
    found = load(served | {"underlay": {"links": {"a--b": {}}, "place": {"0..2": "a", "3": "b"}}})
    assert found.underlay is not None
    assert found.underlay.place == {"0..2": "a", "3": "b"}
