"""The running of an exploration's trials (runs with drawn faults) on a cluster, by the runner of a parameter study.

A batch of trials is cut into parts of a fixed size, and each part is one task on the cluster. The parts end in any
order: the search sorts results by number, so it does not depend on which machine makes which trial. Scenarios of
failing runs are shrunk on this machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import TypeAdapter

from netdfl.core.errors import RunError
from netdfl.core.files import write_whole, writing
from netdfl.explore.cause import find_predicates
from netdfl.explore.execute import Executor
from netdfl.explore.pool import RunAll, TrialResult, TrialRunner
from netdfl.explore.trial import Trial
from netdfl.scenario.loading.resolved import to_yaml
from netdfl.scenario.loading.sources import Digests, files_of
from netdfl.scenario.model.schema import Scenario
from netdfl.study.runners.base import CellOrder, RunnerChoice, StudyOrder, last_printed

PART = 8
"""Number of trials that one task on a cluster makes: a quarter of a batch of the search."""
EXPLORED, TRIALS, RESULTS = "explored.yaml", "trials", "results.json"
_TRIALS, _RESULTS = TypeAdapter(list[Trial]), TypeAdapter(list[TrialResult])


@contextmanager
def engine_workers(scenario: Scenario, folder: Path, engine: RunnerChoice) -> Iterator[RunAll]:
    """Yield a function that runs trials of `scenario` on other machines by `engine`; results come in any order.

    Tasks read and write their files in `folder`, which belongs to this exploration. Raises RunError if a task did not
    end.
    """
    place, sources = folder / TRIALS, files_of(scenario)  # as all batches have them

    def run_all(trials: Sequence[Trial]) -> Iterator[TrialResult]:
        parts = [trials[first : first + PART] for first in range(0, len(trials), PART)]
        if not parts:
            return
        orders = [_order(folder, place, scenario.world.kind, part, sources) for part in parts]
        yield from _run(engine, orders)

    with writing(folder, RunError):
        write_whole(folder / EXPLORED, to_yaml(scenario).encode())
        place.mkdir(exist_ok=True)
    try:
        yield run_all
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _order(folder: Path, place: Path, world: str, part: Sequence[Trial], sources: Digests) -> CellOrder:
    work, argument = f"{__name__}:{run_trials.__name__}", _TRIALS.dump_json(list(part)).decode()
    path = (place / f"{part[0].number}").absolute()
    return CellOrder((folder / EXPLORED).absolute(), (), path, world, 0.0, work, argument, sources)


def _run(engine: RunnerChoice, orders: Sequence[CellOrder]) -> Iterator[TrialResult]:
    """Run the tasks that `orders` describe; yield the results of their trials. Raises RunError if one is missing."""
    runner, missing = engine.make(), {order.path for order in orders}
    try:
        runner.start(StudyOrder(orders, engine.jobs or len(orders), needs=engine.needs))
        for path, code in runner.ended():
            missing.discard(path)
            yield from _results(path, code)
    except BaseException:
        runner.stop()
        raise
    for path in missing:
        yield from _results(path, None)


def _results(path: Path, code: int | None) -> Sequence[TrialResult]:
    if code == 0:
        return _RESULTS.validate_json((path / RESULTS).read_bytes())
    why = last_printed(path) or "its task never told its end"
    raise RunError(f"trials {path.name} and those behind it were not made: {why}; what was found is kept")


def run_trials(order: CellOrder) -> int:
    """Run the trials of an order on this machine, write their results to its directory, and return exit code 0."""
    scenario = order.load()
    trial_runner = TrialRunner(scenario, find_predicates(scenario), Executor())
    results = [trial_runner.run(trial) for trial in _TRIALS.validate_json(order.argument)]
    order.path.mkdir(parents=True, exist_ok=True)
    write_whole(order.path / RESULTS, _RESULTS.dump_json(results))
    return 0
