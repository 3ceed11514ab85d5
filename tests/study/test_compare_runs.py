"""Several runs side by side, and what is said where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import InputError

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
