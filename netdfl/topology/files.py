"""Graphs in files: GraphML and GML, as networkx and the Topology Zoo write them, SNDlib's XML, JSON, lists of edges."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from netdfl.core.given_files import ending_of, given_bytes, given_text
from netdfl.core.tables import lazy_module
from netdfl.topology.sndlib import ROOT, modules_words, read_sndlib, root_of

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_module("networkx")

ENDINGS = (".graphml", ".xml", ".gml", ".json")
_KINDS = {".graphml": "GraphML", ".xml": "GraphML", ".gml": "GML", ".json": "JSON"}
_LOOPS = "self-loops left out"
_NAMES = "names of nodes in the file"
_INDEX = ("", "index", "idx", "unnamed0", "level0", "row", "rowid")
"""Headings that pandas and other programs give to a column of line numbers."""
_ENDS = (
    ("source", "destination"),
    ("source", "target"),
    ("source", "dest"),
    ("src", "dst"),
    ("src", "dest"),
    ("from", "to"),
    ("client", "server"),
    ("origin", "destination"),
    ("origin", "dest"),
    ("sender", "receiver"),
    ("tail", "head"),
)
_SAME = (("u", "v"), ("i", "j"), ("a", "b"))
"""Headings for the two ends of a link that give it no direction. Other such pairs end in 1 and 2, or in a and b."""
_OF_NODES = (
    "",
    "name",
    "id",
    "node",
    "host",
    "city",
    "country",
    "region",
    "code",
    "address",
    "ip",
    "probe",
    "anchor",
    "as",
    "asn",
)


@dataclass(frozen=True)
class Ends:
    """The numbers of the two columns of a table that name a link's ends.

    Attributes:
        source: The column of the sending end.
        target: The column of the receiving end.
        alike: Whether the headings, such as u and v, give the link no direction.
    """

    source: int
    target: int
    alike: bool = False


def ends_of(heads: Sequence[str]) -> Ends | None:
    """Find the two columns that name a link's ends: `src` and `dst`, `from_city` and `to_city`, ..."""
    plain = [re.sub(r"[\W_]", "", head.lower()) for head in heads]
    found = [*_matching(plain, _ENDS, False), *_numbered_ends(plain), *_matching(plain, _SAME, True)]
    return min(found, key=lambda ends: (ends.alike, ends.source), default=None)


def _matching(plain: Sequence[str], pairs: Sequence[tuple[str, str]], alike: bool) -> Iterator[Ends]:
    for source, target in pairs:
        for kind in _OF_NODES if not alike else ("",):
            for one, other in ((source + kind, target + kind), (kind + source, kind + target)):
                if one in plain and other in plain:
                    yield Ends(plain.index(one), plain.index(other), alike)


def _numbered_ends(plain: Sequence[str]) -> Iterator[Ends]:
    for place, head in enumerate(plain):
        for one, other in (("1", "2"), ("a", "b")):
            stem = head.removesuffix(one)
            if stem[-1:].isalpha() and stem != head and f"{stem}{other}" in plain:
                yield Ends(place, plain.index(f"{stem}{other}"), alike=True)


def read_graph(file: str, otherwise: str = "GraphML") -> Any:
    """Read a file as a networkx graph with nodes 0 to n - 1, renumbered if they have other names.

    The ending of the file's name decides the format; without a known ending, the format is `otherwise`. Links of a node
    with itself, which some formats demand, are left out; `self_loops` counts them.

    Raises:
        ValueError: The file can't be read, or holds no graph; with a remedy.
    """
    kind = _KINDS.get(ending_of(file), otherwise)
    try:
        drawn = _drawn(file, kind)
    except OSError as exc:
        raise ValueError(f"can't read {file}: {exc.strerror}; give the path of a {kind} file") from exc
    except (SyntaxError, nx.NetworkXError) as exc:  # xml's ParseError is a SyntaxError
        raise ValueError(f"{file} is not {kind}: {exc}") from exc
    loops = list(nx.selfloop_edges(drawn, keys=True) if drawn.is_multigraph() else nx.selfloop_edges(drawn))
    drawn.remove_edges_from(loops)
    drawn.graph[_LOOPS] = len(loops)
    return _numbered(drawn)


def self_loops(graph: Any) -> int:
    """Return the number of self loops that `read_graph` left out of this graph."""
    return int(graph.graph.get(_LOOPS, 0))


def graph_words(file: str, graph: Any) -> list[str]:
    """Return notes for the user about the contents of a file that `graph` lacks: self loops and links without rates."""
    return [*loops_words(file, self_loops(graph)), *modules_words(file, graph)]


def names_in(graph: Any) -> dict[int, str]:
    """Return the name that each node of a graph from `read_graph` has in its file, by node number."""
    return dict(graph.graph[_NAMES])


def loops_words(file: str, count: int) -> list[str]:
    """Return a note on the `count` self loops that were left out of the file's graph; none for a count of 0."""
    said = f"{count} self-loop{'s are' if count > 1 else ' is'} left out: a node always keeps a share of its own"
    return [f"{file}: {said}"] if count else []


def _drawn(file: str, kind: str) -> Any:
    if kind == "GML":
        return _gml(given_text(file))
    if kind == "GraphML":
        found = given_bytes(file)
        return read_sndlib(file, found) if root_of(found) == ROOT else nx.read_graphml(BytesIO(found))
    data = _json(file, given_text(file))
    if not is_node_link(data):
        raise ValueError(f"{file} is no graph in JSON: expected {{nodes: [{{id: ...}}], links: [{{source, target}}]}}")
    return _node_link(file, data)


def _json(file: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"{file} is not JSON: {exc}") from exc


def is_node_link(data: object) -> bool:
    """Return whether parsed JSON is a graph in the node-link format of networkx and D3."""
    return isinstance(data, dict) and "nodes" in data and ("links" in data or "edges" in data)


def _node_link(file: str, data: Mapping[str, Any]) -> Any:
    try:
        return nx.node_link_graph({"multigraph": False, **data}, edges="links" if "links" in data else "edges")
    except (nx.NetworkXError, KeyError, TypeError, AttributeError) as exc:
        form = "{nodes: [{id: ...}], links: [{source: ..., target: ...}]}"
        raise ValueError(f"{file} is no graph in JSON: {type(exc).__name__}: {exc}; expected {form}") from exc


def _gml(text: str) -> Any:
    """Parse a GML text; parallel links are allowed, because files of the Topology Zoo do not declare theirs."""
    if not re.search(r"^\s*multigraph\b", text, flags=re.MULTILINE):
        text = re.sub(r"^(\s*graph\s*\[)", r"\1\n  multigraph 1", text, count=1, flags=re.MULTILINE)
    return nx.parse_gml(text, label="id")


def _numbered(graph: Any) -> Any:
    names = {str(node): node for node in graph}
    if set(names) == {str(i) for i in range(len(names))}:
        numbers = {node: int(name) for name, node in names.items()}
    else:
        numbers = {node: number for number, node in enumerate(graph)}
    graph.graph[_NAMES] = {number: str(node) for node, number in numbers.items()}
    return nx.relabel_nodes(graph, numbers)


@dataclass(frozen=True)
class Edges:
    """The edges read from a file.

    Attributes:
        pairs: The two node numbers of each edge.
        directed: Whether an edge works only from the first node to the second.
        notes: Remarks for the user.
        places: The file and line of each edge, with which errors about the edge begin; empty if edges have no line.
    """

    pairs: list[list[int]]
    directed: bool = False
    notes: Sequence[str] = ()
    places: Sequence[str] = ()


def read_edges(file: str, num_nodes: int) -> Edges:
    """Read the edges of a file: one per line, in the first two columns or in columns with known headings; or JSON.

    Raises ValueError, with file and line, for other contents and for a file that can be understood in two ways.
    """
    try:
        text = given_text(file)
    except OSError as exc:
        raise ValueError(f"can't read {file} as a CSV file of edges: {exc}") from exc
    if text.lstrip()[:1] in ("[", "{"):
        return _edges_of_json(file, _json(file, text))
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    lines = [(number, line) for number, line in lines if not line.lstrip().startswith(("#", "%"))]
    if not lines:
        raise ValueError(f"{file} holds no edges; write src,dst in each line")
    mark = max(",;\t", key=lines[0][1].count)
    numbered = [(number, _cells(line, mark if mark in lines[0][1] else None)) for number, line in lines]
    head = numbered.pop(0)[1] if all(_node(cell) is None for cell in numbered[0][1]) else None
    source, target = _columns(file, head, [row for _, row in numbered], num_nodes)
    pairs = [[_node_at(row, source), _node_at(row, target)] for _, row in numbered]
    for (number, row), pair in zip(numbered, pairs, strict=True):
        if None in pair:
            raise ValueError(f"{file}:{number}: {','.join(row)!r} is not an edge; write src,dst")
    found = [[node for node in pair if node is not None] for pair in pairs]
    return Edges(found, places=[f"{file}:{number}: " for number, _ in numbered])


def _edges_of_json(file: str, data: Any) -> Edges:
    if is_node_link(data):
        graph = _node_link(file, data)
        loops = list(nx.selfloop_edges(graph))
        graph.remove_edges_from(loops)
        edges = [[int(a), int(b)] for a, b in _numbered(graph).edges()]
        return Edges(edges, graph.is_directed(), loops_words(file, len(loops)))
    if isinstance(data, dict) and all(isinstance(each, list) for each in data.values()):  # the receivers of each node
        data = [
            [int(node), other] if str(node).isdigit() else None for node, others in data.items() for other in others
        ]
    fits = all(isinstance(each, list) and len(each) == 2 and all(type(node) is int for node in each) for each in data)
    if not fits:
        forms = "[[0, 1], ...], {0: [1, ...]}, or {nodes: [{id: 0}], links: [{source: 0, target: 1}]}"
        raise ValueError(f"{file} holds no edges in JSON: expected {forms}")
    return Edges(data)


def _cells(line: str, mark: str | None) -> list[str]:
    return line.split() if mark is None else [cell.strip() for cell in next(csv.reader([line], delimiter=mark))]


def _node(cell: str) -> int | None:
    """Parse the number of a node, also in the form `3.0`, which pandas writes in columns with empty cells."""
    return int(float(cell)) if re.fullmatch(r"-?\d+(\.0*)?", cell) else None


def _node_at(row: Sequence[str], place: int) -> int | None:
    return _node(row[place]) if place < len(row) else None


def _columns(file: str, head: Sequence[str] | None, rows: Sequence[Sequence[str]], num_nodes: int) -> tuple[int, int]:
    """Choose the two columns of a table of edges that hold the node numbers.

    Raises ValueError if the first column may hold either node numbers or the numbers of the lines.
    """
    width = min((len(row) for row in rows), default=0)
    if head is not None:
        if (ends := ends_of(head)) is not None:
            return ends.source, ends.target
        index = len(head) > 2 and re.sub(r"[\W_]", "", head[0].lower()) in _INDEX
        return (1, 2) if index else (0, 1)
    if width > 2 and len(rows) > 1 and all(_node(row[0]) == place for place, row in enumerate(rows)):
        after = [(_node(row[1]), _node(row[2])) for row in rows]
        first = [(_node(row[0]), _node(row[1])) for row in rows]
        if _is_graph(after, num_nodes) and _is_graph(first, num_nodes):
            what = "the first column may be the lines' own numbers or a node"
            raise ValueError(f"{file}: {what}; head the two columns of nodes source,target")
        return (1, 2) if _is_graph(after, num_nodes) else (0, 1)
    return 0, 1


def _is_graph(pairs: Sequence[tuple[int | None, int | None]], num_nodes: int) -> bool:
    return all(a is not None and b is not None and a != b and max(a, b) < num_nodes for a, b in pairs)
