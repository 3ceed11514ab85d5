"""What the fleet did is what it did: golden event logs of everything that trains nothing (see golden.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from golden import FILE, arithmetic, digests, names

from netdfl.host.node import NodeHost

GOLDEN = json.loads(FILE.read_text())


@pytest.fixture(autouse=True)
def admitting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admit messages here as in real worlds: a log in which an honest node's was refused is not the golden one."""
    monkeypatch.setattr(NodeHost, "admits", True)


def test_the_file_has_every_scenario_and_no_other() -> None:
    assert set(GOLDEN) - {"arithmetic"} == set(names())


@pytest.mark.parametrize("name", [name for name in GOLDEN if name != "arithmetic"])
def test_the_event_log_is_the_golden_one(name: str) -> None:
    found = digests(name)
    if arithmetic() != GOLDEN["arithmetic"]:
        found["log"] = GOLDEN[name]["log"]
    assert found == GOLDEN[name]


@pytest.mark.soak  # the golden logs hold on every machine that runs them
def test_no_number_of_a_log_depends_on_what_the_linear_algebra_library_makes_of_a_processor() -> None:
    """OpenBLAS sums in another order on another processor; what it takes this one for can be said to it."""
    program = "import json, sys, golden; print(json.dumps([golden.digests(name) for name in sys.argv[1:]]))"
    some = ["faults/churn", "faults/skip"]
    elsewhere = subprocess.run(
        [sys.executable, "-c", program, *some],
        env=os.environ | {"OPENBLAS_CORETYPE": "Prescott", "PYTHONPATH": str(FILE.parent)},
        cwd=FILE.parents[2],
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(elsewhere.stdout) == [digests(name) for name in some]
