"""Several runs side by side, and what is said where there are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import netdfl
from netdfl.core.errors import InputError
from netdfl.record.run import WithoutPandas

SCENARIO = {
    "schema": "netdfl/1",
    "name": "small",
    "nodes": 3,
    "rounds": 2,
    "world": "simulated",
    "task": {"kind": "quadratic", "dim": 2},
    "algorithm": "dpsgd",
    "topology": "ring",
}


def test_runs_are_rows_and_figures_columns(tmp_path: Path) -> None:
    first = netdfl.run(SCENARIO, out=tmp_path / "first", page=False)
    netdfl.run(SCENARIO | {"seed": 1}, out=tmp_path / "second", page=False)
    found = netdfl.compare([first, tmp_path / "second"])
    assert [name.rpartition("/")[2] for name in found.index] == ["first", "second"]
    assert list(found["seed"]) == [0, 1]
    assert found["error"].iloc[0] == first.result["error"]
    assert list(netdfl.compare({"mine": first}).index) == ["mine"]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], "nothing to compare"),
        ("runs/x", "expected a list of runs"),
        ([3], "'3' is no run"),
        (["/nowhere"], "is not a run"),
    ],
)
def test_what_is_no_run_gets_a_sentence(runs: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        netdfl.compare(runs)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: netdfl.open_run(3), "'3' is no run: expected the path of a run directory"),  # type: ignore[arg-type]
        (lambda: netdfl.replay(None), "'None' is no run"),
        (lambda: netdfl.diff(3, 4), "'3' is no opened run"),  # type: ignore[arg-type]
        (lambda: netdfl.run({}, made=3), "made is 3: expected a function"),  # type: ignore[arg-type]
        (lambda: netdfl.run({}, view=3), "view is 3: expected a context manager"),  # type: ignore[arg-type]
    ],
)
def test_other_wrong_arguments_get_one_too(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()


def test_a_data_frame_without_pandas_is_refused_with_its_remedy() -> None:
    relation = WithoutPandas(duckdb.sql("SELECT 3 AS x"))
    assert relation.fetchall() == [(3,)]  # type: ignore[operator]
    with pytest.raises(InputError, match=r"not installed: .*pip install pandas$"):
        relation.df()  # type: ignore[operator]
