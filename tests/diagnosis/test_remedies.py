"""A remedy is named where it helps: no copy is offered that would be lost too, and notices can be sent again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from stall_terms import ANSWERED, BASE, DEADLINE, NO_DEADLINE, RESEND, SKIP

import netdfl
from netdfl.diagnosis.finding import Finding
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.explore import Exploration
from netdfl.explore.search import Search
from netdfl.explore.trial import variant
from netdfl.record.directory import RunDirectory
from netdfl.running.supervise import supervise
from netdfl.scenario.load import loads
from netdfl.scenario.loading.resolved import to_plain
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.stalls import StallWatch, settings_of

NOBODY: dict[str, Any] = {"failure_detector": {"kind": "none"}, "wait": NO_DEADLINE, "delivery": "plain"}
RING: dict[str, Any] = BASE | NOBODY | {"nodes": 5, "rounds": 6, "algorithm": "dpsgd", "topology": "ring"}
CHOSEN = {"kind": "full", "selection": {"kind": "random_k", "k": 1, "known": False}}
ANNOUNCED: dict[str, Any] = RING | {
    "algorithm": "sgp",
    "topology": CHOSEN,
    "wait": NO_DEADLINE | {"announce": True},
}
MEETING: dict[str, Any] = RING | {"nodes": 4, "algorithm": {"name": "ad_psgd", "bipartite": True}}
SERVED: dict[str, Any] = RING | {"algorithm": "fedavg", "topology": "star"}


def found_in(text: Mapping[str, Any], out: Path, *settings: str) -> list[dict[str, Any]]:
    scenario = loads(json.dumps(dict(text)), ["=".join(each.split(": ", 1)) for each in settings])
    stalled = supervise(scenario, RunDirectory.create(out, "it", 0)).stalled
    return [dict(each) for each in (*stalled["deadlocks"], *stalled["stalls"])]


def listed(**names: object) -> dict[str, Any]:
    return {"default": {"latency": "1ms"}, "*->3": {"loss": {"model": "drop_list", "messages": [names]}}}


COPIES_ARE_LOST = (
    RING | {"events": [{"at_round": 3, "drop": "1->2"}]},
    RING | {"events": [{"at_round": 3, "drop": "1->2", "kind": "data"}]},
    RING | {"events": [{"at": "20ms", "drop": "1->2"}]},
    RING | {"links": listed(round=4)},
    ANNOUNCED | {"links": listed(round=4, kind="notice")},
)
COPIES_COME = (
    RING | {"events": [{"at_round": 3, "drop": "1->2", "attempt": 0}]},
    RING | {"events": [{"at": "43ms", "for": "1500us", "drop": "1->2"}]},
    RING | {"links": listed(round=4, attempt=0)},
    ANNOUNCED | {"links": listed(round=4, kind="notice", attempt=0)},
    MEETING | {"events": [{"at_round": 2, "drop": "1->2", "attempt": 0}]},
)


@pytest.mark.parametrize("text", COPIES_ARE_LOST, ids=range(len(COPIES_ARE_LOST)))
def test_no_copy_is_offered_that_would_be_lost_too(text: dict[str, Any], tmp_path: Path) -> None:
    (found,) = found_in(text, tmp_path)
    assert found["cause"] == "lost_message"
    assert found["remedies"] == [DEADLINE, SKIP]


@pytest.mark.parametrize("text", COPIES_COME, ids=range(len(COPIES_COME)))
def test_a_copy_that_comes_is_offered_and_ends_the_stall(text: dict[str, Any], tmp_path: Path) -> None:
    before = found_in(text, tmp_path / "before")
    assert before
    offered = {remedy for each in before for remedy in each["remedies"]} & {RESEND, ANSWERED}
    assert RESEND in offered
    for place, remedy in enumerate(sorted(offered)):
        assert all(each["over"] for each in found_in(text, tmp_path / str(place), remedy)), remedy


def test_a_scripted_drop_is_named_by_its_entry(tmp_path: Path) -> None:
    (found,) = found_in(
        RING | {"events": [{"at_round": 1, "delay": "0->1", "by": "1us"}, *COPIES_ARE_LOST[0]["events"]]}, tmp_path
    )
    assert "whose message was lost on 1->2 (events[1])" in found["text"]


def left(run: ExploredRun) -> list[Finding]:
    return [stall for stall in run.stalls if stall.permanent and not stall.over]


def with_setting(scenario: Scenario, remedy: str) -> Scenario:
    return loads(json.dumps(to_plain(scenario)), ["=".join(remedy.split(": ", 1))])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(RING, marks=pytest.mark.soak, id="ring"),
        pytest.param(ANNOUNCED, id="announced"),
        pytest.param(MEETING, id="meeting"),
        pytest.param(SERVED, marks=pytest.mark.soak, id="served"),
    ],
)
def test_each_remedy_that_is_named_helps(text: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fleets with drawn faults: with each remedy that is named, these nodes do not stall so in that round."""
    scenario = netdfl.load(text)
    inner, allows = StallWatch.__init__, settings_of(scenario)

    def watching(self: StallWatch, *parts: Any) -> None:
        inner(self, *parts)
        self.allows = allows  # runs in memory name no remedies by themselves

    monkeypatch.setattr(StallWatch, "__init__", watching)
    exploration = Exploration(scenario)
    search, tried = Search(scenario, exploration.course, exploration.rates, 4, False), 0
    for number in range(6):
        trial = search.draw(number)
        shown = variant(scenario, trial.events, trial.luck)
        for stall in left(exploration.executor.run(shown))[:1]:
            for remedy in stall.remedies:
                after = left(Executor().run(with_setting(shown, remedy)))
                same = [
                    each
                    for each in after
                    if (each.cause, each.round, each.roots) == (stall.cause, stall.round, stall.roots)
                ]
                assert not same, f"{remedy}: {stall.text}"
                tried += 1
    assert tried > 3
