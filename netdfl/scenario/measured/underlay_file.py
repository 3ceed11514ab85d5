"""Completion of a scenario's block `underlay`: core links from a file, sites of nodes, uplinks and downlinks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from netdfl.core.given_files import ending_of
from netdfl.core.types import NodeId
from netdfl.links.schedule.events import name_nodes
from netdfl.links.selectors import nearest
from netdfl.links.spec import NODE_KEYS
from netdfl.scenario.build import build_underlay
from netdfl.scenario.measured.graph_file import MeasuredNetwork, read_graph_file
from netdfl.scenario.model.links import LinkEntry
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.underlay import CoreEntry, UnderlayPart
from netdfl.topology.files import ENDINGS, names_in, read_graph
from netdfl.underlay.sites import BOTH, ONE_WAY, CoreFigures, CoreNetwork, ends_in
from netdfl.underlay.underlay import Underlay

_LABELS = ("label", "name", "city")


def with_core_links(part: UnderlayPart) -> tuple[UnderlayPart, list[str]]:
    """Return the block `underlay` with all core links of its file written out, and notices for the user.

    Raises ValueError for an unfit file.
    """
    links, notices = (part.links, []) if part.file is None else _from_file(part)
    links = {name: _with_rate(each, part.core) for name, each in links.items()}
    CoreNetwork({name: CoreFigures() for name in links})
    settled = {"file": None, "links": links, "core": None, "latency": "given", "delay_unit": "ms", "rate_unit": "Mbit"}
    return part.model_copy(update=settled), notices


def with_places(scenario: Scenario, part: UnderlayPart) -> Scenario:
    """Return the scenario with the site of each node, and the nodes' uplinks and downlinks, written out.

    Raises ValueError where a node can't be placed, or its site can't be reached.
    """
    underlay = build_underlay(scenario.model_copy(update={"underlay": part}))
    assert underlay is not None
    settled = part.model_copy(update={"place": _placed(underlay), "access": None})
    return scenario.model_copy(update={"underlay": settled, "links": _with_access(scenario, part.access)})


def _placed(underlay: Underlay) -> dict[str, str]:
    of: dict[str, list[NodeId]] = {}
    for node, site in sorted(underlay.site_of.items()):
        of.setdefault(site, []).append(node)
    return {name_nodes(nodes): site for site, nodes in of.items()}


def _with_rate(entry: CoreEntry, rate: float | None) -> CoreEntry:
    return entry if entry.rate is not None or rate is None else entry.model_copy(update={"rate": rate})


def _with_access(scenario: Scenario, rate: float | None) -> dict[str, Any]:
    """Return the scenario's block `links`, completed with uplinks and downlinks of `rate`.

    Its entry `default` gets an uplink and a downlink of `rate` bit/s where it has none.
    """
    if rate is None:
        return scenario.links
    said = scenario.links["default"].written() if "default" in scenario.links else {}
    access = {key: {"rate": f"{rate:.10g}bit"} for key in NODE_KEYS}
    return {**scenario.links, "default": LinkEntry.model_validate(access | said)}


def _from_file(part: UnderlayPart) -> tuple[dict[str, CoreEntry], list[str]]:
    file = str(part.file)
    if ending_of(file) not in ENDINGS:
        raise ValueError(f"{file} is no graph; give a {', '.join(ENDINGS)} file of sites and core links")
    units = {"delay_unit": part.delay_unit, "rate_unit": part.rate_unit}
    found = read_graph_file(file, by_distance=part.latency == "distance", **units)
    names = _names(file)
    arrow = ONE_WAY if found.directed else BOTH
    rules = {f"{names[a]}{arrow}{names[b]}": facts.rules() for (a, b), facts in sorted(found.facts.items())}
    if not rules:
        raise ValueError(f"{file} has no links; give a file with edges between its sites")
    written = {_spelt(name, rules): entry for name, entry in part.links.items()}
    links = {name: _entry(file, name, rules[name], written.get(name), part.latency) for name in rules}
    return links, _words(file, found, links, part.core)


def _spelt(name: str, known: Collection[str]) -> str:
    """Return the spelling in the file for the core link `name`, whose two sites may be in the other order there."""
    src, dst, both = ends_in(name)
    for spelling in (f"{src}{BOTH}{dst}", f"{dst}{BOTH}{src}") if both else (f"{src}{ONE_WAY}{dst}",):
        if spelling in known:
            return spelling
    raise ValueError(f"the file has no core link {name!r}; {nearest(name, sorted(known))}")


def _entry(file: str, name: str, rules: dict[str, str], written: CoreEntry | None, latency: str) -> CoreEntry:
    said = {key: getattr(written, key) for key in written.model_fields_set} if written is not None else {}
    if "latency" not in rules and "latency" not in said:
        remedy = "latency: distance" if latency == "given" else f"links: {{{name}: {{latency: 5ms}}}}"
        where = "" if latency == "given" else ", nor how far apart its sites are"
        raise ValueError(f"{file} says no latency of the core link {name}{where}; add {remedy}")
    return CoreEntry.model_validate(rules).model_copy(update=said)


def _names(file: str) -> dict[int, str]:
    """Return the name of each site: its label, or its id in the file.

    Labels are used if all sites have different ones, without an arrow in them.
    """
    graph = read_graph(file)
    for wanted in _LABELS:
        found = {
            node: str(value).strip()
            for node, data in graph.nodes(data=True)
            for key, value in data.items()
            if str(key).lower() == wanted
        }
        distinct = len(graph) == len(found) == len(set(found.values()))
        if distinct and not any(map(_is_odd, found.values())):
            return found
    names = names_in(graph)
    if odd := next((name for name in names.values() if _is_odd(name)), None):
        raise ValueError(f"{file}: a site can't be called {odd!r}; give it a name without {BOTH} and {ONE_WAY}")
    return names


def _is_odd(name: str) -> bool:
    return BOTH in name or ONE_WAY in name or name != name.strip() or not name


def _words(file: str, found: MeasuredNetwork, links: Mapping[str, CoreEntry], core: float | None) -> list[str]:
    """Return notices for the user: how the file was read, and what data it lacks."""
    read = ", ".join(f"{what} ({count})" for what, count in sorted(found.read_as.items())) or "nothing"
    silent = sum(entry.rate is None for entry in links.values())
    rates = "unlimited" if core is None else "as core says"
    told = f"; {silent} of them have no rate there: {rates}" if silent else ""
    unknown = f"; not understood: {', '.join(sorted(found.unknown))}" if found.unknown else ""
    return [f"underlay {Path(file).name}: {len(links)} core links, by {read}{told}{unknown}", *found.notes]
