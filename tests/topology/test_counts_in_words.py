"""What a graph is told as: its nodes and links, one and many, and how often it is drawn anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.topology.files import read_edges
from netdfl.topology.graph import count_words, redrawn_words


@pytest.mark.parametrize(
    ("nodes", "links", "directed", "said"),
    [
        (1, 0, False, "1 node, 0 edges (0 links)"),
        (2, 2, False, "2 nodes, 1 edge both ways (2 links)"),
        (8, 16, False, "8 nodes, 8 edges, each both ways (16 links)"),
        (3, 4, False, "3 nodes, 2 edges, each both ways (4 links)"),
        (2, 1, True, "2 nodes, 1 one-way link"),
        (1000, 2400, True, "1,000 nodes, 2,400 one-way links"),
    ],
)
def test_nodes_and_links_are_counted(nodes: int, links: int, directed: bool, said: str) -> None:
    assert count_words(nodes, links, directed=directed) == said


@pytest.mark.parametrize(
    ("every", "more", "said"),
    [
        (0, {}, "static"),
        (1, {}, "redrawn every round"),
        (2, {}, "redrawn every 2 rounds"),
        (0, {"chosen": True}, "nodes choose among neighbors every round"),
        (0, {"chosen": True, "server": True}, "the server draws clients anew every round"),
        (0, {"server": True}, "static"),
        (3, {"chosen": True}, "redrawn every 3 rounds"),
    ],
)
def test_how_often_a_graph_is_drawn_anew_is_told(every: int, more: dict[str, bool], said: str) -> None:
    assert redrawn_words(every, **more) == said


@pytest.mark.parametrize(
    "text",
    ['{"a": 1}', '[[0, 1], "ab"]', "[[0, 1, 2]]", "[[0]]", "[[0, true]]", '[[0, "1"]]', '{"a": [1]}', "[1, 2]"],
)
def test_json_that_holds_no_edges_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "edges.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="holds no edges in JSON"):
        read_edges(str(file), 4)
