"""Graphs as other programs write them: headers, indices, JSON, self-loops; refused where two readings are possible."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest

from netdfl.core.rng import Streams
from netdfl.scenario.load import load
from netdfl.topology.base import Topology
from netdfl.topology.files import Ends, ends_of
from netdfl.topology.static import edge_list, gml, graphml

STREAMS = Streams(0)
LINE = ((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2))
PAIRS = [[0, 1], [1, 2], [2, 3]]


def listed(folder: Path, text: str, num: int = 4, name: str = "e.csv") -> Topology:
    (folder / name).write_text(text)
    return edge_list(num, STREAMS, file=str(folder / name))


EDGE_LISTS = {
    "as pandas writes it, with its index": ",src,dst\n0,0,1\n1,1,2\n2,2,3\n",
    "its index without names of ends": ",n,m\n0,0,1\n1,1,2\n2,2,3\n",
    "an index with a name": "Unnamed: 0,source,target\n0,0,1\n1,1,2\n2,2,3\n",
    "columns in another order": "weight,target,source\n9,1,0\n9,2,1\n9,3,2\n",
    "alike ends": "id,node_a,node_b\n7,0,1\n8,1,2\n9,2,3\n",
    "floats of pandas": "u,v\n0.0,1.0\n1.0,2.0\n2.0,3.0\n",
    "weights behind": "0,1,0.5\n1,2,0.5\n2,3,0.5\n",
    "whole weights behind": "0,1,1\n1,2,1\n2,3,1\n",
    "an index without a header": "0,0,1\n1,1,2\n2,2,3\n",
    "tabs and comments of SNAP": "# Nodes: 4 Edges: 3\n# From\tTo\n0\t1\n1\t2\n2\t3\n",
    "spaces and comments of KONECT": "% sym unweighted\n0 1\n1 2\n2 3\n",
    "semicolons": "from;to\n0;1\n1;2\n2;3\n",
    "pairs in JSON": json.dumps(PAIRS),
    "neighbors in JSON": json.dumps({"0": [1], "1": [2], "2": [3]}),
    "networkx's JSON in one line": json.dumps(nx.node_link_data(nx.path_graph(4), edges="edges")),
    "D3's JSON": json.dumps({"nodes": [{"id": name} for name in "abcd"],
                             "links": [{"source": a, "target": b} for a, b in ("ab", "bc", "cd")]}, indent=1),
}  # fmt: skip


@pytest.mark.parametrize("written", EDGE_LISTS)
def test_an_edge_list_is_the_same_graph_whoever_wrote_it(written: str, tmp_path: Path) -> None:
    assert listed(tmp_path, EDGE_LISTS[written]).graph(0).edges == LINE


def test_arrows_of_a_graph_in_json_stay_arrows(tmp_path: Path) -> None:
    cycle = nx.cycle_graph(3, create_using=nx.DiGraph)
    text = json.dumps(nx.node_link_data(cycle, edges="links"))
    assert listed(tmp_path, text, 3).graph(0).edges == ((0, 1), (1, 2), (2, 0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "0,1,2\n1,2,3\n2,3,0\n",
            r"e\.csv: the first column may be the lines' own numbers or a node; head .*source,target",
        ),
        ('{"graph": 1}', r"e\.csv holds no edges in JSON: expected \[\[0, 1\]"),
        ('{"nodes": [1], "links": [2]}', r"e\.csv is no graph in JSON: .*expected \{nodes: "),
        ("[[0, 1", r"e\.csv is not JSON"),
        ("# nothing\n", r"e\.csv holds no edges; write src,dst"),
        ("src,dst\n0,1\n1,b\n", r"e\.csv:3: '1,b' is not an edge"),
        ("0;x\n1;2\n", r"e\.csv:1: '0,x' is not an edge"),
        ("# mine\n\n0,1\n2,99\n", r"e\.csv:4: edge \[2, 99\] names a node that does not exist; nodes are 0 to"),
        ("src,dst\n0,1\n1,1\n", r"e\.csv:3: edge \[1, 1\] is a self loop"),
    ],
)
def test_what_may_be_read_in_two_ways_or_in_none_names_the_file_and_the_form(
    text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        listed(tmp_path, text)


@pytest.mark.parametrize(
    ("heads", "found"),
    [
        ("source,destination,avg", Ends(0, 1)),
        ("id,from_city,to_city,from", Ends(1, 2)),
        ("asn1,asn2,rtt_avg", Ends(0, 1, alike=True)),
        ("rtt,City A,City B", Ends(1, 2, alike=True)),
        ("0,11,12", None),
        ("paris,berlin,madrid", None),
    ],
)
def test_heads_name_the_ends(heads: str, found: Ends | None) -> None:
    assert ends_of(heads.split(",")) == found


@pytest.mark.parametrize("kind", ["graphml", "gml", "json"])
def test_self_loops_that_a_format_demands_are_left_out_with_a_note(kind: str, tmp_path: Path) -> None:
    graph = nx.path_graph(4)
    graph.add_edges_from((node, node) for node in range(4))
    file = str(tmp_path / f"g.{kind}")
    if kind == "json":
        Path(file).write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    else:
        {"graphml": nx.write_graphml, "gml": nx.write_gml}[kind](graph, file)
    made = {"graphml": graphml, "gml": gml}.get(kind, edge_list)(4, STREAMS, file=file)
    assert made.graph(0).edges == LINE
    said = f"{file}: 4 self-loops are left out: a node always keeps a share of its own"
    assert list(made.notes) == [said]
    scenario = {"schema": "netdfl/1", "name": "loops", "nodes": 4, "rounds": 1, "algorithm": "dpsgd"}
    topology = {"kind": "edge_list" if kind == "json" else kind, "file": file}
    loaded = load(scenario | {"task": "quadratic", "world": "simulated", "topology": topology})
    assert said in loaded.notices


def test_parallel_links_that_a_gml_file_does_not_announce_are_one_edge(tmp_path: Path) -> None:
    """Files of the Topology Zoo have them."""
    nodes = "".join(f"  node [ id {node} ]\n" for node in range(4))
    links = "".join(f"  edge [ source {a} target {b} ]\n" for a, b in ((0, 1), (1, 2), (1, 2), (2, 3)))
    (tmp_path / "g.gml").write_text(f"graph [\n{nodes}{links}]\n")
    assert gml(4, STREAMS, file=str(tmp_path / "g.gml")).graph(0).edges == LINE
