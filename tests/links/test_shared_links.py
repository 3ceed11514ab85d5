"""Rules on shared links, by hand: luck, states, queues, buckets, heartbeats, rounds, traces, and what is taken away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from driving import LinkRun, drive

from netdfl.core.rng import Streams
from netdfl.core.types import Edge, Kind
from netdfl.links.channel import Links
from netdfl.links.rules.base import Transit
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec, choose

S, MB = 10**9, 10**6
UP = {"0": {"uplink": {"rate": "8Mbit", "sharing": "fair"}}}
DOWN = {"1": {"downlink": {"rate": "8Mbit", "sharing": "fair"}}}


def unit(number: int, dst: int = 1, nbytes: int = MB, src: int = 0, kind: Kind = Kind.DATA) -> Transit:
    return Transit(src, dst, kind, number, 0, 0, nbytes)


def ends(
    rules: dict[str, Any], sent: Sequence[tuple[float, Transit]], *events: dict[str, Any]
) -> dict[tuple[Edge, int, int], tuple[float, str]]:
    """By edge, round and copy: when it ended in seconds, and why."""
    compiled = compile_events(events, Facts(4, Streams(0)))
    links = Links(LinksSpec(rules, {}, 4), Streams(0), compiled)
    found = drive(links, compiled, [(round(at * S), each) for at, each in sent])
    return {((u.src, u.dst), u.round, u.copy): (round(at / S, 6), reason or "arrived") for at, u, reason in found}


def test_a_damaged_message_takes_all_and_a_lost_one_its_bytes_of_the_uplink() -> None:
    corrupt = ends(UP | DOWN | {"0->1": {"corrupt": 1.0}}, [(0, unit(0)), (0, unit(0, 2))])
    assert corrupt == {((0, 1), 0, 0): (2, "corrupt"), ((0, 2), 0, 0): (2, "arrived")}
    slow = {"1": {"downlink": {"rate": "1Mbit", "sharing": "fair"}}}
    lost = ends(UP | slow | {"0->1": {"loss": 1.0}}, [(0, unit(0)), (0, unit(0, 2))])
    assert lost == {((0, 1), 0, 0): (2, "loss"), ((0, 2), 0, 0): (2, "arrived")}


def test_a_copy_goes_behind_its_original_over_all_but_the_uplink() -> None:
    found = ends(UP | DOWN | {"0->1": {"duplicate": 1.0, "rate": "4Mbit"}}, [(0, unit(0)), (0, unit(1))])
    assert {key[1:]: at for key, (at, _) in found.items()} == {(0, 0): 2, (0, 1): 4, (1, 0): 6, (1, 1): 8}
    assert ends(UP | {"0->1": {"duplicate": 1.0}}, [(0, unit(0))]) == {
        ((0, 1), 0, 0): (1, "arrived"),
        ((0, 1), 0, 1): (1, "arrived"),
    }


@pytest.mark.parametrize(
    ("state", "first", "second"), [("down_drop", "arrived", "down"), ("down_reset", "reset", "down")]
)
def test_a_link_that_drops_lets_a_message_end_and_one_that_is_reset_does_not(
    state: str, first: str, second: str
) -> None:
    for rules in (UP, DOWN):
        found = ends(rules, [(0, unit(0)), (0.6, unit(1))], {"at": "500ms", "link": "0->1", "state": state})
        assert [found[(0, 1), n, 0][1] for n in (0, 1)] == [first, second], rules


def test_what_a_held_link_keeps_is_dropped_where_the_state_gets_worse() -> None:
    events = [{"at": "500ms", "link": "0->1", "state": state} for state in ("down_hold",)]
    events += [{"at": "2s", "link": "0->1", "state": "down_drop"}]
    found = ends(UP, [(0, unit(0)), (0, unit(1))], *events)
    assert found == {((0, 1), 0, 0): (2.5, "arrived"), ((0, 1), 1, 0): (3.5, "down")}


def test_a_rate_of_0_stops_a_flow_and_frees_its_share() -> None:
    rules = UP | {"0->1": {"rate": "80Mbit"}}
    stopped = {"from": "1s", "to": "3s", "link": "0->1", "rate": "0bit"}
    assert ends(rules, [(0, unit(0)), (0, unit(0, 2))], stopped) == {
        ((0, 1), 0, 0): (3.5, "arrived"),
        ((0, 2), 0, 0): (1.5, "arrived"),
    }


def test_a_heartbeat_beside_a_model_gets_its_fair_share_at_once_and_an_answer_waits() -> None:
    sent = [(0, unit(0)), (0.5, unit(7, nbytes=1000, kind=Kind.HEARTBEAT)), (0.5, unit(8, nbytes=1000, kind=Kind.ACK))]
    found = ends(UP, sent)
    assert [found[(0, 1), n, 0][0] for n in (7, 0, 8)] == [0.502, 1.001, 1.002]
    own = ends({**UP, "0->1": {"rate": "800kbit"}}, sent[:2])
    assert own[(0, 1), 7, 0][0] == 0.52, "the two flows of an edge share its own rate"


@pytest.mark.parametrize("queue", ["1500kB", {"messages": 1}])
def test_a_queue_bounds_what_is_under_way_beside_the_oldest_message(queue: object) -> None:
    rule = {"rate": "8Mbit", "sharing": "fair", "queue": queue}
    sent = [(0, unit(0)), (0.1, unit(0, 2)), (0.2, unit(0, 3)), (0.3, unit(1, 2, 5000)), (2.5, unit(1, 3))]
    few = {key[:2]: end[1] for key, end in ends({"0": {"uplink": rule}}, sent).items()}
    fits = "queue" if isinstance(queue, dict) else "arrived"
    assert few == {
        ((0, 1), 0): "arrived",
        ((0, 2), 0): "arrived",
        ((0, 3), 0): "queue",
        ((0, 2), 1): fits,
        ((0, 3), 1): "arrived",
    }


def test_a_full_downlink_lets_a_message_take_its_bytes_of_the_uplink_alone() -> None:
    full = {"1": {"downlink": {"rate": "1Mbit", "sharing": "fair", "queue": {"messages": 1}}}}
    sent = [(0, unit(0, src=2)), (0, unit(0, src=3)), (0.01, unit(1)), (0.1, unit(2, 3))]
    found = ends(UP | full, sent)
    assert [found[(0, 1), 1, 0], found[(2, 1), 0, 0], found[(0, 3), 2, 0]] == [
        (1.92, "queue"),
        (16, "arrived"),
        (2.01, "arrived"),
    ]


def test_a_bucket_lets_its_bytes_of_the_sum_pass_at_once() -> None:
    rule = {"0": {"uplink": {"rate": "8Mbit", "sharing": "fair", "burst": "2MB"}}}
    both = [(0, unit(0, nbytes=3 * MB)), (0, unit(0, 2, 3 * MB)), (0, unit(0, 3, 100_000))]
    at_once = {key[0][1]: end[0] for key, end in ends(rule, both).items()}
    assert at_once == {1: 4.1, 2: 4.1, 3: 0}
    capped = ends(rule | {"0->1": {"rate": "16Mbit"}}, both[:1])
    assert capped == {((0, 1), 0, 0): (1.5, "arrived")}, (
        "3 MB at 16 Mbit/s are 1.5 MB more than the rate's, within the bucket"
    )
    later = ends(rule, [(0, unit(0, nbytes=2 * MB)), (0.5, unit(1, nbytes=MB))])
    assert [later[(0, 1), n, 0][0] for n in (0, 1)] == [0, 1], "half a second filled a quarter of it"


def test_a_capped_flow_empties_a_bucket_and_goes_on_at_the_rate() -> None:
    rule = {"0": {"uplink": {"rate": "8Mbit", "sharing": "fair", "burst": "1MB"}}, "0->1": {"rate": "16Mbit"}}
    assert ends(rule, [(0, unit(0, nbytes=4 * MB))]) == {((0, 1), 0, 0): (3, "arrived")}


def test_messages_of_some_rounds_have_another_rate() -> None:
    rules = UP | {"0->1": {"rate": "4Mbit"}}
    event = {"at_round": 1, "for_rounds": 1, "link": "0->1", "rate": "x0.5"}
    found = ends(rules, [(0, unit(n)) for n in range(3)], event)
    assert [found[(0, 1), n, 0][0] for n in range(3)] == [2, 6, 8]


def test_a_trace_stays_a_stage_of_its_own_between_shared_links(tmp_path: Any) -> None:
    (tmp_path / "a.trace").write_text("1\n")
    trace = {"kind": "mahimahi", "file": str(tmp_path / "a.trace")}  # 12 Mbit/s
    found = ends(UP | DOWN | {"0->1": {"rate": trace}}, [(0, unit(0))])
    assert [at for at, _ in found.values()] == [pytest.approx(1 + 0.667 + 1, abs=1e-3)]
    with pytest.raises(ValueError, match="sharing: fair needs a plain rate"):
        choose("uplink", trace | {"sharing": "fair"})
    with pytest.raises(ValueError, match="sharing"):
        choose("rate", {"rate": "1Mbit", "sharing": "fair"})


def test_an_event_gives_a_nodes_link_no_trace(tmp_path: Any) -> None:
    (tmp_path / "a.trace").write_text("1\n")
    trace = {"kind": "mahimahi", "file": str(tmp_path / "a.trace")}
    with pytest.raises(ScheduleError, match=r"events\[0\]: uplink can't begin to follow a trace"):
        compile_events([{"at": "1s", "node": 0, "uplink": trace}], Facts(4, Streams(0)))


def test_what_is_taken_away_frees_its_share_and_lets_the_next_begin() -> None:
    links, run = Links(LinksSpec(UP, {}, 4), Streams(0)), LinkRun()
    for each in (unit(0), unit(1), unit(2, 2)):
        run.enter(links.path(0, each.dst), each, 0)
    run.engine.run(S // 2)
    run.engine.withdraw(lambda flight: flight.content.round == 0, S // 2)
    assert [(end.at_ns / S, end.unit.round) for end in run.finish()] == [(2.0, 2), (2.25, 1)]


def test_links_of_a_node_that_differ_in_nothing_share_their_stages_and_not_their_flows() -> None:
    links, run = Links(LinksSpec({"default": {"latency": "1ms"}} | UP, {}, 4), Streams(0)), LinkRun()
    assert links.path(0, 1).stages is links.path(0, 2).stages
    assert links.path(0, 1).stages is not links.path(1, 2).stages
    for each in (unit(0), unit(1), unit(2, 2, 3 * MB)):
        run.enter(links.path(0, each.dst), each, 0)
    assert [(end.at_ns / S, end.unit.round) for end in run.finish()] == [(2.001, 0), (4.001, 1), (5.001, 2)]


def test_fifo_is_the_default_rule_of_packets_whatever_a_link_says() -> None:
    run, links = LinkRun(), Links(LinksSpec(UP, {}, 4), Streams(0), fifo=True)
    for dst in (1, 2):
        run.enter(links.path(0, dst), unit(0, dst), 0)
    assert [end.at_ns for end in run.finish()] == [S, 2 * S]
