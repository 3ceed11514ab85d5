"""Graphs in SNDlib's native XML: nodes with their coordinates, and links with the capacity that is installed."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from netdfl.core.tables import lazy_module

if TYPE_CHECKING:
    from xml.etree import ElementTree

    import networkx as nx
else:
    ElementTree, nx = lazy_module("xml.etree.ElementTree"), lazy_module("networkx")

ROOT = "network"
"""The name of the root element, which tells the format from GraphML."""
MODULES = "links without installed capacity"
_FORM = "expected networkStructure with nodes and links, each link with source and target"


def root_of(text: bytes) -> str:
    """Return the name of the root element of an XML text, without its namespace. Raises SyntaxError if it is no XML."""
    _, element = next(ElementTree.iterparse(BytesIO(text), ["start"]))
    return _plain(element.tag)


def read_sndlib(file: str, text: bytes) -> Any:
    """Return the networkx graph of an SNDlib network.

    Nodes have their `label`, and `Longitude` and `Latitude` if coordinates are geographical. Links have their
    `capacity` if one is installed. Capacities that could be installed are not read; the graph's attribute `MODULES`
    counts the links that have only these.

    Raises ValueError for other contents, SyntaxError if the text is no XML.
    """
    structure = _child(ElementTree.fromstring(text), "networkStructure")
    nodes, links = _child(structure, "nodes"), _child(structure, "links")
    if nodes is None or links is None:
        raise ValueError(f"{file} is no network of SNDlib: {_FORM}")
    graph = nx.MultiGraph()
    geographical = nodes.get("coordinatesType", "geographical") == "geographical"
    for node in nodes:
        name = node.get("id", "")
        graph.add_node(name, label=name, **(_place(node) if geographical else {}))
    bare = 0
    for link in links:
        ends = _text(link, "source"), _text(link, "target")
        unknown = [end for end in ends if end not in graph]
        if unknown:
            raise ValueError(f"{file}: link {link.get('id', '')}: there is no node {unknown[0]!r}; {_FORM}")
        capacity = _installed(file, link)
        bare += not capacity
        graph.add_edge(*ends, **({"capacity": capacity} if capacity else {}))
    graph.graph[MODULES] = bare
    return graph


def modules_words(file: str, graph: Any) -> list[str]:
    """Return a note on the links of an SNDlib network that have no installed capacity, and so no rate; else no note."""
    bare = graph.graph.get(MODULES, 0)
    have = "has" if bare == 1 else "have"
    what = f"{bare} of its links {have} no installed capacity; modules to choose from are no rate"
    return [f"{file}: {what}"] if bare else []


def _installed(file: str, link: ElementTree.Element) -> str:
    """Return the installed capacity of a link; empty if there is none, or if it is 0.

    Raises ValueError for other text.
    """
    capacity = _text(_child(link, "preInstalledModule"), "capacity")
    try:
        return capacity if capacity and float(capacity) > 0 else ""
    except ValueError as exc:
        what = f"capacity {capacity!r} is no number"
        raise ValueError(f"{file}: link {link.get('id', '')}: {what}; write it in the unit of rate_unit") from exc


def _place(node: ElementTree.Element) -> dict[str, str]:
    found = _child(node, "coordinates")
    places = {"Longitude": _text(found, "x"), "Latitude": _text(found, "y")}
    return {name: text for name, text in places.items() if text}


def _child(element: ElementTree.Element | None, name: str) -> ElementTree.Element | None:
    """Return the first child element called `name`, in any namespace; None if there is none."""
    return next((each for each in (element if element is not None else ()) if _plain(each.tag) == name), None)


def _text(element: ElementTree.Element | None, name: str) -> str:
    found = _child(element, name)
    return "" if found is None else (found.text or "").strip()


def _plain(tag: str) -> str:
    return tag.rpartition("}")[2]
