"""A run without a candidate has the luck of the run: every message keeps its fate by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.blame.candidates import Candidate
from netdfl.explore.execute import Executor
from netdfl.explore.shrink import beside
from netdfl.scenario.build import compile_schedule
from tests.blame.fleets import RING, blamed, listed, opened

NOTHING = Candidate("slowness", (1,), "a node that is as fast as the others")
BURSTS = {"model": "gilbert_elliott", "p": 0.3, "r": 0.4}
COUNTED = {
    "bursts on one link": {"0->1": {"loss": BURSTS}},
    "bursts on all": {"default": {"latency": "5ms", "loss": BURSTS}},
    "a trace": {"0--1": {"loss": {"model": "trace", "losses": [0, 0, 1]}}, "2->1": {"loss": BURSTS}},
}


def hash_without(opened_blame: Any, *candidates: Candidate) -> str:
    scenario = opened_blame.player.scenario
    return Executor().run(beside(scenario, opened_blame.player.variants.without(candidates))).event_log_hash


@pytest.mark.parametrize("name", COUNTED)
def test_losses_that_count_are_those_of_the_run_where_nothing_is_taken_out(name: str, tmp_path: Path) -> None:
    asked = opened(RING | {"links": RING["links"] | COUNTED[name]}, tmp_path)
    plain = asked.player.variants.without([NOTHING])
    assert "gilbert_elliott" not in str(plain["links"])
    assert hash_without(asked, NOTHING) == asked.blame.base.log_hash
    assert any(each.kind == "loss" for each in asked.blame.candidates)


def test_a_message_keeps_its_fate_where_another_link_sends_no_more(tmp_path: Path) -> None:
    """Without the first loss of a burst the others stay as they were, which the chain by itself would not have."""
    asked = opened(RING | {"links": RING["links"] | {"0->1": {"loss": BURSTS}}}, tmp_path, messages=True)
    (first, *others) = [each for each in asked.blame.candidates if each.kind == "message"]
    run = Executor().run(beside(asked.player.scenario, asked.player.variants.without([first])))
    lost = {(m.src, m.dst, m.kind, m.epoch, m.round, m.step, m.attempt) for m in run.rows.messages if "loss" in m.fate}
    assert lost == {each.place[:7] for each in others}


def test_a_message_that_the_run_did_not_have_draws_at_the_mean_and_is_counted(tmp_path: Path) -> None:
    """A node that crashed sends on where it does not: over a link whose losses count."""
    plain = RING | {
        "links": RING["links"] | {"0->1": {"loss": BURSTS}},
        "events": [{"at_round": 2, "crash": 0}],
    }
    blame = blamed(plain, tmp_path)
    (row,) = [row for row in blame.rows if row.candidate.kind == "event"]
    assert row.outcome is not None
    assert row.outcome.drawn == 3
    assert {row.outcome.drawn for row in blame.rows if row.candidate.kind != "event" and row.outcome} == {0}


def test_an_event_whose_draws_go_by_its_place_keeps_them_where_one_before_it_goes(tmp_path: Path) -> None:
    outages = {"from": "0s", "to": "60ms", "random": "0->1", "up": "20ms", "down": "5ms"}
    plain = RING | {"events": [{"at": "5ms", "pause": 1, "for": "50ms"}, outages]}
    asked = opened(plain, tmp_path)
    without = beside(
        asked.player.scenario, asked.player.variants.without([c for c in asked.blame.candidates if c.place == (0,)])
    )
    before, after = ([e for e in compile_schedule(s) if e.source == 1] for s in (asked.player.scenario, without))
    assert before == after
    assert not [e for e in compile_schedule(without) if e.action == "pause"]


def test_a_heal_goes_with_what_it_heals(tmp_path: Path) -> None:
    events = [{"at": "20ms", "link": "0->1", "state": "down_drop"}, {"at": "40ms", "heal": "0->1"}]
    asked = opened(RING | {"events": events}, tmp_path)
    (cut,) = [each for each in asked.blame.candidates if each.kind == "event"]
    assert cut.place == (0,)
    assert asked.player.variants.without([cut])["events"] == []


def test_an_override_of_a_link_goes_before_every_other_entry(tmp_path: Path) -> None:
    links = {"default": {"latency": "5ms"}, "0 -> 1": listed(4), "0--1": {"latency": "7ms"}, "0->*": listed(3)}
    asked = opened(RING | {"links": links}, tmp_path)
    (loss,) = [each for each in asked.blame.candidates if each.place == (0, 1)]
    without = beside(asked.player.scenario, asked.player.variants.without([loss])).links
    assert list(without) == ["default", "0--1", "0->*", "0->1"]
    assert without["0->1"].written()["loss"] is None
    assert str(without["0->1"].written()["latency"]) == str(without["0--1"].written()["latency"])
