"""Whether what a scenario asks of the disk and the machine is there: what a run would refuse before its round 0."""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.core.errors import DatasetError, InputError, MachineError, Problem, ScenarioError
from netdfl.host.devices import spread
from netdfl.scenario.loading.document import Document, parse
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training
from netdfl.worlds.catalog import entry_of
from netdfl.worlds.forkserver import count_gpus


def check_ready(scenario: Scenario) -> None:
    """Build what every node of the run would build.

    Ports, privileges and Docker are not tried: they may differ when it runs.

    Raises:
        ScenarioError: with the sentences that the run would refuse it with, and where each mistake is written.
    """
    if problems := list(_problems(scenario)):
        raise ScenarioError(problems)


def _problems(scenario: Scenario) -> Iterator[Problem]:
    file = scenario.file
    document = Document("scenario") if file is None else parse(file.read_text(encoding="utf-8"), str(file))
    try:
        entry_of(scenario)
    except InputError as error:
        yield document.problem(("world", "kind"), str(error))
    if not isinstance(scenario.task, Training):
        return
    try:
        _share_out(scenario)
    except DatasetError as error:
        yield document.problem(("task", "dataset"), str(error))
    except InputError as error:
        yield document.problem(("task",), str(error), key=True)
    try:
        device = scenario.task.device
        spread(device, count_gpus() if device.startswith("cuda") else 0, scenario.num_nodes)
    except MachineError as error:
        yield document.problem(("task", "device"), str(error))


def _share_out(scenario: Scenario) -> object:
    from netdfl.core.rng import Streams
    from netdfl.host.task_setup import make_problem

    return make_problem(scenario, Streams(scenario.seed))
