"""The setting `links_from`: a scenario's link rules, completed from a file."""

from __future__ import annotations

from pathlib import Path

from netdfl.core.given_files import ending_of
from netdfl.core.types import Edge
from netdfl.scenario.measured.graph_file import MeasuredNetwork, read_graph_file
from netdfl.scenario.measured.latency_json import matrix_rows
from netdfl.scenario.measured.table_file import read_table_file
from netdfl.scenario.model.links import LinkEntry
from netdfl.scenario.model.network import LinksFrom
from netdfl.scenario.model.schema import Report, Scenario
from netdfl.topology.files import ENDINGS

SAID = ("latency", "rate", "loss")


def understood(asked: LinksFrom) -> MeasuredNetwork:
    """Read the measurements in the file that `asked`, the block `links_from`, names. Raises ValueError."""
    units = {"delay_unit": asked.delay_unit, "rate_unit": asked.rate_unit}
    if ending_of(asked.file) in ENDINGS and not _is_matrix(asked.file):
        return read_graph_file(asked.file, by_distance=asked.by_distance, **units)
    if asked.by_distance:
        raise ValueError(f"{asked.file} is a table, which has no places; by_distance is for GraphML and GML")
    return read_table_file(asked.file, values=asked.values, **units)


def _is_matrix(file: str) -> bool:
    return ending_of(file) == ".json" and matrix_rows(file) is not None


def with_links(scenario: Scenario, used: frozenset[Edge] | None) -> tuple[Scenario, list[str]]:
    """Return the scenario with link rules from the `links_from` file, and notices about how it was read.

    The scenario's own rules take precedence. Links that are not in `used`, the links of all the graphs (None: any
    link), get no rules. Raises ValueError where the file can't be used.
    """
    asked = scenario.links_from
    assert asked is not None
    found = understood(asked)
    if found.num_nodes < scenario.num_nodes:
        raise ValueError(f"{asked.file} has {found.num_nodes} nodes, and the scenario {scenario.num_nodes}")
    entries: dict[str, LinkEntry] = {}
    for (src, dst), facts in sorted(found.facts.items()):
        edges = {(src, dst)} if found.directed else {(src, dst), (dst, src)}
        inside = max(src, dst) < scenario.num_nodes
        if inside and (used is None or edges & used) and (rules := facts.rules()):
            selector = f"{src}->{dst}" if found.directed else f"{src}--{dst}"
            written = scenario.links[selector].written() if selector in scenario.links else {}
            entries[selector] = LinkEntry.model_validate(rules | written)
    of_links = dict(entries)
    for node, at in sorted(found.nodes.items()):
        if node < scenario.num_nodes and (rules := at.rules()):
            written = scenario.links[str(node)].written() if str(node) in scenario.links else {}
            entries[str(node)] = LinkEntry.model_validate(rules | written)
    links = {**{key: entry for key, entry in scenario.links.items() if key not in entries}, **entries}
    changed = scenario.model_copy(update={"links": links, "links_from": None, "report": _placed(scenario, found)})
    return changed, [*_words(Path(asked.file).name, found, of_links, scenario.num_nodes), *found.notes]


def _placed(scenario: Scenario, found: MeasuredNetwork) -> Report:
    """Return the scenario's block `report`, with the nodes' positions from the file if the scenario gives none."""
    if scenario.report.places or not found.places:
        return scenario.report
    places = [found.places.get(node) for node in range(scenario.num_nodes)]
    return scenario.report.model_copy(update={"places": [None if place is None else [*place] for place in places]})


def _words(name: str, found: MeasuredNetwork, entries: dict[str, LinkEntry], num_nodes: int) -> list[str]:
    """Return notices on the measurement file `name`: which attributes were read as what, and what is missing."""
    read = ", ".join(f"{what} ({count})" for what, count in sorted(found.read_as.items())) or "nothing"
    counts = {key: sum(key in entry.model_fields_set for entry in entries.values()) for key in SAID}
    missing = [f"{key} of {len(entries) - count} of them" for key, count in counts.items() if count < len(entries)]
    told = f"links_from {name}: rules of {len(entries)} links, by {read}"
    silent = f"; it says no {', no '.join(missing)}" if missing else ""
    unknown = f"; not understood: {', '.join(sorted(found.unknown))}" if found.unknown else ""
    first = f"; it has {found.num_nodes} nodes, the first {num_nodes} are taken" if found.num_nodes > num_nodes else ""
    return [told + silent + unknown + first]
