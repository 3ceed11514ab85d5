"""The catalog of all checks beyond the schema, for mistakes that only show between two parts of a scenario."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from netdfl.core.errors import InputError, Problem
from netdfl.core.rng import Streams
from netdfl.record.judge import own_figure
from netdfl.scenario.checks.compression import compression_fits
from netdfl.scenario.checks.finding import Check, CheckFinding
from netdfl.scenario.checks.graph import (
    graph_fits,
    selection_chooses,
    server_and_star,
    somebody_to_talk_to,
    task_has_pictures,
)
from netdfl.scenario.checks.links import (
    events_can_be,
    layer_exists,
    links_mean_something,
    messages_exist,
    packets_can,
)
from netdfl.scenario.checks.survival import joins, rejoins, survives
from netdfl.scenario.checks.trials_with_data import with_data
from netdfl.scenario.checks.trials_without_data import without_data
from netdfl.scenario.checks.waiting import missing_is_treated, quorum_can_come, stale_acts, waits_can_end
from netdfl.scenario.loading.document import Document
from netdfl.scenario.model.choices import nearest
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import METRICS, Train, Training
from netdfl.scenario.model.world import SimulatedOptions

_GROUP = re.compile(r"[A-Za-z][\w-]*")
_TAKEN = ("default", "all", "none")
_OF_A_TEST_SET = ("test_accuracy", "mean_local", "mean_personal", "test_loss")


def nodes_exist(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that every node that the scenario names exists."""
    world, died = scenario.world, scenario.expect.died
    named: list[tuple[tuple[str, ...], list[int]]] = [(("groups", name), of) for name, of in scenario.groups.items()]
    if isinstance(died, list):
        named.append((("expect", "died"), died))
    if isinstance(world, SimulatedOptions):
        named.append((("world", "as_others"), world.as_others))
        named.append((("world", "no_deadline"), world.no_deadline))
        named.append((("world", "keeps_state"), world.keeps_state))
        named += [(("world", "stragglers", "nodes"), slow.nodes) for slow in (world.stragglers,) if slow is not None]
    for path, nodes in named:
        if missing := sorted({node for node in nodes if node >= scenario.num_nodes}):
            what = f"node {missing[0]} does not exist" + (f", nor do {len(missing) - 1} more" if missing[1:] else "")
            nodes_are = f"nodes are 0 to {scenario.num_nodes - 1}"
            yield CheckFinding(path, what, "correct the numbers, or raise `nodes`", nodes_are)


def one_length(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that only one of `local_epochs` and `local_steps`, which both set the length of a local round, is given.

    A scenario with all defaults written out has both, so `local_epochs` at its default is no contradiction.
    """
    part = scenario.algorithm
    given = {key: getattr(part, key) for key in ("local_epochs", "local_steps") if key in part.model_fields_set}
    epochs, steps = given.get("local_epochs"), given.get("local_steps")
    if None not in (epochs, steps) and epochs != type(part).model_fields["local_epochs"].get_default():
        what = f"local_epochs {epochs} and local_steps {steps} both say how long a local round is"
        yield CheckFinding(("algorithm", "local_epochs"), what, "leave one of them out", key=True)


def groups_are_apart(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that every group of nodes is not empty and has a usable name, and that no node is in two groups."""
    home: dict[int, str] = {}
    for name, nodes in scenario.groups.items():
        path = ("groups", name)
        if not nodes:
            yield CheckFinding(path, f"the group {name!r} has no nodes", "give it some, or remove it")
        if name in _TAKEN or not _GROUP.fullmatch(name):
            what = f"{name!r} can't name a group: links and events would not know it from something else"
            yield CheckFinding(path, what, "use letters, digits and _, with a letter first", key=True)
        if twice := sorted({node for node in nodes if home.setdefault(node, name) != name}):
            what = f"node {twice[0]} is in group {home[twice[0]]} and in group {name}"
            yield CheckFinding(path, what, "groups don't overlap: leave it in one")


def figures_come(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that each metric that `expect` bounds is measured with the scenario's task and in its world.

    An example is `virtual_duration_s`, which only the simulated world measures.
    """
    kind = scenario.task.kind
    task = scenario.task
    for name in scenario.expect.bounded:
        if kind in ("consensus", "quadratic", "sized") and name in _OF_A_TEST_SET:
            what, remedy = f"{name} is never measured: task {kind} has no test set", "bound error, or use task: train"
        elif (stem := own_figure(name)) and not _has_figure(task, stem):
            what = f"{name} is never measured: models are not judged by {stem!r}"
            remedy = nearest(stem, _figures(task)) if isinstance(task, Train) else "bound error, or train a model"
        elif isinstance(task, Training) and name == "error":
            what, remedy = "error is never measured: it is the distance to the answer of a toy task", "bound test_loss"
        elif name == "virtual_duration_s" and scenario.world.kind != "simulated":
            what, remedy = f"{name} is never measured: {scenario.world.kind} runs on the real clock", "bound duration_s"
        else:
            continue
        yield CheckFinding(("expect", name), what, remedy, key=True)


def _has_figure(task: object, stem: str) -> bool:
    """Return whether `task` may measure the metric `stem`. Metrics of a user's own task are unknown before a run."""
    return isinstance(task, Training) and (not isinstance(task, Train) or stem in _figures(task))


def _figures(task: Train) -> list[str]:
    """Return the names of the metrics by which models are evaluated: the task's named ones, or else all known ones."""
    named = [part.kind.rpartition(":")[2].rpartition(".")[2] for part in task.metrics]
    return ["loss", *(named or METRICS.names())]


def local_sample(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that `evaluation.local`, the number of local models to evaluate, is no larger than the number of nodes."""
    local = scenario.evaluation.local
    if isinstance(local, int) and local > scenario.nodes:
        there_are = f"there are {scenario.nodes}"
        yield CheckFinding(("evaluation", "local"), f"a sample of {local} local models", "use all", there_are)


def compute_can_be(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that the virtual duration of local rounds can be drawn, and that a table of durations has every client."""
    try:
        if isinstance(scenario.world, SimulatedOptions):
            model = scenario.world.compute.build(Streams(scenario.seed))
            for node in range(scenario.nodes if scenario.world.compute.kind == "table" else 0):
                model(node, 0)
    except (ValueError, InputError) as exc:
        yield CheckFinding(("world", "compute"), str(exc))


def sizes_are_claimed(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that the task `sized`, whose messages only claim a size, has simulated links and no compression."""
    if scenario.task.kind != "sized":
        return
    if not isinstance(scenario.world, SimulatedOptions):
        what = f"messages of task sized only claim their size, and {scenario.world.kind} sends real bytes"
        yield CheckFinding(("task", "kind"), what, "use world: simulated, or task: {kind: consensus, dim: ...}")
    if scenario.compression is not None:
        what = "compression has four numbers to work on, which says nothing of a whole model"
        yield CheckFinding(("compression",), what, "leave it out, and give the compressed size as task.bytes", key=True)


_GRAPH = "nodes seed algorithm topology"
CHECKS: tuple[tuple[Check, str], ...] = (
    (nodes_exist, "nodes algorithm groups expect world"),
    (groups_are_apart, "groups"),
    (figures_come, "expect task world"),
    (somebody_to_talk_to, "nodes algorithm topology"),
    (server_and_star, "algorithm topology"),
    (graph_fits, f"{_GRAPH} rounds"),
    (compression_fits, f"{_GRAPH} rounds task compression wait"),
    (waits_can_end, f"{_GRAPH} rounds wait"),
    (one_length, "algorithm"),
    (survives, f"{_GRAPH} compression wait delivery events"),
    (rejoins, "algorithm events"),
    (joins, "algorithm events nodes"),
    (missing_is_treated, f"{_GRAPH} compression wait"),
    (quorum_can_come, f"{_GRAPH} wait"),
    (stale_acts, f"{_GRAPH} compression wait"),
    (task_has_pictures, "task algorithm"),
    (local_sample, "nodes evaluation"),
    (events_can_be, "nodes rounds seed algorithm groups events underlay"),
    (layer_exists, "world"),
    (compute_can_be, "world seed"),
    (sizes_are_claimed, "task world compression"),
    (packets_can, "nodes rounds seed algorithm groups events links world underlay"),
    (links_mean_something, "nodes algorithm groups links"),
    (messages_exist, "rounds links"),
    (selection_chooses, _GRAPH),
)
"""The checks, and the top-level keys that each check reads: a check is skipped while one of its keys is wrong."""


def find_problems(scenario: Scenario, document: Document, wrong: frozenset[str] = frozenset()) -> list[Problem]:
    """Return every mistake that the checks find in `scenario`; skip checks that read a top-level key in `wrong`."""
    found: list[CheckFinding] = []
    if wrong.isdisjoint(("nodes", "seed", "algorithm")):
        found += without_data(scenario)
        wrong |= {str(finding.path[0]) for finding in found}
    for check, reads in CHECKS:
        if wrong.isdisjoint(reads.split()):
            found += check(scenario)
    return _placed(found, document)


def find_problems_with_data(scenario: Scenario, document: Document) -> tuple[list[Problem], list[str]]:
    """Try the components that a user wrote (such as a dataset) on the data; return their mistakes, and notices.

    Both are empty if the data is missing.
    """
    found = list(with_data(scenario))
    notices = dict.fromkeys("; ".join(filter(None, (each.what, each.remedy))) for each in found if each.notice)
    return _placed((each for each in found if not each.notice), document), list(notices)


def _placed(found: Iterable[CheckFinding], document: Document) -> list[Problem]:
    return [document.problem(each.path, each.what, each.expected, each.remedy, key=each.key) for each in found]
