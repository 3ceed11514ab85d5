"""Methods of every kind settle where numpy says, by the real loop; `tests/soak/known_points.py` has all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from known_points import KNOWN, distance, scenario

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.running.run import run
from netdfl.scenario.load import loads

SAMPLE = ("qg_dsgdm", "choco_sgd", "overlap_sgp", "fedgamma", "feddyn")


def test_every_method_has_a_known_point() -> None:
    assert set(KNOWN) == set(ALGORITHMS)


@pytest.mark.parametrize("name", SAMPLE)
def test_it_settles_at_its_point(name: str, tmp_path: Path) -> None:
    asked = loads(json.dumps(scenario(name)))
    finished = run(asked, out=tmp_path / "run", page=False)
    assert distance(asked, finished.path) <= KNOWN[name].off
