"""The networks that join silos: sites, and the lengths of the lines between them in kilometers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.scenario.measured.graph_file import kilometres
from netdfl.topology.files import read_graph

Place = tuple[float, float]
"""Latitude and longitude in degrees."""

GAIA: Mapping[str, Place] = {
    "Virginia": (39.04, -77.49),
    "California": (37.34, -121.89),
    "Oregon": (45.84, -119.70),
    "Dublin": (53.35, -6.26),
    "Frankfurt": (50.11, 8.68),
    "Tokyo": (35.68, 139.69),
    "Seoul": (37.57, 126.98),
    "Singapore": (1.35, 103.82),
    "Sydney": (-33.87, 151.21),
    "Mumbai": (19.08, 72.88),
    "Sao Paulo": (-23.55, -46.63),
}
"""The eleven regions of Amazon's cloud that Gaia (Hsieh et al., NSDI 2017) used, with the places of their cities."""

AWS_NORTH_AMERICA: Mapping[str, Place] = {
    "Ashburn": (39.04, -77.49),
    "Atlanta": (33.75, -84.39),
    "Boston": (42.36, -71.06),
    "Chicago": (41.88, -87.63),
    "Dallas": (32.78, -96.80),
    "Denver": (39.74, -104.99),
    "Hayward": (37.67, -122.08),
    "Jacksonville": (30.33, -81.66),
    "Los Angeles": (34.05, -118.24),
    "Miami": (25.76, -80.19),
    "Minneapolis": (44.98, -93.27),
    "Montreal": (45.50, -73.57),
    "New York": (40.71, -74.01),
    "Newark": (40.74, -74.17),
    "Palo Alto": (37.44, -122.14),
    "Phoenix": (33.45, -112.07),
    "Philadelphia": (39.95, -75.17),
    "San Jose": (37.34, -121.89),
    "Seattle": (47.61, -122.33),
    "South Bend": (41.68, -86.25),
    "St. Louis": (38.63, -90.20),
    "Toronto": (43.65, -79.38),
}
"""The cities of Amazon's edge locations in North America in 2020, with their places."""


@dataclass(frozen=True)
class Silos:
    """A network of silos.

    Attributes:
        num_sites: the number of sites; each has one silo.
        km: the length in km of each line, by its two sites; a line carries both directions.
    """

    num_sites: int
    km: Mapping[tuple[int, int], float]


def between_all(places: Mapping[str, Place]) -> Silos:
    """Return the network with a line along the great circle between each two places."""
    at = list(places.values())
    return Silos(len(at), {(a, b): kilometres(at[a], at[b]) for a, b in combinations(range(len(at)), 2)})


def read_silos(file: Path) -> Silos:
    """Return the network in a GML or GraphML file. Raises InputError if an edge has no `distance` in km."""
    graph: Any = read_graph(str(file))
    numbers = {node: number for number, node in enumerate(graph)}
    km: dict[tuple[int, int], float] = {}
    for a, b, data in graph.edges(data=True):
        if not isinstance(data.get("distance"), int | float):
            raise InputError(f"{file}: the edge {a}--{b} has no distance; each edge needs one, in km")
        low, high = sorted((numbers[a], numbers[b]))
        km[low, high] = float(data["distance"])
    return Silos(len(numbers), km)
