"""The links of a fleet under a schedule."""

from __future__ import annotations

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.channel import Links
from netdfl.links.path import FusedStage
from netdfl.links.rules.base import Transit
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec
from tests.links.driving import drive

S = 10**9
MS = 10**6
GROUPS = {"core": [0, 1], "edge": [2, 3]}
LOSSY = {"default": {"loss": "30%", "latency": {"dist": "lognormal", "mean": "20ms", "jitter": "9ms"}, "rate": "8Mbit"}}


def unit(src=0, dst=1, round=0, nbytes=1000) -> Transit:
    return Transit(src, dst, Kind.DATA, round, 0, 0, nbytes)


def fleet(block, *entries, seed=7):
    streams = Streams(seed)
    events = compile_events(entries, Facts(4, streams, GROUPS))
    return Links(LinksSpec(block, GROUPS, 4), streams, events), events


def fates(block, entries, sent, seed=7):
    links, events = fleet(block, *entries, seed=seed)
    found = drive(links, events, [(at, unit(*who)) for at, *who in sent])
    return [(f.at_ns, f.unit.src, f.unit.dst, f.unit.round, f.reason) for f in found]


def every(gap_ns, count, src=0, dst=1):
    return [(t * gap_ns, src, dst, t) for t in range(count)]


def test_the_two_timings_of_the_paths():
    sent = [(0, 0, 1, t, 10**6) for t in range(3)]
    found = fates({"default": {"rate": "8Mbit", "latency": "50ms"}}, [], sent)
    assert [at for at, *_ in found] == [1050 * MS, 2050 * MS, 3050 * MS]
    block = {
        "2": {"downlink": {"rate": "8Mbit", "sharing": "fifo"}},
        "0->2": {"latency": "100ms"},
        "1->2": {"latency": "10ms"},
    }
    found = fates(block, [], [(0, 0, 2, 0, 10**6), (10 * MS, 1, 2, 0, 10**6)])
    assert [(at, src) for at, src, *_ in found] == [(1020 * MS, 1), (2020 * MS, 0)]


def test_the_same_seed_gives_the_same_fates_and_another_gives_others():
    one, again, other = (fates(LOSSY, [], every(MS, 300), seed) for seed in (7, 7, 8))
    assert one == again
    assert one != other


def test_a_links_fate_does_not_depend_on_the_others():
    block = {**LOSSY, "0->1": {"loss": {"model": "gilbert_elliott", "p": 0.2, "r": 0.4}}}
    alone = fates(block, [], every(MS, 200))
    crowd = fates(block, [{"at": "50ms", "link": "2->3", "loss": "90%"}], every(MS, 200, 2, 3) + every(MS, 200))
    assert [f for f in crowd if f[1:3] == (0, 1)] == alone
    assert {f[3] for f in fates(LOSSY, [], every(MS, 200, 1, 0)) if f[4]} != {f[3] for f in alone if f[4]}


def test_a_schedule_that_changes_nothing_changes_no_fate():
    same = [
        {"every": "20ms", "count": 5, "for": "9ms", "link": "0->1", "rate": "8Mbit", "latency": "x1"},
        {"at": "30ms", "link": "0->1", "loss": "30%"},
    ]
    plain, _ = fleet(LOSSY)
    scheduled, _ = fleet(LOSSY, *same)
    assert isinstance(plain.path(0, 1).stages[0], FusedStage)
    assert len(scheduled.path(0, 1).stages) == 3
    assert fates(LOSSY, same, every(MS, 200)) == fates(LOSSY, [], every(MS, 200))


def test_partitions_cut_for_their_time_and_only_across():
    entry = {"at": "50ms", "for": "100ms", "partition": ["core", "edge"]}
    found = fates({}, [entry], every(10 * MS, 20) + every(10 * MS, 20, 0, 2))
    assert all(reason is None for _, _, dst, _, reason in found if dst == 1)
    assert [t for _, _, dst, t, reason in found if dst == 2 and reason == "down"] == list(range(5, 15))


def test_holding_delivers_on_heal_and_resets_drop_what_is_under_way():
    hold = {"at": "50ms", "for": "100ms", "link": "0->1", "state": "down_hold"}
    found = fates({"default": {"latency": "20ms"}}, [hold], every(10 * MS, 20))
    assert [at for at, _, _, t, _ in found if 5 <= t < 15] == [170 * MS] * 10
    assert len(found) == 20
    reset = {"at": "55ms", "for": "100ms", "link": "0->1", "state": "down_reset"}
    found = fates({"default": {"latency": "20ms"}}, [reset], every(10 * MS, 20))
    assert [t for _, _, _, t, reason in found if reason == "reset"] == [4, 5]
    assert [t for _, _, _, t, reason in found if reason == "down"] == list(range(6, 16))


def test_causes_that_overlap_hold_a_link_down_until_the_last_one_ends():
    entries = [
        {"at": "50ms", "for": "100ms", "partition": ["core", "edge"]},
        {"at": "100ms", "for": "80ms", "link": "0->2", "state": "down_hold"},
        {"at": "10ms", "link": "0->2", "state": "down_drop"},
        {"at": "30ms", "heal": "core->edge"},
    ]
    found = {t: (at, reason) for at, _, _, t, reason in fates({}, entries, every(10 * MS, 20, 0, 2))}
    down = [t for t, (_, reason) in found.items() if reason == "down"]
    assert sorted(down) == [1, 2, *range(5, 15)]
    assert [found[t] for t in (15, 16, 17)] == [(180 * MS, None)] * 3
    assert found[18] == (180 * MS, None)


def test_rounds_decide_for_their_messages_whenever_they_are_sent():
    entries = [
        {"at_round": 5, "for_rounds": 3, "link": "0->1", "state": "down_drop"},
        {"at_round": 10, "for_rounds": 5, "link": "0->1", "latency": "x3", "rate": "x0.5"},
        {"at_round": 12, "for_rounds": 2, "link": "0->1", "latency": "1ms", "loss": 1},
    ]
    block = {"default": {"latency": "10ms", "rate": "8Mbit"}}
    found = {t: (at, reason) for at, _, _, t, reason in fates(block, entries, every(100 * MS, 20)[::-1])}
    for t in range(20):
        sent = t * 100 * MS
        expected = (sent + 11 * MS, None)
        if 5 <= t < 8:
            expected = (sent, "down")
        elif t in (12, 13):
            expected = (sent, "loss")
        elif 10 <= t < 15:
            expected = (sent + 32 * MS, None)
        assert found[t] == expected, t


def test_rate_changes_retime_and_relative_ones_multiply_and_end():
    entries = [
        {"at": "500ms", "for": "2s", "link": "0->1", "rate": "x0.5"},
        {"at": "500ms", "for": "1s", "link": "0->1", "rate": "x0.5"},
    ]
    found = fates({"default": {"rate": "8Mbit"}}, entries, [(0, 0, 1, 0, 10**6), (0, 0, 1, 1, 10**6)])
    # 0.5 MB in the first 0.5 s, 0.25 MB in the next 1 s, 0.5 MB in the next 1 s, and 1 MB a second then.
    assert [at for at, *_ in found] == [2000 * MS, 3250 * MS]


def test_uplinks_change_for_all_links_of_a_node():
    entries = [{"at": "500ms", "for": "1s", "node": 0, "uplink": "0bit"}]
    sent = [(0, 0, 1, 0, 10**6), (0, 0, 2, 0, 10**6)]
    in_turn = {"rate": "8Mbit", "sharing": "fifo"}
    for rule, expected in (("8Mbit", [3000 * MS, 3000 * MS]), (in_turn, [2000 * MS, 3000 * MS])):
        assert [at for at, *_ in fates({"0": {"uplink": rule}}, entries, sent)] == expected
    for rule, expected in (("8Mbit", [2000 * MS, 2000 * MS]), (in_turn, [1000 * MS, 2000 * MS])):
        assert [at for at, *_ in fates({}, [{"at": "0s", "node": 0, "uplink": rule}], sent)] == expected


@pytest.mark.parametrize("early", [False, True])
def test_a_path_is_the_same_whenever_it_is_first_used(early):
    entries = [
        {"at": "1s", "link": "0->1", "latency": "70ms"},
        {"at": "2s", "link": "default", "latency": "x2"},
        {"at": "2s", "node": 1, "downlink": "8Mbit"},
        {"at": "3s", "for": "1s", "link": "default", "state": "down_hold"},
    ]
    links, events = fleet({"default": {"latency": "10ms"}}, *entries)
    if early:
        links.path(0, 1)
    for event in events:
        if event.at_ns <= 3 * S:
            links.apply(event, event.at_ns)
    sent = [(3500 * MS, unit())]
    found = drive(links, [e for e in events if e.at_ns > 3 * S], sent)
    assert [f.at_ns for f in found] == [4141 * MS]


@pytest.mark.parametrize(
    ("entries", "events", "alike"),
    [
        ({"default": {"latency": "20ms"}}, [], True),
        ({}, [], True),
        ({"default": {"latency": "20ms"}, "0->1": {"latency": "9ms"}}, [], False),
        ({"default": {"latency": "20ms", "uplink": "1Mbit"}}, [], False),
        ({"default": {"latency": "20ms"}, "2": {"downlink": "1Mbit"}}, [], False),
        ({"default": {"latency": "20ms", "loss": "5%"}}, [], False),
        ({"default": {"latency": "20ms"}}, [{"at": "1s", "link": "0->1", "latency": "9ms"}], False),
    ],
)
def test_links_that_are_all_alike_have_one_path(entries: dict, events: list, alike: bool):
    links = Links(LinksSpec(entries, {}, 3), Streams(0), compile_events(events, Facts(3, Streams(0))))
    assert (links.common is not None) is alike
    if links.common is not None:
        assert all(links.path(src, dst).stages == links.common.stages for src in range(3) for dst in range(3))
