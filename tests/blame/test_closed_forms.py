"""Blame in fleets whose times are known in closed form, to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.blame.targets import read_target
from netdfl.blame.told import sentences_of, table_of
from tests.blame.fleets import COMPUTE, DEADLINE, LATENCY, MS, RING, blamed, found, gains, listed, opened

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


LOST = RING["links"] | {"0->1": listed(4)}


def test_a_deadline_costs_what_it_waits_for_nothing(tmp_path: Path) -> None:
    """The loss of the last round is known as soon as the other neighbor's message has come: then nothing is to come."""
    blame = blamed(RING | {"links": LOST}, tmp_path, but=[])
    assert gains(blame)["the deadline of node 1"] == DEADLINE - LATENCY
    assert blame.bare is not None
    assert blame.bare.end_ns == 5 * ROUND


def test_a_wait_ends_at_the_loss_itself_where_all_else_has_come(tmp_path: Path) -> None:
    """Node 0 computes for 40 ms and its message is lost as it is sent: that is when nothing is to come any more."""
    slow = {"world": {"kind": "simulated", "compute": "10ms", "stragglers": {"nodes": [0], "factor": 4}}}
    links = RING["links"] | {"0->1": listed(0), "0->3": listed(0)}
    blame = blamed(RING | slow | {"rounds": 1, "links": links}, tmp_path, but=[])
    assert blame.base.end_ns == COMPUTE + DEADLINE
    both = [each for each in blame.candidates if each.kind == "deadline"]
    assert [each.place for each in both] == [(1,), (3,)]
    assert [gains(blame)[each.text] for each in both] == [0, 0], "either one still waits"
    player = opened(RING | slow, tmp_path, but=[]).player
    assert player.play(both).end_ns == 4 * COMPUTE


def test_without_its_deadline_a_node_waits_for_what_comes_late(tmp_path: Path) -> None:
    late = RING["links"] | {"0->1": {"latency": "150ms"}}
    blame = blamed(RING | {"rounds": 1, "links": late}, tmp_path, but=[])
    assert blame.base.end_ns == COMPUTE + DEADLINE
    assert gains(blame) == {"the deadline of node 1": DEADLINE - 150 * MS}


def test_a_crashed_node_that_does_not_return_sends_nothing_more(tmp_path: Path) -> None:
    """And one that does is waited for: its first message after the return ends the wait."""
    heard = {"failure_detector": {"kind": "heartbeat", "every": "1s"}, "rounds": 1, "wait": {"deadline": "20ms"}}
    ends, back = {}, {"restart_after": "20ms"}
    for name, returns, waiting in (("gone", {}, [(1,), (3,)]), ("back", back, [(0,), (1,), (3,)])):
        events = [{"at": "5ms", "crash": 0, **returns}]
        asked = opened(RING | heard | {"events": events}, tmp_path / name, but=[])
        without = [each for each in asked.blame.candidates if each.kind == "deadline"]
        assert [each.place for each in without] == waiting
        ends[name] = asked.player.play(without).end_ns
    assert ends == {"gone": ROUND, "back": 25 * MS + ROUND}


CORE = {"links": {"left->right": {"rate": "96kbit"}, "right->left": {}}, "place": {"0..1": "left", "2..3": "right"}}


def test_a_core_link_costs_what_the_messages_that_share_it_take(tmp_path: Path) -> None:
    """1->2 and 0->3 cross it at once, so that each has half of its rate."""
    blame = blamed(RING | {"rounds": 1, "underlay": CORE}, tmp_path)
    each = blame.base.nbytes // 8
    assert gains(blame) == {"the rate of the core link left->right": 2 * each * 8 * 10**9 // 96_000}
    assert blame.base.end_ns == ROUND + 2 * each * 8 * 10**9 // 96_000


def test_of_both_directions_of_a_core_link_either_alone_gains_nothing(tmp_path: Path) -> None:
    both = {**CORE, "links": {"right--left": {"rate": "96kbit", "latency": "1ms"}}}
    blame = blamed(RING | {"rounds": 1, "underlay": both}, tmp_path)
    assert gains(blame) == dict.fromkeys(
        ("the rate of the core link left->right", "the rate of the core link right->left"), 0
    )
    assert blame.gain(blame.without) == 2 * (blame.base.nbytes // 8) * 8 * 10**9 // 96_000
    assert len(found(blame)) == 2
