"""What senders offered over core links, by time: late reports divide the time since then anew."""

from __future__ import annotations

from netdfl.core.control import CoreRate
from netdfl.links.sharing.ways import NO_FLOW
from netdfl.underlay.offers import MOST_SAID, OfferHistory
from tests.underlay.core_traffic import EIGHT, CoreTraffic
from tests.underlay.sites import MBIT, MS

A, B, C = (0, 4), (1, 4), (2, 4)


def said(*entries: tuple[tuple[int, int], int, int]) -> OfferHistory:
    history = OfferHistory()
    for edge, offer, at_ms in entries:
        history.say(edge, offer, at_ms * MS)
    return history


def test_offers_hold_from_their_times_on_and_a_later_word_of_an_earlier_time_replaces_them() -> None:
    history = said((A, 5, 10), (B, 6, 20), (B, NO_FLOW, 40), (A, 7, 50))
    assert history.begins(10 * MS) == [10 * MS, 20 * MS, 40 * MS, 50 * MS]
    assert [history.between(at * MS, (at + 1) * MS) for at in (9, 10, 20, 40, 50)] == [
        {},
        {A: 5},
        {A: 5, B: 6},
        {A: 5},
        {A: 7},
    ]
    assert A in history
    assert B not in history
    assert history.edges == [A]
    history.say(A, 9, 30 * MS)
    assert history.between(50 * MS, None) == {A: 9}


def test_what_begins_within_a_span_counts_as_there_and_what_ends_does_too() -> None:
    history = said((A, 5, 10), (B, 6, 12), (A, NO_FLOW, 13))
    assert history.between(10 * MS, 15 * MS) == {A: 5, B: 6}
    assert history.between(10 * MS, 12 * MS) == {A: 5}
    assert history.between(13 * MS, None) == {B: 6}


def test_changes_near_to_one_another_are_one_but_the_last_one_is_a_time_of_its_own() -> None:
    """Else what has ended at the last one would count as there for good."""
    history = OfferHistory()
    for number in range(100):
        history.say((number % 4, 4), number, number * MS // 10)
    assert len(history.begins(0)) == 11
    assert history.begins(0)[-1] == 99 * MS // 10


def test_many_flows_are_divided_at_few_times() -> None:
    for num_flows, num_times in ((100, 17), (1000, 3)):
        history = OfferHistory()
        for number in range(num_flows):
            history.say((0, number), 1, number * MS)
        assert len(history.begins(0)) <= num_times + 1


def test_what_is_settled_is_not_divided_anew_and_forgotten_if_it_has_ended() -> None:
    history = said((A, 5, 10), (B, 6, 20), (B, NO_FLOW, 40), (C, 7, 70))
    history.settle(50 * MS)
    assert history.say(B, 8, 30 * MS) == 50 * MS
    assert history.between(50 * MS, 60 * MS) == {A: 5, B: 8}
    history.settle(20 * MS)
    assert history.floor_ns == 50 * MS
    history.say(A, NO_FLOW, 60 * MS)
    history.settle(80 * MS)
    assert history.between(80 * MS, None) == {B: 8, C: 7}


def rates(told: list[CoreRate]) -> list[tuple[int, int, float]]:
    return [(each.dst, each.since_ns // MS, each.rate_bps / MBIT) for each in told]


def test_each_sender_is_told_the_rates_of_all_times_since_the_earliest_change() -> None:
    core = CoreTraffic(EIGHT, []).division()
    core.take(0, [CoreRate(4, 20 * MBIT, 0)], 300 * MS)
    core.take(1, [CoreRate(4, 20 * MBIT, 80 * MS)], 300 * MS)
    told = core.news()
    assert rates([*told[0]]) == [(4, 0, 8), (4, 80, 4)], "alone until 80 ms"
    assert rates([*told[1]]) == [(4, 80, 4)]
    core.take(2, [CoreRate(4, 20 * MBIT, 40 * MS)], 300 * MS)
    told = core.news()
    third = int(8 * MBIT / 3) / MBIT
    assert rates([*told[0]]) == [(4, 40, 4), (4, 80, third)]
    assert rates([*told[1]]) == [(4, 80, third)]
    assert rates([*told[2]]) == [(4, 40, 4), (4, 80, third)]
    core.take(1, [CoreRate(4, NO_FLOW, 100 * MS)], 300 * MS)
    assert {src: rates([*each]) for src, each in core.news().items()} == {0: [(4, 100, 4)], 2: [(4, 100, 4)]}
    core.take(2, [CoreRate(4, NO_FLOW, 90 * MS)], 300 * MS)
    assert {src: rates([*each]) for src, each in core.news().items()} == {0: [(4, 90, 4), (4, 100, 8)]}


def test_nothing_is_divided_anew_from_before_a_change_of_core_links_but_a_new_message_is_told_of_all_its_time() -> None:
    core = CoreTraffic(EIGHT, [], entries=[{"at": "50ms", "core": "zurich->milan", "rate": "2Mbit"}]).division()
    core.take(0, [CoreRate(4, 20 * MBIT, 0)], 0)
    core.news()
    core.go_on(60 * MS)
    assert rates([*core.news()[0]]) == [(4, 50, 2)]
    core.take(1, [CoreRate(4, 20 * MBIT, 30 * MS)], 70 * MS)
    told = core.news()
    assert rates([*told[0]]) == [(4, 50, 1)]
    assert rates([*told[1]]) == [(4, 30, 1)]


def test_a_node_that_offers_without_waiting_is_not_remembered_without_an_end() -> None:
    """Its latest offers count, and each costs the same, however many came before."""
    history = OfferHistory()
    for at_ns in range(3 * MOST_SAID):
        history.say((0, 1), at_ns, at_ns)
    assert history.between(3 * MOST_SAID - 1, None) == {(0, 1): 3 * MOST_SAID - 1}
    assert history.between(10, 11) == {(0, 1): 10}
    assert history.between(MOST_SAID, MOST_SAID + 1) == {(0, 1): MOST_SAID - 2}
    history.say((0, 1), 7, 5)  # a report that comes late: what followed is void
    assert history.between(3 * MOST_SAID, None) == {(0, 1): 7}
