"""Blame in fleets whose times are known in closed form, to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.blame.targets import read_target
from netdfl.blame.told import sentences_of, table_of
from tests.blame.fleets import COMPUTE, DEADLINE, LATENCY, MS, RING, blamed, found, gains, listed

ROUND = COMPUTE + LATENCY
SLOW = {"world": {"kind": "simulated", "compute": "10ms", "stragglers": {"nodes": [2], "factor": 4}}}


def test_a_slow_node_costs_each_cycle_what_it_takes_more_than_the_others(tmp_path: Path) -> None:
    """Its cycle is its own computing time, behind which its neighbors' messages have come long before."""
    blame = blamed(RING | SLOW, tmp_path)
    assert blame.base.end_ns == 5 * 4 * COMPUTE + LATENCY
    assert gains(blame) == {"the slowness of node 2": 5 * 4 * COMPUTE + LATENCY - 5 * ROUND}
    assert found(blame) == ["the slowness of node 2"]
    assert blame.without is not None
    assert blame.without.end_ns == 5 * ROUND


@pytest.mark.parametrize("messages", [False, True])
def test_one_loss_costs_one_deadline_less_the_latency(tmp_path: Path, messages: bool) -> None:
    blame = blamed(RING | {"links": RING["links"] | {"0->1": listed(4)}}, tmp_path, messages=messages)
    text = "the loss of data 0->1 of round 4" if messages else "the losses on 0->1"
    assert gains(blame) == {text: DEADLINE - LATENCY}
    assert found(blame) == [text]
    assert blame.minimal


def test_of_two_losses_either_of_which_costs_the_deadline_both_are_the_set(tmp_path: Path) -> None:
    links = RING["links"] | {"0->1": listed(4), "2->1": listed(4)}
    blame = blamed(RING | {"links": links}, tmp_path)
    assert gains(blame) == {"the losses on 0->1": 0, "the losses on 2->1": 0}
    assert sorted(found(blame)) == ["the losses on 0->1", "the losses on 2->1"]
    assert blame.gain(blame.without) == DEADLINE - LATENCY
    told = list(sentences_of(blame))
    assert "Effects don't add up: one of these out gains nothing, both out gain 95ms." in told
    assert "none of these can be left out" in told


def test_an_uplink_costs_what_its_bytes_take(tmp_path: Path) -> None:
    blame = blamed(RING | {"rounds": 1, "links": RING["links"] | {"0": {"uplink": "96kbit"}}}, tmp_path)
    each = blame.base.nbytes // 8
    assert gains(blame) == {"the uplink of node 0": 2 * each * 8 * 10**9 // 96_000}
    assert blame.base.end_ns == ROUND + 2 * each * 8 * 10**9 // 96_000


def test_a_downlink_costs_what_its_bytes_take(tmp_path: Path) -> None:
    blame = blamed(RING | {"rounds": 1, "links": RING["links"] | {"3": {"downlink": "96kbit"}}}, tmp_path)
    assert gains(blame) == {"the downlink of node 3": 2 * (blame.base.nbytes // 8) * 8 * 10**9 // 96_000}


def test_extra_delay_is_what_exceeds_the_least_that_the_rule_can_give(tmp_path: Path) -> None:
    links = RING["links"] | {"0->1": {"latency": {"dist": "uniform", "low": "5ms", "high": "30ms"}}}
    blame = blamed(RING | {"rounds": 1, "links": links}, tmp_path)
    assert blame.base.end_ns > ROUND
    assert gains(blame) == {"the extra delay of 0->1": blame.base.end_ns - ROUND}


def test_an_event_costs_its_pause(tmp_path: Path) -> None:
    events = [{"at": "5ms", "pause": 1, "for": "50ms"}]
    blame = blamed(RING | {"rounds": 1, "events": events}, tmp_path)
    assert list(gains(blame).values()) == [50 * MS]


def test_losses_of_single_messages_are_taken_out_one_by_one(tmp_path: Path) -> None:
    """Node 1 misses rounds 2 and 4 of the same link: only the last is its deadline's, the other moves the rest."""
    links = RING["links"] | {"0->1": listed(0, 4), "2->1": {}}
    by_link = blamed(RING | {"links": links}, tmp_path / "a")
    single = blamed(RING | {"links": links}, tmp_path / "b", messages=True)
    assert list(gains(single)) == ["the loss of data 0->1 of round 0", "the loss of data 0->1 of round 4"]
    assert by_link.bare is not None
    assert single.bare is not None
    assert single.bare.end_ns == by_link.bare.end_ns == 5 * ROUND


def test_a_target_that_was_not_reached_is_not_by_the_end(tmp_path: Path) -> None:
    """Without the losses the fleet gets there, and the row says when; nothing else does."""
    links = RING["links"] | {"*->1": listed(*range(5)), "1->*": listed(*range(5))}
    plain = RING | SLOW | {"links": links}
    near = blamed(plain, tmp_path, read_target("consensus: 0.02"))
    assert near.target.cost(near.base) is None
    assert near.has_gap
    cells = {line[0]: line[1:] for line in table_of(near)}
    assert cells["the slowness of node 2"][0].startswith("not by ")
    assert near.without is not None
    assert near.target.cost(near.without) is not None
