"""Core links under the model of TCP: headers count, the excess goes by the share, and packets meet the core's loss."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.links.rules.tcp import default_table, on_the_line_ns
from tests.underlay.sites import MB, MBIT, MS, SITES, S, arrivals, fleet

EIGHT = {node: SITES[node // 2] for node in range(8)}
SENT = [(0.0, 0, 4, MB), (9.0, 0, 4, 1000), (10.0, 1, 5, 300_000), (20.0, 4, 0, 20_000)]
HALF: dict[str, Any] = {"at": "0s", "core": "zurich--milan"}


def found(
    *events: dict[str, Any], rules: dict[str, Any] | None = None, reroute_s: float | None = None, sent: Any = SENT
) -> dict[int, int | str]:
    underlay = fleet(EIGHT, None if reroute_s is None else round(reroute_s * S))
    return arrivals(underlay, sent, rules, events, over_tcp=True)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_flows_share_a_core_link_with_headers_and_each_has_the_excess_of_its_share_once(count: int) -> None:
    ends = found(sent=[(0, n % 2, 4 + n // 2, MB) for n in range(count)])
    slices, _ = default_table().curve(MB, 0.0, 2 * 5 * MS, 8 * MBIT / count)
    without = count * on_the_line_ns(MB, 8 * MBIT) + 5 * MS
    assert len(ends) == count
    assert all(int(slices[0]) <= int(end) - without <= int(slices[-1]) + 1 for end in ends.values())


def test_packets_meet_the_loss_of_the_core_as_that_of_their_own_link() -> None:
    core = found(HALF | {"loss": "5%"})
    assert core == found(rules={"default": {"loss": "5%"}})
    assert core != found()
    both = found(HALF | {"loss": "4%"}, rules={"default": {"loss": "5%"}})
    whole = found(rules={"default": {"loss": 1 - 0.96 * 0.95}})
    two = found(HALF | {"loss": "4%"}, {"at": "0s", "core": "paris--zurich", "loss": "5%"})
    assert all(abs(int(each[n]) - int(whole[n])) <= 1 for each in (both, two) for n in range(len(SENT)))


def test_a_loss_in_bursts_counts_by_its_mean_and_ends_with_its_event() -> None:
    bursts = {"model": "gilbert_elliott", "p": 0.02, "r": 0.38}
    assert found(HALF | {"loss": bursts}) == found(rules={"default": {"loss": 0.02 / 0.4}})
    ended = found(HALF | {"loss": "5%", "for": "5s"})
    assert {n: ended[n] for n in (1, 2, 3)} == {n: found()[n] for n in (1, 2, 3)}


def test_a_core_link_that_loses_every_packet_acts_as_an_own_link_that_does() -> None:
    ends = found(HALF | {"loss": 1})
    assert ends == found(rules={"default": {"loss": 1}})
    assert ends[1] == "dead"


def test_the_delay_of_the_core_is_part_of_the_round_trip_and_no_factor_on_the_link_s_own_moves_it() -> None:
    lossy: dict[str, Any] = {"default": {"loss": "5%", "latency": "10ms"}}
    later = {"at": "0s", "link": "default", "latency": "x3"}
    assert found(later, rules=lossy) == found(rules={"default": {"loss": "5%", "latency": "30ms"}})
    core = found(HALF | {"latency": "x11"}, rules={"default": {"loss": "5%"}})
    assert core == found(rules={"default": {"loss": "5%", "latency": "20ms"}})
    assert core != found(rules={"default": {"loss": "5%"}})


def test_what_is_sent_over_a_new_way_has_its_delay() -> None:
    cut = {"at": "1s", "for": "50s", "cut": "zurich--milan"}
    sent = [(at, 0, 4, 1000) for at in (0.5, 1.2, 5.0)]
    ends = found(cut, reroute_s=0.5, sent=sent)
    ways = [(500, 5, 8), (0, 0, 0), (5000, 9, 10)]
    assert ends[1] == "down"
    for n in (0, 2):
        at, way, rate = ways[n]
        assert ends[n] == at * MS + way * MS + on_the_line_ns(1000, rate * MBIT)


def test_between_nodes_of_one_site_only_a_rule_of_their_link_takes_time() -> None:
    assert found(sent=[(1, 0, 1, MB)]) == {0: S}
    assert int(found(rules={"0->1": {"latency": "3ms"}}, sent=[(1, 0, 1, 1000)])[0]) >= S + 3 * MS


def test_a_queue_of_packets_drops_no_message() -> None:
    rules = {"0": {"uplink": {"rate": "8Mbit", "queue": "50kB"}}, "5": {"downlink": {"rate": "8Mbit", "queue": "1kB"}}}
    sent = [(0, 0, 4, MB), (0, 0, 5, MB), (0, 2, 5, MB)]
    assert all(isinstance(end, int) for end in found(rules=rules, sent=sent).values())
    assert "queue" in arrivals(fleet(EIGHT), sent, rules).values()
