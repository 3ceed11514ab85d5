"""The preparations of a run: checks of the machine, and files that are written before it starts.

A run is refused before its round 0 if the disk or the machine lacks something that its scenario needs. The sources of
the run are recorded, so that a later replay can tell whether they have changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from typing_extensions import TypedDict
from xxhash import xxh3_128_hexdigest

from netdfl.core.errors import DatasetError, InputError, MachineError, Problem, ScenarioError
from netdfl.core.files import read_plain, version_of
from netdfl.core.given_files import given_text
from netdfl.host.plan import spread
from netdfl.record.directory import RunDirectory
from netdfl.record.forms import read_form
from netdfl.record.run import Run
from netdfl.record.sampling import ALL, SAMPLING
from netdfl.running.underlay_file import underlay_form
from netdfl.scenario.build import build_network
from netdfl.scenario.loading.document import Document, parse
from netdfl.scenario.loading.resolved import to_yaml
from netdfl.scenario.model.plugins import ORIGIN, imported_from
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training
from netdfl.worlds.catalog import entry_of
from netdfl.worlds.forkserver import count_gpus

if TYPE_CHECKING:
    from netdfl.host.problem import FleetProblem as TaskOfFleet


def prepare(scenario: Scenario, directory: RunDirectory) -> None:
    """Write the files that precede a run: the resolved scenario, hashes of its sources, and the graph of round 0."""
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


PROVENANCE = "provenance.json"
SCHEMA = "netdfl/provenance/1"
_VERSIONS = ("netdfl", "torch", "numpy")


class Provenance(TypedDict):
    """The JSON keys of `provenance.json`: versions of packages, hashes of the scenario and the user's modules."""

    versions: dict[str, str]
    scenario: str
    modules: dict[str, str]


_FORM: TypeAdapter[Provenance] = TypeAdapter(Provenance)


def write_provenance(scenario: Scenario, directory: RunDirectory) -> None:
    """Write the provenance of the run in `directory`, which must hold its scenario already."""
    came = Path.cwd() if scenario.file is None else scenario.file.parent
    modules = {str(file): _digest(file) for file in imported_from(str(came)) if file.is_file()}
    text = read_plain(directory.path / "scenario.yaml")
    made = {"versions": _versions(), "scenario": xxh3_128_hexdigest(text.encode()), "modules": modules}
    directory.write_json(PROVENANCE, {"schema": SCHEMA} | made)


def what_changed(run: Run) -> list[str]:
    """Return the sources of `run` that have changed, as text; none if they were not recorded.

    Raises:
        InputError: `provenance.json` is damaged.
    """
    made = read_form(run.path / PROVENANCE, _FORM)
    if made is None:
        return []
    changed = (
        [] if made["scenario"] == xxh3_128_hexdigest(run.scenario_text.encode()) else ["its scenario.yaml was edited"]
    )
    for name, digest in made["modules"].items():
        file = Path(name)
        if not file.is_file():
            changed.append(f"{file} is gone")
        elif _digest(file) != digest:
            changed.append(f"{file} was edited")
    return changed


def other_versions(run: Run) -> list[str]:
    """Return a text for each package whose version differs from the one the run used: `torch is 2.11, and was 2.12`."""
    made = read_form(run.path / PROVENANCE, _FORM)
    was: Mapping[str, str] = {} if made is None else made["versions"]
    now = _versions()
    return [f"{name} is {now[name]}, and was {was[name]}" for name in now if was.get(name, now[name]) != now[name]]


def _digest(file: Path) -> str:
    return xxh3_128_hexdigest(file.read_bytes())


def _versions() -> dict[str, str]:
    found = {name: version_of(name) for name in _VERSIONS}
    return {name: version for name, version in found.items() if version is not None}


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
    """Compare faster ways of training with plain PyTorch's in two trial steps; return remarks not made before."""
    from netdfl.host.blueprint import make_algorithm

    if (fit_ways := getattr(problem, "fit_ways", None)) is None:
        return []
    notes: list[str] = fit_ways(make_algorithm(scenario).local)
    return [note for note in notes if not any(note in said for said in scenario.notices)]


def _share_out(scenario: Scenario) -> TaskOfFleet:
    from netdfl.core.rng import Streams
    from netdfl.host.task_setup import make_problem

    return make_problem(scenario, Streams(scenario.seed))
