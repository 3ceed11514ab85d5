"""What counts as found, and what a finding becomes: predicates, bugs of netdfl itself, one line in a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planted import BUGS

import netdfl
import netdfl.testing
from netdfl.core.errors import InputError
from netdfl.explore.cause import cause_of
from netdfl.explore.execute import Executor
from netdfl.explore.explore import Budget, Exploration, by_rate
from netdfl.explore.mutations import draw_schedule
from netdfl.explore.shrink import Shrinker
from netdfl.explore.trial import variant
from netdfl.host.network import PausableSink

PREDICATES = '''
def late(run):
    """More than one message came late."""
    return sum(message.fate == "late" for message in run.rows.messages) > 1


def wrong(run):
    return run.no_such_thing


number = 3
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "looks.py").write_text(PREDICATES)
    return tmp_path


def write(folder: Path, text: dict[str, Any], **explore: object) -> Path:
    from ruamel.yaml import YAML

    file = folder / "it.yaml"
    with file.open("w") as stream:
        YAML(typ="safe").dump(text | {"explore": explore}, stream)
    return file


def test_a_predicate_of_ones_own_is_found_and_shrunk(small: dict[str, Any], folder: Path) -> None:
    file = write(folder, small | {"wait": {"deadline": "20ms"}}, find=["looks:late"], depth=0)
    exploration = Exploration(netdfl.load(file))
    explored = exploration.run(Budget(runs=12))
    (found,) = by_rate(explored)
    assert found.cause.key == "predicate looks:late: looks:late holds"
    shown = variant(exploration.scenario, found.trial.events, found.trial.luck)
    shrunk = Shrinker(exploration.predicates, exploration.executor).shrink(shown, found.cause.key)
    assert len(shrunk.plain["events"]) == 1


def test_a_predicate_that_raises_is_named_with_its_line(small: dict[str, Any], folder: Path) -> None:
    file = write(folder, small, find=["looks:wrong", "verdict"])
    explored = Exploration(netdfl.load(file)).run(Budget(runs=5))
    (found,) = by_rate(explored)
    line = next(n for n, text in enumerate(PREDICATES.splitlines(), start=1) if "no_such_thing" in text)
    assert f"looks.py:{line}" in found.cause.text
    assert explored.runs == 5
    stopped = Exploration(netdfl.load(file), stop_on_error=True).run(Budget(runs=5))
    assert (stopped.runs, "looks.py" in stopped.why_stopped) == (1, True)


@pytest.mark.parametrize(
    ("name", "why"),
    [("looks", "is no predicate"), ("looks:number", "is a int"), ("nowhere:it", "can't be imported")],
)
def test_what_is_no_predicate_is_refused(name: str, why: str, small: dict[str, Any], folder: Path) -> None:
    with pytest.raises(InputError, match=why):
        Exploration(netdfl.load(write(folder, small, find=[name])))


def test_a_run_that_breaks_netdfl_is_a_finding_with_its_traceback(small: dict[str, Any], tmp_path: Path) -> None:
    bug = next(bug for bug in BUGS if bug.name == "full once")
    with bug.planted():
        exploration = Exploration(netdfl.load(bug.scenario), seed=1, folder=tmp_path / "it")
        explored = exploration.run(Budget(runs=8))
        found = next(each for key, each in explored.findings.items() if "PlantedBug" in key)
        assert "full in round 4" in found.broke
        shown = variant(exploration.scenario, found.trial.events, found.trial.luck)
        shrunk = Shrinker((), Executor()).shrink(shown, found.cause.key)
    assert len(shrunk.plain["events"]) <= 3
    assert shrunk.scenario.nodes <= 4


def test_an_error_in_a_callback_breaks_the_run(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PausableSink, "open", lambda self: 1 / 0)
    run = Executor().run(netdfl.load(small | {"events": [{"at": "20ms", "for": "5ms", "pause": 1}]}))
    assert "ZeroDivisionError" in run.broke
    found = cause_of(run)
    assert found is not None
    assert found.key.startswith(f"own code ZeroDivisionError {__file__}:")
    assert Path(__file__).name in run.broke


def test_one_line_in_a_test(small: dict[str, Any]) -> None:
    holds = small | {"wait": {"deadline": "20ms"}}
    assert netdfl.testing.explore(holds, runs=4).runs == 4
    with pytest.raises(AssertionError) as told:
        netdfl.testing.explore(small | {"nodes": 3, "rounds": 3}, runs=4)
    assert "as `netdfl run` shows it" in str(told.value)
    assert "schema: netdfl/1" in str(told.value)


def test_a_schedule_of_priorities_keeps_its_bound(small: dict[str, Any]) -> None:
    """Who comes last at node 0 in rounds 1 and 4 is, in turn, each of its neighbors: depth 2 of 4 nodes, 6 rounds."""
    from random import Random

    exploration = Exploration(netdfl.load(small | {"wait": {"deadline": "1s"}}))
    rng, hits, runs = Random(0), 0, 60
    for _ in range(runs):
        events = draw_schedule(exploration.course, 2, 5_000_000, rng)
        run = exploration.executor.run(variant(exploration.scenario, events, None))
        last = {wait.round: wait.last_src for wait in run.rows.waits if wait.node == 0}
        hits += last.get(1) == 1 and last.get(4) == 3
    assert hits / runs >= 1 / (4 * (4 * 6))
