"""Stalls are told as they are: every reason, since when, and remedies that can be written and that help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stall_terms import BASE, Stalled, says
from stalled import STALLED

from netdfl.record.directory import RunDirectory
from netdfl.record.status import Phase
from netdfl.running.supervise import supervise
from netdfl.scenario.load import loads

PROVEN = {
    (str(each.keys["algorithm"]), stall.cause, remedy): (each, remedy)
    for each in STALLED
    for stall in each.stalls
    if not stall.over
    for remedy in stall.remedies
}
"""Each remedy once for each cause and algorithm."""


def run(case: Stalled, out: Path, *settings: str) -> tuple[list[dict[str, Any]], set[int]]:
    """The findings, and the nodes that did not come to their end."""
    sets = ["=".join(setting.split(": ", 1)) for setting in settings]
    scenario = loads(json.dumps(BASE | dict(case.keys)), sets)
    outcome = supervise(scenario, RunDirectory.create(out, "stalled", 0))
    stalled = outcome.stalled
    left = {i for i, node in outcome.status.nodes.items() if node.phase is not Phase.FINISHED}
    return [dict(each) for each in (*stalled["deadlocks"], *stalled["stalls"])], left


@pytest.mark.parametrize("case", STALLED, ids=lambda case: case.name)
def test_a_stall_is_told_as_it_is(case: Stalled, tmp_path: Path) -> None:
    found, _ = run(case, tmp_path)
    told = "\n".join(
        f"{f['cause']} {f['roots']} {f['culprits']} {f['began_s']} {f['over']}: {f['text']}" for f in found
    )
    assert len(found) == len(case.stalls), told
    for stall in case.stalls:
        one = next(f for f in found if f["roots"] == list(stall.roots))
        found.remove(one)
        assert (one["cause"], one["culprits"], one["over"]) == (stall.cause, sorted(stall.culprits), stall.over), told
        assert stall.since_s in (None, one["began_s"]), told
        assert says(one["text"], stall.says), told
        assert " Since " in one["text"]
        assert one["remedies"] == list(stall.remedies), told
        assert all(f"`{remedy}`" in one["text"] for remedy in stall.remedies)


@pytest.mark.parametrize(("case", "remedy"), PROVEN.values(), ids=lambda part: getattr(part, "name", part))
def test_a_remedy_lets_the_fleet_go_on(case: Stalled, remedy: str, tmp_path: Path) -> None:
    found, left = run(case, tmp_path, remedy)
    assert left == set(case.gone), "\n".join(each["text"] for each in found)


def test_there_are_forty_of_them() -> None:
    assert len(STALLED) >= 40
