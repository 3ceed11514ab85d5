"""What GraphML and GML files say of links: attributes of edges, and how far apart the places of nodes are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import asin, cos, radians, sin, sqrt
from typing import Any

from netdfl.core.types import Json
from netdfl.scenario.measured.said import DISTANCE, KM_PER_S, LATENCY, RTT, Facts, Named, add, is_nothing, named
from netdfl.topology.graph import read_graph

Place = tuple[float, float]
_EARTH_KM = 6371.0
_LATITUDES, _LONGITUDES = ("latitude", "lat", "y"), ("longitude", "lon", "long", "lng", "x")
_KNOWN_APART = ("id", "key", "linklabel", "linktype", "linknote", "label", "linkspeedunits", "source", "target")


@dataclass
class Understood:
    """What a file says of each link (both ways where it does not say which), and how it was read."""

    num_nodes: int
    facts: dict[tuple[int, int], Facts] = field(default_factory=dict)
    directed: bool = False
    read_as: Counter[str] = field(default_factory=Counter)
    unknown: set[str] = field(default_factory=set)
    places: dict[int, Place] = field(default_factory=dict)

    def at(self, src: int, dst: int) -> Facts:
        """The facts of a link, new where there are none."""
        key = (src, dst) if self.directed or src < dst else (dst, src)
        return self.facts.setdefault(key, Facts())


def read_graph_file(file: str, *, by_distance: bool, delay_unit: str, rate_unit: str) -> Understood:
    """What the file says of its edges. With `by_distance` the way between two places gives a delay where none is said.

    Raises:
        ValueError: The file holds no graph, or an attribute that is no quantity.
    """
    graph = read_graph(file)
    found = Understood(graph.number_of_nodes(), directed=graph.is_directed())
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
            found.read_as[f"{name} as {what.what}"] += 1
        if by_distance and not facts.latency_s and src in places and dst in places:
            facts.latency_s.append(kilometres(places[src], places[dst]) / KM_PER_S)
            found.read_as["places of nodes as latency"] += 1
    return found


def places_in(graph: Any) -> dict[int, Place]:
    """The latitude and the longitude of each node of a networkx graph that says both."""
    return {node: place for node, data in graph.nodes(data=True) if (place := _place(data)) is not None}


def kilometres(a: Place, b: Place) -> float:
    """The great-circle distance of two places, each a latitude and a longitude in degrees."""
    (lat1, lon1), (lat2, lon2) = (tuple(map(radians, place)) for place in (a, b))
    half = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return 2 * _EARTH_KM * asin(min(1.0, sqrt(half)))


def _attributes(data: Json, found: Understood) -> list[tuple[str, Named, object]]:
    """The attributes of an edge that say something of its link. The Topology Zoo says a speed in up to three ways."""
    known: list[tuple[str, Named, object]] = []
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
