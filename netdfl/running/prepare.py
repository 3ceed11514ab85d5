"""What is written down before a run."""

from __future__ import annotations

from netdfl.record.run import RunDirectory
from netdfl.record.sampling import ALL, SAMPLING
from netdfl.running.provenance import write_provenance
from netdfl.scenario.build import build_network
from netdfl.scenario.loading.resolved import to_yaml
from netdfl.scenario.model.plugins import ORIGIN
from netdfl.scenario.model.schema import Scenario


def prepare(scenario: Scenario, directory: RunDirectory) -> None:
    """Write what is known before the run: the resolved scenario and the graph of round 0."""
    directory.write("scenario.yaml", to_yaml(scenario))
    if scenario.file is not None and not (directory.path / ORIGIN).exists():
        directory.write_json(ORIGIN, {"directory": str(scenario.file.parent)})
    if scenario.record.messages != ALL:
        directory.write_json(SAMPLING, {"messages": scenario.record.messages})
    write_provenance(scenario, directory)
    network = build_network(scenario)
    graph = network.graph(0)
    directory.write_json(
        "graph.json",
        {
            "num_nodes": network.num_nodes,
            "edges": [list(edge) for edge in graph.edges],
            "directed": not graph.is_symmetric,
            "server": network.server,
            "kind": scenario.topology.kind,
            "weights": scenario.topology.weights.kind,
            "redraw_every": network.topology.redraw_every,
            "chosen_anew": network.varies and not network.topology.time_varying,
            "groups": scenario.groups,
            "sites": {site.machines: site.nodes for site in getattr(scenario.world, "sites", ())},
            "places": _places(scenario),
        },
    )


def _places(scenario: Scenario) -> list[list[float] | None] | None:
    """Where each node is, by latitude and longitude, as the scenario or the file of its topology says."""
    if scenario.report.places:
        return scenario.report.places
    file = getattr(scenario.topology, "file", None)
    if scenario.topology.kind not in ("graphml", "gml") or file is None:
        return None
    from netdfl.scenario.measured.graph_file import places_in
    from netdfl.topology.files import read_graph

    found = places_in(read_graph(file))
    return [[*found[node]] if node in found else None for node in range(scenario.num_nodes)] if found else None
