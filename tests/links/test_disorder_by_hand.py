"""Duplicates, damage and reordering where they are sure or never are, and as a schedule changes them on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.rules.base import DROPPED, Departure, Transit
from netdfl.links.rules.disorder import (
    Checksum,
    Corrupt,
    Corruption,
    Duplicate,
    Duplication,
    Reorder,
    Reordering,
    corrupt,
    duplicate,
    reorder,
)
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.when import Facts


def unit(number: int = 0, **more: Any) -> Transit:
    return Transit(0, 1, Kind.DATA, number, 0, 0, 100, **more)


def test_what_a_scenario_says_is_what_a_stage_goes_by() -> None:
    assert duplicate(probability=0.25) == Duplication(0.25)
    assert [corrupt(probability=0.25, mode=mode) for mode in ("detect", "deliver")] == [
        Corruption(0.25, True),
        Corruption(0.25, False),
    ]
    assert corrupt(probability=0.25) == Corruption(0.25, True)
    assert [reorder(probability=0.5), reorder(probability=0.5, delay=1)] == [Reordering(0.5, 10**7), Reordering(0.5, 1)]
    for delay in (0, -1):
        with pytest.raises(ValueError, match="must be above 0"):
            reorder(probability=0.5, delay=delay)


def test_a_copy_follows_its_unit_and_may_have_copies_of_its_own() -> None:
    stage, first = Duplicate(3, Duplication(1.0)), unit()
    departures = stage.enter(first, 5)
    assert [(type(each), each.at_ns, each.unit.copy) for each in departures] == [(Departure, 5, 0), (Departure, 5, 1)]
    assert departures[0].unit is first
    copy = departures[1].unit
    assert repr(replace(copy, copy=0)) == repr(first)
    assert [each.copy for each in stage.copies(copy)] == [1, 2]
    assert list(stage.changed({"duplicate": Duplication(0.0)}, 6)) == []
    assert [each.unit for each in stage.enter(first, 7)] == [first]
    assert list(stage.changed({"corrupt": Corruption(1.0, True)}, 6)) == []
    assert stage.config == Duplication(0.0)


def test_damage_is_found_at_the_receiver_where_the_rule_then_says_so() -> None:
    stage, damaged, whole = Corrupt(3, Corruption(1.0, True)), unit(), unit()
    check = Checksum(stage)
    assert stage.advance(damaged, 5) == 5
    assert damaged.corrupted
    stage.changed({"corrupt": Corruption(0.0, True)}, 6)
    assert stage.advance(whole, 7) == 7
    assert not whole.corrupted
    assert [check.advance(each, 8) for each in (damaged, whole)] == [DROPPED, 8]
    stage.changed({"corrupt": Corruption(0.0, False)}, 9)
    assert [check.advance(each, 9) for each in (damaged, whole)] == [9, 9]


def test_what_is_held_back_keeps_its_time_at_a_change_and_goes_at_a_reset() -> None:
    stage = Reorder(3, Reordering(1.0, 10))
    assert [each.at_ns for each in stage.enter(unit(1), 5)] == [15]
    assert list(stage.changed({"reorder": Reordering(1.0, 30)}, 6)) == []
    assert [each.at_ns for each in stage.enter(unit(2), 6)] == [36]
    stage.changed({"loss": None}, 6)
    assert [each.at_ns for each in stage.enter(unit(3), 7)] == [37]
    dropped = stage.changed({"state": "down_reset", "reorder": Reordering(0.0, 30)}, 15)
    assert [(each.unit.round, each.reason) for each in dropped] == [(2, "reset"), (3, "reset")]
    assert [each.at_ns for each in stage.enter(unit(4), 16)] == [16]
    assert [stage.rests(at_ns) for at_ns in (15, 16)] == [False, True]


@pytest.mark.parametrize("stage", [Duplicate, Corrupt, Reorder])
def test_a_chance_is_of_the_unit_and_the_stages_seed(stage: Any) -> None:
    def hits(seed: int) -> list[int]:
        config = {Duplicate: Duplication(0.3), Corrupt: Corruption(0.3, True), Reorder: Reordering(0.3, 10)}[stage]
        found, its = [], stage(seed, config)
        for number in range(200):
            sent = unit(number)
            out = its.enter(sent, 0)
            if len(out) > 1 or sent.corrupted or out[0].at_ns:
                found.append(number)
        return found

    assert hits(1) == hits(1) != hits(2)
    assert 30 < len(hits(1)) < 90


@pytest.mark.parametrize(
    ("broken", "healed", "fits"),
    [
        ("[0, 3]->1", "[0, 3]->2", False),
        ("1->[0, 3]", "2->[0, 3]", False),
        ("[0, 3]->1", "[0, 3]->[1, 2]", True),
        ("[0, 1]->[0, 1]", "[1, 2]->[1, 2]", False),
        ("[0, 1]->[0, 1]", "[0, 1, 2]->[1, 2]", True),
    ],
)
def test_a_heal_needs_a_link_in_common_with_what_broke(broken: str, healed: str, fits: bool) -> None:
    entries = [{"at": "1s", "link": broken, "state": "down_drop"}, {"at": "2s", "heal": healed}]
    facts = Facts(4, Streams(1), {}, 100 * 10**9, 9)
    if fits:
        assert len(compile_events(entries, facts)) == 2
    else:
        with pytest.raises(ScheduleError, match="heals before anything broke"):
            compile_events(entries, facts)
