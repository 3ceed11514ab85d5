"""Which two columns of a file without names are the ends of its links, row by row; a model of what may be read so."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.topology.files import Ends, ends_of, read_edges

TWO = "the first column may be the lines' own numbers or a node"


@pytest.mark.parametrize(
    ("rows", "num_nodes", "pairs"),
    [
        ("0,1,0", 2, [[0, 1]]),
        ("0,0,1 1,1,2", 3, [[0, 1], [1, 2]]),
        ("0,1,3 1,2,0", 3, [[0, 1], [1, 2]]),
        ("0,1,3 1,2,0", 4, None),
        ("0,1,2 1,2,2", 3, [[0, 1], [1, 2]]),
        ("0,1,x 1,2,0", 3, [[0, 1], [1, 2]]),
        ("1,1,0 0,1,2", 3, [[1, 1], [0, 1]]),
        ("0,1 1,2", 3, [[0, 1], [1, 2]]),
        ("0,1,9 1,2", 3, [[0, 1], [1, 2]]),
        ("0,1,2 1,2,0 2,0,1", 3, None),
        ("0,3,2 1,2,0 2,0,1", 3, [[0, 3], [1, 2], [2, 0]]),
        ("0,3,2 1,2,0 2,0,1", 4, None),
        ("0,0,2 1,2,0 2,0,1", 3, [[0, 2], [2, 0], [0, 1]]),
    ],
)
def test_three_columns_begin_with_an_index_where_the_others_alone_are_a_graph(
    rows: str, num_nodes: int, pairs: list[list[int]] | None, tmp_path: Path
) -> None:
    (tmp_path / "edges").write_text(rows.replace(" ", "\n"))
    if pairs is None:
        with pytest.raises(ValueError, match=TWO):
            read_edges(str(tmp_path / "edges"), num_nodes)
    else:
        assert read_edges(str(tmp_path / "edges"), num_nodes).pairs == pairs


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("# a\n\n0 1\n  % b\n1\t2", [[0, 1], [1, 2]]),
        ("0;1\n1;2", [[0, 1], [1, 2]]),
        ("0, 1\n1 ,2\n", [[0, 1], [1, 2]]),
        ("0.0,1.\n1.00,2", [[0, 1], [1, 2]]),
        ("x,y\n0,1", [[0, 1]]),
        ("index,x,y\n5,0,1", [[0, 1]]),
        ("Row ID,x,y\n5,0,1", [[0, 1]]),
        ("index,x\n0,1", [[0, 1]]),
        ("w,to,from\n7,0,1", [[1, 0]]),
        ("[[0, 1], [1, 2]]", [[0, 1], [1, 2]]),
        ('{"0": [1, 2], "2": []}', [[0, 1], [0, 2]]),
        ("[]", []),
        ("{}", []),
    ],
)
def test_edges_are_read_from_lines_of_any_kind_and_json(text: str, pairs: list[list[int]], tmp_path: Path) -> None:
    (tmp_path / "edges").write_text(text)
    assert read_edges(str(tmp_path / "edges"), 3).pairs == pairs


@pytest.mark.parametrize(
    "text", ["[[0, 1], [1]]", "[[0, true]]", '[[0, "1"]]', '{"a": [1]}', '{"0": 1}', "[0, 1]", "[[0, 1, 2]]"]
)
def test_json_of_another_form_holds_no_edges(text: str, tmp_path: Path) -> None:
    (tmp_path / "edges").write_text(text)
    with pytest.raises(ValueError, match="holds no edges in JSON"):
        read_edges(str(tmp_path / "edges"), 3)


@pytest.mark.parametrize(("text", "line"), [("0,1\n1", 2), ("0,1\n\n1,b", 3), ("0,1\n,2", 2), ("s,t\n0,1\n1.5,2", 3)])
def test_a_line_that_is_no_edge_is_named_by_its_number(text: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "edges").write_text(text)
    with pytest.raises(ValueError, match=rf"edges:{line}: .* is not an edge"):
        read_edges(str(tmp_path / "edges"), 3)


@pytest.mark.parametrize(
    ("heads", "found"),
    [
        ("as2n1,as2n2", Ends(0, 1, alike=True)),
        ("x,host a,host b", Ends(1, 2, alike=True)),
        ("1,2", None),
        ("x11,x12", None),
        ("u,v", Ends(0, 1, alike=True)),
        ("Source.ID,Target_id", Ends(0, 1)),
        ("u,v,src,dst", Ends(2, 3)),
        ("city_from,city_to", Ends(0, 1)),
        ("from,to,src,dst", Ends(0, 1)),
        ("dst,src", Ends(1, 0)),
    ],
)
def test_ends_are_told_by_their_names_those_with_a_direction_first(heads: str, found: Ends | None) -> None:
    assert ends_of(heads.split(",")) == found
