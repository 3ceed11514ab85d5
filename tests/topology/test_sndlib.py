"""Networks in SNDlib's native XML are told from GraphML by their root, and are graphs like others."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.core.rng import Streams
from netdfl.topology.files import graph_words, read_graph
from netdfl.topology.static import graphml

TRIANGLE = """<?xml version="1.0"?>
<network xmlns="http://sndlib.zib.de/network" version="1.0"><networkStructure>
<nodes coordinatesType="geographical">
  <node id="Linz"><coordinates><x>14.29</x><y>48.31</y></coordinates></node>
  <node id="Graz"><coordinates><x>15.44</x><y>47.07</y></coordinates></node><node id="Wien"/></nodes>
<links><link id="a"><source>Linz</source><target>Graz</target>
  <preInstalledModule><capacity>622.0</capacity><cost>1</cost></preInstalledModule></link>
<link id="b"><source>Graz</source><target>Wien</target>
  <additionalModules><addModule><capacity>155</capacity></addModule></additionalModules></link></links></networkStructure><demands/></network>
"""


def written(folder: Path, text: str, name: str = "net.xml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize("name", ["net.xml", "net.graphml"])
def test_the_root_tells_a_network_of_sndlib_whatever_its_files_name(name: str, tmp_path: Path) -> None:
    file = written(tmp_path, TRIANGLE, name)
    found = read_graph(file)
    assert [(node, data["label"]) for node, data in found.nodes(data=True)] == [(0, "Linz"), (1, "Graz"), (2, "Wien")]
    assert (found.nodes[0]["Longitude"], found.nodes[0]["Latitude"]) == ("14.29", "48.31")
    assert [(a, b, data) for a, b, data in found.edges(data=True)] == [(0, 1, {"capacity": "622.0"}), (1, 2, {})]
    assert graph_words(file, found) == [
        f"{file}: 1 of its links has no installed capacity; modules to choose from are no rate"
    ]
    assert graphml(3, Streams(0), file=file).graph(0).edges == ((0, 1), (1, 0), (1, 2), (2, 1))


def test_the_note_counts_links_without_capacity_and_is_silent_where_there_are_none(tmp_path: Path) -> None:
    bare = read_graph(written(tmp_path, TRIANGLE.replace("622.0", "0.0")))
    assert graph_words("f", bare) == [
        "f: 2 of its links have no installed capacity; modules to choose from are no rate"
    ]
    installed = (
        TRIANGLE.replace("additionalModules", "preInstalledModule")
        .replace("<addModule>", "")
        .replace("</addModule>", "")
    )
    assert graph_words("f", read_graph(written(tmp_path, installed))) == []


def test_places_on_a_screen_are_no_places_on_earth(tmp_path: Path) -> None:
    found = read_graph(written(tmp_path, TRIANGLE.replace("geographical", "pixel")))
    assert "Latitude" not in found.nodes[0]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<target>Wien", "<target>Bonn", r"net\.xml: link b: there is no node 'Bonn'; expected networkStructure"),
        ("<source>Linz</source>", "", r"net\.xml: link a: there is no node ''"),
        ("nodes", "knots", r"net\.xml is no network of SNDlib: expected networkStructure with nodes and links"),
        ("622.0", "much", r"net\.xml: link a: capacity 'much' is no number"),
        ("</network>", "", r"net\.xml is not GraphML"),
        ("<network ", "<gexf ", r"net\.xml is not GraphML"),
    ],
)
def test_what_is_no_such_network_is_refused_with_file_and_form(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        read_graph(written(tmp_path, TRIANGLE.replace(old, new)))
