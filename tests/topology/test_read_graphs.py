"""One small graph in every format that is read, as the same nodes and links, and what is no graph named."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest

from netdfl.core.rng import Streams
from netdfl.topology.files import names_in, read_graph, self_loops
from netdfl.topology.static import gml, graphml


def written(path: Path, kind: str, graph: nx.Graph) -> str:
    file = path / f"g.{kind}"
    if kind.startswith("json"):
        file = path / "g.json"
        file.write_text(json.dumps(nx.node_link_data(graph, edges="links" if kind == "json" else "edges")))
    else:
        {"graphml": nx.write_graphml, "gml": nx.write_gml}[kind](graph, file)
    return str(file)


@pytest.mark.parametrize("kind", ["graphml", "gml", "json", "json with edges"])
@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_is_the_same_in_every_format(kind: str, directed: bool, tmp_path: Path) -> None:
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from("abcd")
    graph.add_edges_from([("a", "b"), ("b", "c"), ("d", "a"), ("c", "c")])
    found = read_graph(written(tmp_path, kind, graph))
    assert (found.is_directed(), self_loops(found)) == (directed, 1)
    assert sorted(found.nodes) == [0, 1, 2, 3]
    assert names_in(found) == dict(enumerate("0123" if kind == "gml" else "abcd"))
    links = {tuple(sorted(edge)) if not directed else edge for edge in found.edges()}
    assert links == ({(0, 1), (1, 2), (3, 0)} if directed else {(0, 1), (1, 2), (0, 3)})


@pytest.mark.parametrize("kind", ["graphml", "json"])
def test_nodes_that_are_numbered_keep_their_numbers(kind: str, tmp_path: Path) -> None:
    graph = nx.Graph([(2, 0), (0, 1)])
    found = read_graph(written(tmp_path, kind, graph))
    assert {tuple(sorted(edge)) for edge in found.edges()} == {(0, 1), (0, 2)}
    assert names_in(found) == {0: "0", 1: "1", 2: "2"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("g.json", '{"nodes": [{"id": 0}]}', "is no graph in JSON"),
        ("g.json", '{"nodes": [1], "links": [2]}', "g.json is no graph in JSON: .*Error: .*; expected {nodes"),
        ("g.json", "{", "is not JSON"),
        ("g.gml", "graph [", "is not GML"),
        ("g.graphml", "<graphml", "is not GraphML"),
    ],
)
def test_what_is_no_graph_is_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        read_graph(str(tmp_path / name))
    with pytest.raises(ValueError, match="can't read"):
        read_graph(str(tmp_path / f"other-{name}"))


@pytest.mark.parametrize("kind", ["graphml", "gml"])
def test_a_name_without_an_ending_is_read_as_the_topology_says(kind: str, tmp_path: Path) -> None:
    file = Path(written(tmp_path, kind, nx.Graph([(0, 1), (1, 2)]))).rename(tmp_path / "net.txt")
    read = {"graphml": graphml, "gml": gml}[kind]
    topology = read(3, Streams(0), file=str(file))
    assert topology.graph(0).edges == ((0, 1), (1, 0), (1, 2), (2, 1))
    file.write_text("no graph")
    with pytest.raises(ValueError, match=rf"net\.txt is not {'GML' if kind == 'gml' else 'GraphML'}"):
        read(3, Streams(0), file=str(file))
