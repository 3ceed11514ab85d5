"""Graphs in files: GraphML and GML, as networkx reads them and as the Topology Zoo writes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdfl.core.tables import lazy_module

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_module("networkx")

ENDINGS = (".graphml", ".xml", ".gml")


def read_graph(file: str) -> Any:
    """The networkx graph of a file, its nodes 0 to n - 1: by their names where these are, else in the file's order.

    Raises:
        ValueError: The file can't be read, or holds no graph; with what to do.
    """
    is_gml = Path(file).suffix.lower() == ".gml"
    kind = "GML" if is_gml else "GraphML"
    try:
        drawn = _gml(Path(file).read_text(encoding="utf-8")) if is_gml else nx.read_graphml(file)
    except OSError as exc:
        raise ValueError(f"can't read {file}: {exc.strerror}; give the path of a {kind} file") from exc
    except (SyntaxError, nx.NetworkXError, UnicodeDecodeError) as exc:  # xml's ParseError is a SyntaxError
        raise ValueError(f"{file} is not {kind}: {exc}") from exc
    return _numbered(drawn)


def _gml(text: str) -> Any:
    """The graph of a GML text; parallel links, which the Topology Zoo does not announce, are allowed."""
    if not re.search(r"^\s*multigraph\b", text, flags=re.MULTILINE):
        text = re.sub(r"^(\s*graph\s*\[)", r"\1\n  multigraph 1", text, count=1, flags=re.MULTILINE)
    return nx.parse_gml(text, label="id")


def _numbered(graph: Any) -> Any:
    names = {str(node): node for node in graph}
    if set(names) == {str(i) for i in range(len(names))}:
        return nx.relabel_nodes(graph, {node: int(name) for name, node in names.items()})
    return nx.convert_node_labels_to_integers(graph)
