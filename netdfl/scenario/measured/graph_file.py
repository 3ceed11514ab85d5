"""Link measurements from GraphML and GML files: attributes of edges, and distances between nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import asin, cos, radians, sin, sqrt
from typing import Any

from netdfl.core.types import Json
from netdfl.scenario.measured.said import (
    DISTANCE,
    DOWN_DELAY,
    KM_PER_S,
    LATENCY,
    RATE,
    RTT,
    UP_DELAY,
    LinkMeasurements,
    NamedQuantity,
    NodeMeasurements,
    add,
    add_at,
    is_nothing,
    named,
    named_of_node,
)
from netdfl.topology.files import graph_words, read_graph

Place = tuple[float, float]
_EARTH_KM = 6371.0
_USUAL, _TBIT_IN_MBIT = "Mbit", 1e6
_BARE = re.compile(r"\s*[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?\s*")
_LATITUDES, _LONGITUDES = ("latitude", "lat", "y"), ("longitude", "lon", "long", "lng", "x")
_KNOWN_APART = ("id", "key", "linklabel", "linktype", "linknote", "label", "linkspeedunits", "source", "target")


@dataclass
class MeasuredNetwork:
    """The measurements in a file, and how its attributes were interpreted.

    Where the file has no direction, the measurements of a link hold both ways.

    Attributes:
        num_nodes: the number of nodes.
        facts: the measurements of each link.
        directed: whether the two directions of a link are measured separately.
        read_as: how often each interpretation of an attribute was used.
        unknown: names of attributes that were not interpreted.
        places: the latitude and longitude of nodes.
        nodes: the measurements of each node.
        notes: remarks for the user on how the file was read.
    """

    num_nodes: int
    facts: dict[tuple[int, int], LinkMeasurements] = field(default_factory=dict)
    directed: bool = False
    read_as: Counter[str] = field(default_factory=Counter)
    unknown: set[str] = field(default_factory=set)
    places: dict[int, Place] = field(default_factory=dict)
    nodes: dict[int, NodeMeasurements] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def at(self, src: int, dst: int) -> LinkMeasurements:
        """Return the measurements of a link; an empty record is added if there are none."""
        key = (src, dst) if self.directed or src < dst else (dst, src)
        return self.facts.setdefault(key, LinkMeasurements())

    def at_node(self, node: int) -> NodeMeasurements:
        """Return the measurements of a node; empty ones if the file has none."""
        return self.nodes.get(node, NodeMeasurements())


def read_graph_file(file: str, *, by_distance: bool, delay_unit: str, rate_unit: str) -> MeasuredNetwork:
    """Read the links of a graph file; with `by_distance`, missing delays are computed from distances.

    Raises:
        ValueError: The file holds no graph, or an attribute whose value is no valid quantity.
    """
    graph = read_graph(file)
    notes = graph_words(file, graph)
    in_bits = rate_unit == _USUAL and _in_bits(graph)
    rate_unit = "bit" if in_bits else rate_unit
    found = MeasuredNetwork(graph.number_of_nodes(), directed=graph.is_directed(), notes=notes)
    places = found.places = places_in(graph)
    for src, dst, data in graph.edges(data=True):
        facts = found.at(src, dst)
        for name, what, value in _attributes(data, found):
            if what.what == DISTANCE and (not by_distance or _has_delay(data)):
                continue
            try:
                add(facts, what, value, delay_unit=delay_unit, rate_unit=rate_unit)
            except ValueError as exc:
                raise ValueError(f"{file}: the link {src}--{dst}: {name}: {exc}") from exc
            found.read_as[_reading(name, what, value, in_bits)] += 1
        if by_distance and not facts.latency_s and src in places and dst in places:
            facts.latency_s.append(kilometres(places[src], places[dst]) / KM_PER_S)
            found.read_as["places of nodes as latency"] += 1
    for node, data in graph.nodes(data=True):
        _read_node(found, file, node, data, delay_unit=delay_unit, rate_unit=rate_unit)
    _add_delays_of_nodes(found)
    return found


def _in_bits(graph: Any) -> bool:
    """Return whether rates without a unit must be in bit/s, because as Mbit/s each would be a Tbit/s or more."""
    scratch = MeasuredNetwork(0)
    said = [each for _, _, data in graph.edges(data=True) for each in _attributes(data, scratch)]
    bare = [float(str(value)) for _, what, value in said if _is_bare_rate(what, value)]
    return bool(bare) and min(bare) >= _TBIT_IN_MBIT


def _is_bare_rate(what: NamedQuantity, value: object) -> bool:
    return what.what == RATE and not what.unit and _BARE.fullmatch(str(value)) is not None


def _reading(name: str, what: NamedQuantity, value: object, in_bits: bool) -> str:
    unit = " in bit/s" if in_bits and _is_bare_rate(what, value) else ""
    return f"{name} as {what.what}{unit}"


def _read_node(found: MeasuredNetwork, file: str, node: int, data: Json, **units: str) -> None:
    """Add the uplink, the downlink and the delays of one node to `found`."""
    for name, value in data.items():
        what = named_of_node(str(name))
        if what is None or is_nothing(value):
            continue
        try:
            add_at(found.nodes.setdefault(node, NodeMeasurements()), what, value, **units)
        except ValueError as exc:
            raise ValueError(f"{file}: the node {node}: {name}: {exc}") from exc
        found.read_as[f"{name} of nodes as {what.what}"] += 1


def _add_delays_of_nodes(found: MeasuredNetwork) -> None:
    """Add the delays of both end nodes to each link's latency, separately for each direction."""
    if not any(node.delay_s for node in found.nodes.values()):
        return
    if not found.directed:
        both = {edge: facts for (a, b), facts in found.facts.items() for edge in ((a, b), (b, a))}
        found.facts, found.directed = {edge: facts.copy() for edge, facts in both.items()}, True
    for (src, dst), facts in found.facts.items():
        more_s = found.at_node(src).delay_s.get(UP_DELAY, 0.0) + found.at_node(dst).delay_s.get(DOWN_DELAY, 0.0)
        facts.latency_s = [latency + more_s for latency in facts.latency_s or [0.0]]


def places_in(graph: Any) -> dict[int, Place]:
    """Return the latitude and longitude of each node of a networkx graph that has both."""
    return {node: place for node, data in graph.nodes(data=True) if (place := _place(data)) is not None}


def kilometres(a: Place, b: Place) -> float:
    """Return the great-circle distance in kilometers between two places (latitude, longitude) in degrees."""
    (lat1, lon1), (lat2, lon2) = (tuple(map(radians, place)) for place in (a, b))
    half = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return 2 * _EARTH_KM * asin(min(1.0, sqrt(half)))


def _attributes(data: Json, found: MeasuredNetwork) -> list[tuple[str, NamedQuantity, object]]:
    """Return the known attributes of an edge, each with its quantity and value.

    The Topology Zoo writes a speed in up to three attributes.
    """
    known: list[tuple[str, NamedQuantity, object]] = []
    raw = "LinkSpeedRaw" in data and not is_nothing(data["LinkSpeedRaw"])
    for name, value in data.items():
        what = named(str(name))
        if is_nothing(value) or (name == "LinkSpeed" and raw):
            continue
        if what is None:
            if str(name).lower() not in _KNOWN_APART:
                found.unknown.add(str(name))
            continue
        known.append((str(name), what, f"{value}{data.get('LinkSpeedUnits', '')}" if name == "LinkSpeed" else value))
    return known


def _has_delay(data: Mapping[str, object]) -> bool:
    return any((what := named(str(name))) and what.what in (LATENCY, RTT) for name in data)


def _place(data: Json) -> Place | None:
    plain = {str(name).lower(): value for name, value in data.items()}
    try:
        latitude, longitude = (
            next(float(plain[name]) for name in names if name in plain) for names in (_LATITUDES, _LONGITUDES)
        )
    except (StopIteration, RuntimeError, ValueError, TypeError):
        return None
    return (latitude, longitude) if -90 <= latitude <= 90 and -180 <= longitude <= 180 else None
