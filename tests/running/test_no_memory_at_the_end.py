"""No memory is left at a run's end: it has a verdict, a `result.json` with the reason, and an error's exit code."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import pytest

from netdfl.core.errors import InputError, RunError
from netdfl.core.no_memory import is_of_memory
from netdfl.record import database, result
from netdfl.record.judge import ExitCode
from netdfl.record.run import Run, open_run
from netdfl.record.status import FleetStatus
from netdfl.report import html
from netdfl.report.html import write_report
from netdfl.running import judged
from netdfl.running.prepare import check_ready
from netdfl.running.run import run
from netdfl.scenario.load import loads

FLEET = """
schema: netdfl/1
name: end
nodes: 3
rounds: 3
world: {kind: simulated}
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: ring
"""


TRAINS = """
schema: netdfl/1
name: large
nodes: 2
rounds: 1
world: simulated
task: {{dataset: digits, model: {{name: mlp, hidden: [{hidden}]}}}}
algorithm: {{name: dfedavg, lr: 0.1, local_epochs: 1}}
topology: ring
"""


def wrapped() -> Exception:
    """As a query says it."""
    try:
        raise duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate data of size 16.0 MiB")
    except duckdb.Error as error:
        mapped = InputError("the query can't be made")
        mapped.__cause__ = error
        return mapped


ERRORS = {
    "python": MemoryError,
    "duckdb": wrapped,
    "system": lambda: OSError(errno.ENOMEM, "Cannot allocate memory"),
    "torch": lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    "threads": lambda: RuntimeError("can't start new thread"),
    "together": lambda: ExceptionGroup("nodes", [ValueError("x"), MemoryError()]),
}


def failing(make: Callable[[], Exception]) -> Callable[..., NoReturn]:
    def fail(*arguments: Any, **more: Any) -> NoReturn:
        raise make()

    return fail


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_memory_are_known_by_whoever_raised_them(name: str) -> None:
    assert is_of_memory(ERRORS[name]())


def test_other_errors_are_not() -> None:
    assert not any(map(is_of_memory, (ValueError("memory"), OSError(errno.ENOSPC, "No space left"), KeyError("x"))))


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ((judged, "summarize"), "duckdb"),
        pytest.param((judged, "summarize"), "python", marks=pytest.mark.soak),
        ((judged, "open_run"), "python"),
        pytest.param((judged, "open_run"), "duckdb", marks=pytest.mark.soak),
        ((Run, "roll_up"), "python"),
        pytest.param((Run, "roll_up"), "duckdb", marks=pytest.mark.soak),
    ],
)
def test_a_run_that_can_not_be_judged_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], name: str
) -> None:
    once = iter([failing(ERRORS[name])])
    as_it_is = getattr(*place)
    monkeypatch.setattr(*place, lambda *given, **more: next(once, as_it_is)(*given, **more))
    finished = run(loads(FLEET), out=tmp_path / "run", page=False)
    assert finished.exit_code is ExitCode.BROKE
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert found["verdict"] == "unknown"
    (reason,) = found["reasons"]
    assert reason.startswith("no memory was left to judge the run")
    assert ("(MemoryError)" if name == "python" else "(OutOfMemoryException: Out of Memory Error: failed") in reason
    assert found["messages"]["sent"] == 18
    assert reason in str(finished)
    assert reason in write_report(finished.path).read_text()


def test_its_result_has_what_every_result_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(loads(FLEET), out=tmp_path / "whole", page=False).result
    monkeypatch.setattr(judged, "summarize", failing(MemoryError))
    assert run(loads(FLEET), out=tmp_path / "run", page=False).result.keys() == whole.keys()


def test_why_a_run_broke_before_is_told_too(tmp_path: Path) -> None:
    facts = judged.facts_of(loads(FLEET), 1.0, broke="node 1 broke: its disk is full")
    assert result.unjudged(facts, "no memory", {}).judgement.reasons == ["node 1 broke: its disk is full; no memory"]


def test_a_run_without_memory_for_its_page_keeps_its_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "render", failing(MemoryError))
    again = f"`netdfl report {tmp_path / 'run'}` writes it"
    told = f"no memory was left to write report.html; {again}; the verdict was done"
    with pytest.raises(RunError, match=told):
        run(loads(FLEET), out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["verdict"] == "done"


def test_memory_that_is_gone_while_the_fleet_runs_ends_it_with_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FleetStatus, "to_text", partial(bytearray, 1 << 62))
    finished = run(loads(FLEET), out=tmp_path / "run", page=False)
    assert finished.exit_code is ExitCode.BROKE
    assert finished.result["reasons"][0].startswith("no memory was left while the fleet ran")


def test_what_is_no_lack_of_memory_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "summarize", failing(lambda: ZeroDivisionError("of netdfl's own")))
    with pytest.raises(ZeroDivisionError):
        run(loads(FLEET), out=tmp_path / "run", page=False)


def test_a_model_that_memory_has_no_room_for_is_refused_with_its_place() -> None:
    scenario = loads(TRAINS.format(hidden=1 << 40))
    with pytest.raises(InputError, match=r"task: no memory was left .* \(RuntimeError: .*\); take a smaller model"):
        check_ready(scenario)


@pytest.mark.parametrize("world", ["simulated", pytest.param("processes", marks=pytest.mark.soak)])
def test_a_fleet_with_such_a_model_does_not_start_and_says_why(world: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^task: no memory was left"):
        run(loads(TRAINS.format(hidden=1 << 40).replace("simulated", world)), out=tmp_path / "run")


def test_reading_a_record_takes_no_more_memory_on_a_machine_with_many_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "cores", lambda: 256)
    path = run(loads(FLEET), out=tmp_path / "run", page=False).path
    row = {"at_s": 1.0, "node": 1, "round": 0, "name": "theirs", "value": 0.5}
    for file in range(100, 228):
        (path / "store" / f"metrics-{file}.jsonl").write_text(json.dumps(row) + "\n")
    assert open_run(path).rows("SELECT count(*) FROM metrics WHERE name = 'theirs'") == [(128,)]
