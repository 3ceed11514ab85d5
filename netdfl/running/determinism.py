"""The check that a scenario is repeatable: two runs in the simulated world, compared event by event.

The second run is in another process with another `PYTHONHASHSEED` and another number of threads. If it differs, a few
more runs tell whether that comes from `PYTHONHASHSEED`, by which Python orders sets of strings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from netdfl.core.errors import InputError, RunError
from netdfl.record.directory import RunDirectory
from netdfl.record.event_log import first_difference
from netdfl.running.prepare import prepare
from netdfl.running.supervise import supervise
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Scenario
from netdfl.training.unseeded import watched
from netdfl.worlds.catalog import entry_of
from netdfl.worlds.simulated.compute import COMPUTE_FILE

LOG = "event_log.txt"
HASH_SEEDS = ("1", "2", "3", "4", "5")
"""Values of `PYTHONHASHSEED`. Each of them decides which of the two possible orders a set of two strings has."""


@dataclass(frozen=True)
class DeterminismCheck:
    """The outcome of comparing the event logs of two runs of one scenario.

    Attributes:
        hashes: the hashes of the two event logs.
        difference: the first entry in which the logs differ, as text; None: they are equal.
        unseeded: places where a user's code draws random numbers that no seed determines.
        goes_by_sets: whether runs with the same `PYTHONHASHSEED` are equal, and runs with another value differ from
            them, because some code depends on the order of a set of strings, or on `hash`.
    """

    hashes: tuple[str, str]
    difference: str | None
    unseeded: tuple[str, ...] = ()
    goes_by_sets: bool = False


def check_determinism(scenario: Scenario, out: Path) -> DeterminismCheck:
    """Run `scenario` twice below `out`, which must be new or empty, and compare the event logs, which stay there.

    If the logs differ although no code draws random numbers without a seed, `scenario` is run again, with the same and
    with other values of `PYTHONHASHSEED`.

    Raises:
        InputError: the scenario is not for the simulated world, or can't be run.
        RunError: a run in another process failed.
    """
    if not entry_of(scenario).repeatable:
        raise InputError(f"world {scenario.world.kind!r} is not repeatable; check with --on simulated")
    first = run_logged(scenario, out / "first")
    measured = out / "first" / COMPUTE_FILE
    sets = [f"world.compute.file={measured.resolve()}"] if measured.exists() else []

    def run(name: str, hash_seed: str) -> list[str]:
        return _run_elsewhere(scenario, out / "first" / "scenario.yaml", out / name, sets, hash_seed)

    seed, *others = (each for each in HASH_SEEDS if each != os.environ.get("PYTHONHASHSEED"))
    second, *unseeded = run("second", seed)
    difference = first_difference(out / "first" / LOG, out / "second" / LOG)
    by_sets = difference is not None and not unseeded and run("again", seed)[0] == second
    by_sets = by_sets and any(run(f"by-hash-seed-{other}", other)[0] != second for other in others)
    return DeterminismCheck((first, second), difference, tuple(unseeded), by_sets)


def run_logged(scenario: Scenario, out: Path) -> str:
    """Run `scenario` into `out` with its event log kept; return the log's hash."""
    directory = RunDirectory.create(out.parent, scenario.name, scenario.seed, out)
    prepare(scenario, directory)
    outcome = supervise(scenario, directory, keep_log=out / LOG)
    if outcome.error is not None:
        raise outcome.error
    assert outcome.figures.event_log_hash is not None
    return outcome.figures.event_log_hash


def _run_elsewhere(scenario: Scenario, file: Path, out: Path, sets: list[str], hash_seed: str) -> list[str]:
    """Run the scenario in `file` in another process, whose `PYTHONHASHSEED` is `hash_seed`.

    Returns the log's hash, then places that draw unseeded numbers.
    """
    path = os.pathsep.join([str(scenario.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "netdfl.running.determinism", str(file), str(out), *sets],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "2", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RunError(f"a run in another process failed: {done.stderr.strip()}")
    return [str(each) for each in json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    with watched() as places:
        log_hash = run_logged(load(sys.argv[1], sys.argv[3:]), Path(sys.argv[2]))
    print(json.dumps([log_hash, *places]))
