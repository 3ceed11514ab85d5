"""The diagnosis and the verdict, judged by scenarios whose truths were written first. Most of them are healthy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stall_terms import BASE
from truths import TRUTHS, Truth

from netdfl.record.directory import RunDirectory
from netdfl.record.judge import Evidence, judge
from netdfl.running.supervise import supervise
from netdfl.scenario.load import loads


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth.name)
def test_a_fleet_gets_to_its_end_or_is_told_why_not(truth: Truth, tmp_path: Path) -> None:
    scenario = loads(json.dumps(BASE | dict(truth.keys)), directory=tmp_path)
    outcome = supervise(scenario, RunDirectory.create(tmp_path, "truth", 0))
    found = [*outcome.stalled["deadlocks"], *outcome.stalled["stalls"]]
    left = [f for f in found if not f["over"]]
    said = "\n".join([*outcome.unfinished, *(f"{f['cause']} {f['roots']} {f['culprits']}: {f['text']}" for f in found)])
    assert [f["text"] for f in found if f["permanent"] and f["over"]] == [], "for good, and over all the same"
    told = [(f["cause"], f["roots"], f["culprits"]) for f in left]
    assert sorted(told) == sorted((h.cause, list(h.roots), list(h.culprits)) for h in truth.held), said
    findings = Evidence(
        open_stalls=[f["text"] for f in left],
        unfinished=outcome.unfinished,
        figures={"virtual_duration_s": outcome.figures.virtual_duration_s},
    )
    verdict = judge(findings, scenario.expect.entries()).verdict
    assert (verdict != "fail") == (not truth.held and not truth.unfinished), said
    assert truth.unfinished in said
