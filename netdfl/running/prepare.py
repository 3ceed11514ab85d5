"""The preparations of a run: checks of the machine, and files that are written before it starts.

A run is refused before its round 0 if the disk or the machine lacks something that its scenario needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from netdfl.core.errors import DatasetError, InputError, MachineError, Problem, ScenarioError
from netdfl.core.given_files import given_text
from netdfl.host.plan import spread
from netdfl.record.directory import RunDirectory
from netdfl.record.sampling import ALL, SAMPLING
from netdfl.running.provenance import write_provenance
from netdfl.running.underlay_file import underlay_form
from netdfl.scenario.build import build_network
from netdfl.scenario.loading.document import Document, parse
from netdfl.scenario.loading.resolved import to_yaml
from netdfl.scenario.model.plugins import ORIGIN, origin_form
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training
from netdfl.worlds.catalog import entry_of
from netdfl.worlds.forkserver import count_gpus

if TYPE_CHECKING:
    from netdfl.host.problem import FleetProblem as TaskOfFleet


def prepare(scenario: Scenario, directory: RunDirectory) -> None:
    """Write the files that precede a run: the resolved scenario, digests of its sources, and the graph of round 0."""
    directory.write("scenario.yaml", to_yaml(scenario))
    if not (directory.path / ORIGIN).exists():
        directory.write_json(ORIGIN, origin_form(scenario.folder))
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
    if (underlay := underlay_form(scenario)) is not None:
        directory.write_json("underlay.json", underlay)


def _places(scenario: Scenario) -> list[list[float] | None] | None:
    """Return each node's latitude and longitude, from the scenario or its topology's file; None if unknown."""
    if scenario.report.places:
        return scenario.report.places
    file = getattr(scenario.topology, "file", None)
    if scenario.topology.kind not in ("graphml", "gml") or file is None:
        return None
    from netdfl.scenario.measured.graph_file import places_in
    from netdfl.topology.files import read_graph

    found = places_in(read_graph(file, {"gml": "GML"}.get(scenario.topology.kind, "GraphML")))
    return [[*found[node]] if node in found else None for node in range(scenario.num_nodes)] if found else None


def check_ready(scenario: Scenario) -> Sequence[str]:
    """Build everything that a node of the run would build; return remarks on the data.

    Ports, privileges and Docker are not tried: they may differ when the scenario is run.

    Raises:
        ScenarioError: with the sentences by which the run would be refused, and the place of each mistake.
    """
    notes: list[str] = []
    if problems := list(_problems(scenario, notes)):
        raise ScenarioError(problems)
    return notes


def _problems(scenario: Scenario, notes: list[str]) -> Iterator[Problem]:
    file = scenario.file
    document = Document("scenario") if file is None else parse(given_text(file), str(file))
    try:
        entry_of(scenario)
    except InputError as error:
        yield document.problem(("world", "kind"), str(error))
    if not isinstance(scenario.task, Training):
        return
    try:
        problem = _share_out(scenario)
        check_files_here(scenario, problem)
        notes += problem.notes
        notes += _try_steps(scenario, problem)
    except DatasetError as error:
        yield document.problem(("task", "dataset"), str(error))
    except InputError as error:
        yield document.problem(("task",), str(error), key=True)
    try:
        device = scenario.task.device
        spread(device, count_gpus() if device.startswith("cuda") else 0, scenario.num_nodes)
    except MachineError as error:
        yield document.problem(("task", "device"), str(error))


def check_files_here(scenario: Scenario, problem: object) -> None:
    """Check each client's own file where all clients live on this machine. Raises DatasetError."""
    check = getattr(problem, "check_files", None)
    if check is not None and scenario.world.kind in ("simulated", "processes", "namespaces"):
        check(range(scenario.nodes))


def _try_steps(scenario: Scenario, problem: TaskOfFleet) -> list[str]:
    """Compare faster ways of training with plain PyTorch's in two trial steps; return remarks about them.

    Remarks that were made when the scenario was loaded are left out.
    """
    from netdfl.host.blueprint import make_algorithm

    if (fit_ways := getattr(problem, "fit_ways", None)) is None:
        return []
    notes: list[str] = fit_ways(make_algorithm(scenario).local)
    return [note for note in notes if not any(note in said for said in scenario.notices)]


def _share_out(scenario: Scenario) -> TaskOfFleet:
    from netdfl.core.rng import Streams
    from netdfl.host.task_setup import make_problem

    return make_problem(scenario, Streams(scenario.seed))
