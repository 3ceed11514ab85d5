"""Every public callable, with arguments of every wrong type: a sentence, never an error of Python's or an engine's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.core.errors import InputError, NetdflError
from netdfl.record.run import Run
from netdfl.replaying.replay import Replay

SCENARIO: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "tiny",
    "nodes": 3,
    "rounds": 2,
    "world": "simulated",
    "task": {"kind": "consensus", "dim": 4},
    "algorithm": "dpsgd",
    "topology": "ring",
}
TRAINED = {**SCENARIO, "task": {}}
ROWS = ([[1.0, 2.0], [3.0, 4.0]] * 20, [0, 1] * 20)
WRONG: dict[str, Any] = {
    "None": None,
    "int": 3,
    "below 0": -1,
    "float": 1.5,
    "nan": float("nan"),
    "str": "x",
    "empty str": "",
    "list": [3],
    "empty list": [],
    "dict": {"x": 3},
    "empty dict": {},
    "tuple": (1, 2, 3),
    "bytes": b"x",
    "bool": True,
    "object": object(),
    "class": int,
}
RARELY = ("below 0", "nan", "empty str", "empty dict", "tuple", "bytes", "bool", "class")
"""Others are as wrong: a number, a text, a list, a mapping, any object."""
NAMES = [pytest.param(name, marks=[pytest.mark.soak] * (name in RARELY)) for name in WRONG]
NEVER = frozenset({"None"})
TEXT = frozenset({"str", "empty str"})
FEW = frozenset({"int", "bool"})
COUNTS = frozenset({"int"})
TIMES = frozenset({"int", "below 0", "float"})
RUN: dict[str, frozenset[str]] = {
    "model": NEVER,
    "data": NEVER,
    "on": NEVER,
    "out": NEVER | TEXT,
    "root": TEXT,
    "page": frozenset({"bool"}),
    "view": NEVER,
    "forkserver": NEVER,
    "made": NEVER | {"class"},
}
"""By argument of `netdfl.run`: what is no wrong value of it."""
OWN: dict[str, frozenset[str]] = {
    "train": NEVER - NEVER,
    "clients": NEVER - NEVER,
    "test": NEVER,
    "client_tests": NEVER,
    "target": NEVER | TEXT,
    "inputs": NEVER | {"empty list"},
    "columns": frozenset({"empty dict"}),
    "num_classes": NEVER | COUNTS,
}
REPLAYED: dict[str, frozenset[str]] = {
    "until": TIMES,
    "step": frozenset(),
    "back": frozenset(),
    "to_step": COUNTS,
    "drop": frozenset(),
    "deliver": frozenset(),
    "crash": frozenset(),
    "restart": frozenset(),
    "pause": frozenset(),
    "resume": frozenset(),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return netdfl.run(SCENARIO, out=tmp_path_factory.mktemp("wrong") / "run", page=False).run


@pytest.fixture(scope="module")
def replay(run: Run) -> Iterator[Replay]:
    with netdfl.replay(run) as replay:
        yield replay


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_argument_of_run_or_load_is_a_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = WRONG[name]
    _refused(lambda: netdfl.run(wrong))
    _refused(lambda: netdfl.load(wrong))
    _refused(lambda: netdfl.load(SCENARIO, [wrong]))
    if name != "empty list":
        _refused(lambda: netdfl.load(SCENARIO, wrong))
    for argument, fits in RUN.items():
        if name not in fits:
            _refused(lambda argument=argument: netdfl.run(SCENARIO, **{argument: wrong}))  # type: ignore[misc]
    assert not list(tmp_path.rglob("scenario.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_part_of_own_datasets_is_a_sentence(name: str) -> None:
    for argument, fits in OWN.items():
        given = {**({} if argument == "clients" else {"train": ROWS}), argument: WRONG[name]}
        if name not in fits:
            _refused(lambda given=given: netdfl.load(TRAINED, data=netdfl.Datasets(**given)))  # type: ignore[misc]


@pytest.mark.parametrize("name", NAMES)
def test_wrong_runs_and_queries_are_sentences(name: str, run: Run) -> None:
    wrong = WRONG[name]
    for taken in (netdfl.open_run, netdfl.replay, netdfl.compare, lambda it: netdfl.compare([it])):
        _refused(lambda taken=taken: taken(wrong))  # type: ignore[misc]
    _refused(lambda: netdfl.compare({"a": wrong}))
    _refused(lambda: netdfl.diff(run, wrong))
    _refused(lambda: netdfl.diff(wrong, run))
    if name not in NEVER | TEXT:
        _refused(lambda: netdfl.replay(run, out=wrong))
    for query in (run.query, run.rows, run.columns):
        _refused(lambda query=query: query(wrong))  # type: ignore[misc]
        if name not in {"empty list", "empty dict"}:
            _refused(lambda query=query: query("SELECT 1 AS a", wrong))  # type: ignore[misc]
    _refused(lambda: run.plot.curve(wrong))
    if name not in TIMES:
        _refused(lambda: run.plot.waits(wrong))


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_argument_of_a_replay_is_a_sentence(name: str, replay: Replay) -> None:
    wrong = WRONG[name]
    for method, fits in REPLAYED.items():
        if name not in fits:
            _refused(lambda method=method: getattr(replay, method)(wrong))  # type: ignore[misc]
    if name != "int":
        _refused(lambda: replay.step("event", wrong))
        _refused(lambda: replay.back("round", wrong))
    _refused(lambda: replay.restart(1, wrong))
    if name != "None":  # the first on that edge
        _refused(lambda: replay.drop("0->1", wrong))


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", "the query can't be made: .*SELEC.*; the tables are messages, metrics, events, waits"),
        ("FROM message", "message does not exist"),
        ("SELECT fat FROM messages", '"fat" not found'),
        ("SELECT ?", "can't be made"),
        ("SET threads = 1", "can't be made: .*locked"),
        ("SELECT 'a'::INT FROM messages", "can't be made: .*convert string 'a'"),
    ],
)
def test_a_query_that_can_not_be_made_is_no_damage_of_the_run(run: Run, sql: str, said: str) -> None:
    for query in (run.rows, run.columns, *([] if "::INT" in sql else [run.query])):
        with pytest.raises(InputError, match=said) as caught:
            query(sql)
        assert "damaged" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_lists_of_numbers_are_arrays() -> None:
    assert netdfl.load(TRAINED, data=ROWS).nodes == 3


def _refused(call: Any) -> None:
    """The call raises an error of netdfl's that is a sentence."""
    with pytest.raises(NetdflError) as caught:
        call()
    assert str(caught.value)
