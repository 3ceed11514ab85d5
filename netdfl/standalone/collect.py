"""The command `netdfl collect`: makes one run of the records of a fleet without a supervisor, and gives its verdict.

The source files are not changed. Models are read one after the other, so at most two are in memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import split_figure
from netdfl.core.errors import InputError
from netdfl.core.files import check_plain, read_plain
from netdfl.core.types import NodeId
from netdfl.core.versions import Versions, mixed, taken
from netdfl.diagnosis.account import waits_in_vain
from netdfl.diagnosis.ending import is_over, not_ended, without_server
from netdfl.diagnosis.fidelity import judge_fidelity, judge_packets
from netdfl.diagnosis.finding import Finding, by_verdict, keep_stall
from netdfl.diagnosis.outages import Outages
from netdfl.diagnosis.snapshot import State
from netdfl.host.blueprint import Blueprint
from netdfl.host.judging import judge_files
from netdfl.host.models import snapshot_path
from netdfl.record.directory import RunDirectory
from netdfl.record.forms import RESULT, damaged, read_form
from netdfl.record.messages import count_messages
from netdfl.record.observations import RunFacts
from netdfl.record.provenance import PROVENANCE
from netdfl.record.run import Run, open_run
from netdfl.record.status import FleetStatus, NodeStatus, Phase
from netdfl.record.store import STORE, StoreWriter
from netdfl.running.judged import FinishedRun, facts_of, finish
from netdfl.running.prepare import prepare
from netdfl.scenario.load import load, loads
from netdfl.scenario.loading.identity import is_of
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import ProcessesOptions, RealOptions
from netdfl.standalone.accounts import Accounts, find_stalls, read_probed
from netdfl.standalone.record import NODE_FILE, NodeRecord, NodeStage
from netdfl.supervisor.stalls import settings_of

PACKETS = "packets.json"
EACH_PROVENANCE = "provenance"
"""The folder of a collected run that has a file for each node: the software versions and sources that it ran on."""
_PHASES: Mapping[NodeStage, Phase] = {
    NodeStage.FINISHED: Phase.FINISHED,
    NodeStage.CRASHED: Phase.CRASHED,
    NodeStage.STOPPED: Phase.RUNNING,
}


class NodeFolder(NamedTuple):
    """The folder of one node, and the last version of its `node.json`."""

    folder: Path
    record: NodeRecord


def collect(
    folder: str | Path,
    *,
    out: str | Path | None = None,
    root: str | Path = "runs",
    page: bool = True,
    note: Callable[[str], None] = lambda text: None,
    links: Mapping[str, Any] | None = None,
    deaths: Mapping[NodeId, str] | None = None,
) -> FinishedRun:
    """Create one run directory from the nodes' folders, found anywhere below `folder`, and judge it.

    Args:
        folder: Holds a folder of each node, and may hold the scenario.
        out: The run directory; by default a new one below `root`.
        root: The folder of runs.
        page: Whether to write `report.html`.
        note: Called with sentences for the user, such as how a node died.
        links: The layer (messages or packets) on which links act, and facts about a packet forwarder; by default the
            scenario's layer, with the counts of packets in `packets.json`, if that lies in `folder`.
        deaths: Reasons why nodes died, by node, that the nodes' files do not have, such as Docker's.

    Raises:
        InputError: there are no nodes, they are not of one run, or their files are damaged.
    """
    parts = find_parts(Path(folder))
    scenario = _load(Path(folder), parts)
    blueprint = Blueprint.of(scenario)
    if foreign := sorted(set(parts) - set(blueprint.node_ids)):
        raise InputError(f"{parts[foreign[0]].folder} is of node {foreign[0]}, which {scenario.name} has not")
    directory = replace(RunDirectory.create(root, scenario.name, scenario.seed, out), page=page)
    prepare(scenario, directory)
    with damaged(Path(folder), "gathered"):
        return _gather(Path(folder), parts, blueprint, directory, note, links, deaths)


def _gather(
    folder: Path,
    parts: Mapping[NodeId, NodeFolder],
    blueprint: Blueprint,
    directory: RunDirectory,
    note: Callable[[str], None],
    links: Mapping[str, Any] | None,
    deaths: Mapping[NodeId, str] | None,
) -> FinishedRun:
    scenario = blueprint.scenario
    _copy(parts, directory.path)
    for sentence in mixed(software_of(parts)):
        note(sentence)
    if openly := sorted(node for node, part in parts.items() if part.record.open):
        note(f"nodes {openly} had no secret of their fleet: whoever reached their ports could take part")
    found = open_run(directory.path)
    duration_s = _duration_s(parts)
    with StoreWriter(directory.path, "fleet") as store:
        store.event(0, None, 0, "start", nodes=scenario.num_nodes)
        _judge_models(blueprint, found, store, parts)
        _record_deaths(_find_deaths(blueprint, parts, deaths or {}), store, note)
        store.event(int(duration_s * NS_PER_S), None, scenario.rounds, "finish")
    _describe(blueprint, directory, parts, found, duration_s)
    stalled, over = _find_stalls(blueprint, directory, parts, note)
    finished = [node for node, part in parts.items() if part.record.stage is NodeStage.FINISHED]
    stalled = stalled or read_probed(found, finished)
    interrupted = not over and any(part.record.stage is NodeStage.STOPPED for part in parts.values())
    links = dict(links or _links(folder, scenario, directory))
    facts = _facts(
        scenario,
        found,
        parts,
        duration_s,
        links,
        interrupted=interrupted,
        unfinished=_unfinished(blueprint, parts),
        **by_verdict(stalled),
    )
    return finish(directory, facts)


def find_parts(folder: Path) -> dict[NodeId, NodeFolder]:
    """Return every node's folder below `folder`. Raises InputError if they belong to different fleets."""
    parts: dict[NodeId, NodeFolder] = {}
    for path in sorted(folder.rglob(NODE_FILE)):
        check_plain(path.parent)
        record = NodeRecord.read(path.parent)
        if record is None or record.stage is NodeStage.GATHERING:
            continue
        part = parts.setdefault(record.node, NodeFolder(path.parent, record))
        if part.folder != path.parent:
            raise InputError(f"{part.folder} and {path.parent} are both of node {record.node}; keep one")
    if not parts:
        raise InputError(f"{folder} holds no {NODE_FILE} of a node that began; name the folder above the nodes' --out")
    runs = {part.record.run_id for part in parts.values()}
    if len(runs) > 1:
        listed = ", ".join(f"node {node}: {part.record.run_id}" for node, part in sorted(parts.items()))
        raise InputError(f"the folders below {folder} are of {len(runs)} runs ({listed}); keep those of one")
    return dict(sorted(parts.items()))


def _load(folder: Path, parts: Mapping[NodeId, NodeFolder]) -> Scenario:
    """Return the scenario that the nodes ran: the file in `folder`, or a node's own copy if that file differs."""
    first = next(iter(parts.values()))
    given = folder / "scenario.yaml"
    if given.is_file():
        scenario = load(given)
        if is_of(scenario, first.record.scenario_hash):
            return scenario
    text = read_plain(first.folder / "scenario.yaml")
    return loads(text, file=str(first.folder / "scenario.yaml"), directory=folder)


def _copy(parts: Mapping[NodeId, NodeFolder], target: Path) -> None:
    for part in parts.values():
        for name in (STORE, "models", "logs"):
            for file in sorted(each for each in (part.folder / name).glob("*") if each.is_file()):
                (target / name).mkdir(exist_ok=True)
                shutil.copyfile(file, target / name / file.name)
        if (part.folder / PROVENANCE).is_file():
            (target / EACH_PROVENANCE).mkdir(exist_ok=True)
            shutil.copyfile(part.folder / PROVENANCE, target / EACH_PROVENANCE / f"{part.record.node:03d}.json")


def _duration_s(parts: Mapping[NodeId, NodeFolder]) -> float:
    """Return the seconds from the common start to the end of the last node.

    If any node has finished, only finished nodes count.
    """
    records = [part.record for part in parts.values()]
    ended = [record for record in records if record.stage is NodeStage.FINISHED] or records
    return max(record.at_s or 0.0 for record in ended)


def _judge_models(blueprint: Blueprint, found: Run, store: StoreWriter, parts: Mapping[NodeId, NodeFolder]) -> None:
    """Record the metrics of every round's average model, at the time when the last node ended the round.

    `found` is the collected run, `parts` has the nodes' folders; the metrics go into `store`.
    """
    ended = dict(found.rows("SELECT round, max(at_s) FROM metrics WHERE name = 'round_s' GROUP BY round"))
    with _one_thread(blueprint):
        for round in filter(blueprint.evaluates, range(blueprint.scenario.rounds)):
            paths = {node: snapshot_path(part.folder, round, node) for node, part in parts.items()}
            paths = {node: path for node, path in paths.items() if path.is_file()}
            if not paths:
                continue
            at_ns = int(ended.get(round, 0.0) * NS_PER_S)
            if left_out := sorted(set(blueprint.evaluated) - set(paths)):
                store.event(at_ns, None, round, "left_out", nodes=left_out)
            for name, value in judge_files(blueprint, paths).items():
                figure, node = split_figure(name)
                store.metrics(at_ns, node, round, {figure: value})


@contextmanager
def _one_thread(blueprint: Blueprint) -> Iterator[None]:
    """Limit torch to one thread, as other worlds do for evaluation, so that the metrics are the same."""
    if blueprint.plain:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _record_deaths(
    deaths: Mapping[NodeId, tuple[NodeFolder | None, str]], store: StoreWriter, note: Callable[[str], None]
) -> None:
    for node, (part, reason) in deaths.items():
        at_ns = 0 if part is None else int((part.record.at_s or 0) * NS_PER_S)
        store.event(at_ns, node, 0 if part is None else part.record.round, "died", reason=reason)
        note(f"node {node}: {reason}")


def _find_deaths(
    blueprint: Blueprint, parts: Mapping[NodeId, NodeFolder], known: Mapping[NodeId, str]
) -> dict[NodeId, tuple[NodeFolder | None, str]]:
    """Return the folder (None: there is none) of each node that died, and the reason; reasons in `known` go first."""
    found = {node: (parts.get(node), _cause(blueprint, parts.get(node))) for node in blueprint.node_ids}
    return {node: (part, known.get(node, cause)) for node, (part, cause) in found.items() if cause}


def _cause(blueprint: Blueprint, part: NodeFolder | None) -> str:
    """Return the reason why a node counts as dead; empty if it does not, or if its own record states it."""
    if part is None:
        return "it left no record"
    record = part.record
    if record.stage is NodeStage.RUNNING:
        return f"it never reported an end; the last that it wrote is of round {record.round}"
    if record.stage is NodeStage.CRASHED and record.planned_return(blueprint.schedule) is not None:
        return f"it crashed in round {record.round}, as scripted, and nobody started it again"
    return ""


def _links(folder: Path, scenario: Scenario, directory: RunDirectory) -> dict[str, Any]:
    """Return the layer on which links act and, if a packet forwarder left a file, its counts.

    Its counts by edge are copied to `directory`.
    """
    links: dict[str, Any] = {"layer": scenario.world.loss_layer}
    if (folder / PACKETS).is_file():
        counted = read_form(folder / PACKETS, RESULT)
        links |= counted or {}
        directory.write_json(PACKETS, links.pop("edges", {}))
    return links


def _find_stalls(
    blueprint: Blueprint, directory: RunDirectory, parts: Mapping[NodeId, NodeFolder], note: Callable[[str], None]
) -> tuple[list[Finding], bool]:
    """Return the stalls in which the fleet was when a user stopped nodes, and whether the run was over by then.

    It was over if no stopped node could have continued, so that stopping them changed nothing.
    """
    stopped = [node for node, part in parts.items() if part.record.stage is NodeStage.STOPPED]
    if not stopped:
        return [], False
    ended = [part for part in parts.values() if part.record.stage in (NodeStage.STOPPED, NodeStage.FINISHED)]
    accounts = {p.record.node: said for p in ended if (said := Accounts.read(p.folder)) is not None}
    outages, detector = Outages(blueprint.schedule, blueprint.links.link), blueprint.scenario.failure_detector.kind
    allows = settings_of(blueprint.scenario, launched=False)
    stalled, snapshot = find_stalls(accounts, blueprint.node_ids, outages, detector, allows)
    for finding in stalled:
        note(("suspected: " if finding.suspected else "") + finding.text)
        keep_stall(directory, finding, snapshot)
    return stalled, is_over(stalled, snapshot, stopped)


def _unfinished(blueprint: Blueprint, parts: Mapping[NodeId, NodeFolder]) -> list[str]:
    """Return sentences about clients that left because their server was done, although they could have continued.

    One more sentence is about a server that crashed.
    """
    server, rounds = blueprint.network.server, blueprint.scenario.rounds
    if server is None:
        return []
    left = {}
    ended = (NodeStage.FINISHED, NodeStage.CRASHED)
    without = server not in parts or parts[server].record.stage in ended  # else nobody but the server may say so
    for node, part in parts.items():
        said, record = Accounts.read(part.folder), part.record
        if record.stage is NodeStage.FINISHED and said is not None and said.last.state is not State.FINISHED:
            if not without or not waits_in_vain(said.last, server):
                left[node] = record.round
    crashed = [
        part.record.round for node, part in parts.items() if node == server and part.record.stage is NodeStage.CRASHED
    ]
    return [*not_ended(left, rounds), *(without_server(server, round, rounds) for round in crashed)]


def _describe(
    blueprint: Blueprint, directory: RunDirectory, parts: Mapping[NodeId, NodeFolder], found: Run, duration_s: float
) -> None:
    """Write the files that a supervisor would write next to the run's record: `fleet.json` and others."""
    scenario = blueprint.scenario
    ((nbytes,),) = found.rows("SELECT coalesce(sum(nbytes), 0)::BIGINT FROM round_totals")
    status = FleetStatus(
        scenario.name,
        scenario.world.kind,
        scenario.algorithm.kind,
        scenario.rounds,
        elapsed_s=duration_s,
        bytes_sent=nbytes,
        messages=count_messages(found).counts,
    )
    for node, part in parts.items():
        record = part.record
        phase = _PHASES.get(record.stage, Phase.DIED)
        status.nodes[node] = NodeStatus(node, record.pid, record.address, record.round, phase, record.loss)
    directory.write("fleet.json", status.to_text())
    partition = blueprint.problem.partition()
    if partition is not None:
        directory.write_json("partition.json", partition)
    if blueprint.schedule:
        directory.write_events([event.to_json() for event in blueprint.schedule])


def software_of(parts: Mapping[NodeId, NodeFolder]) -> dict[NodeId, Versions]:
    """Return the versions of software that each node reported."""
    return {node: taken(part.record.versions) for node, part in parts.items()}


def _facts(
    scenario: Scenario,
    found: Run,
    parts: Mapping[NodeId, NodeFolder],
    duration_s: float,
    links: Mapping[str, Any],
    **more: Any,
) -> RunFacts:
    options = scenario.world if isinstance(scenario.world, RealOptions) else ProcessesOptions.model_validate({})
    bound = options.fidelity
    fidelity = judge_fidelity(found, relative=bound.relative, slack_ns=bound.slack)
    broke = (
        f"node {n} broke: {part.record.reason}" for n, part in parts.items() if part.record.stage is NodeStage.BROKE
    )
    return facts_of(
        scenario,
        duration_s,
        fidelity=fidelity.summary,
        fidelity_missed=fidelity.missed or (judge_packets(links) if scenario.links else ""),
        links=links,
        broke=next(broke, ""),
        software=software_of(parts),
        **more,
    )
