"""What a schedule says of a link at each moment: up or down, until when, by which entry, and what it loses for sure."""

from __future__ import annotations

from typing import Any

import pytest
from wait_graphs import fleet, is_

from netdfl.core.types import Kind
from netdfl.diagnosis.outages import BY_LINKS, EdgeOutage, Outages, divides
from netdfl.diagnosis.snapshot import EdgeNow, Snapshot, State
from netdfl.diagnosis.why import Divide
from netdfl.links.rules.base import Transit
from netdfl.links.schedule.events import STANDING, CompiledEvent
from netdfl.links.selectors import Block
from netdfl.links.spec import LinkSpec

LINK = (Block(frozenset([2]), frozenset([3])), Block(frozenset([1]), frozenset([0])))
OTHER = (Block(frozenset([0]), frozenset([1])),)


def on_link(action: str, source: int, at_ns: int | None, *, cause: int | None = None, **more: Any) -> CompiledEvent:
    """An event on the link 1->0; it ends with its cause, which is its entry where nothing else is said."""
    parameters = more.pop("parameters", {})
    given = source if cause is None else cause
    blocks = more.pop("blocks", LINK)
    return CompiledEvent(action, source, at_ns=at_ns, cause=given, blocks=blocks, parameters=parameters, **more)


def down(source: int, at_ns: int | None, state: str = "down_drop", **more: Any) -> CompiledEvent:
    return on_link("set", source, at_ns, parameters={"state": state}, **more)


def loses(source: int, at_ns: int | None, loss: object = 1, **more: Any) -> CompiledEvent:
    return on_link("set", source, at_ns, parameters={"loss": loss}, **more)


def over(source: int, at_ns: int | None, **more: Any) -> CompiledEvent:
    return on_link("unset", source, at_ns, **more)


UP = EdgeOutage()
TIMES: dict[str, tuple[list[CompiledEvent], dict[int, EdgeOutage]]] = {
    "down from the start": ([down(2, 0), over(2, 10)], {0: EdgeOutage(False, 10, False, 2), 10: UP, 11: UP}),
    "down for a while": (
        [down(2, 10, "down_hold"), over(2, 30)],
        {9: UP, 10: EdgeOutage(False, 30, True, 2), 29: EdgeOutage(False, 30, True, 2), 30: UP},
    ),
    "down twice": (
        [down(2, 10), over(2, 20), down(3, 30), over(3, 40)],
        {
            15: EdgeOutage(False, 20, False, 2),
            20: UP,
            25: UP,
            30: EdgeOutage(False, 40, False, 3),
            45: UP,
        },
    ),
    "two outages, one in the other": (
        [down(2, 10), down(3, 20, "down_reset"), over(3, 30), over(2, 40)],
        {
            15: EdgeOutage(False, 40, False, 2),
            25: EdgeOutage(False, 40, False, 3),
            35: EdgeOutage(False, 40, False, 2),
            40: UP,
        },
    ),
    "an outage that drops what another held": (
        [down(2, 10, "down_hold"), down(3, 20), over(3, 30)],
        {
            15: EdgeOutage(False, None, True, 2),
            25: EdgeOutage(False, None, False, 3),
            30: EdgeOutage(False, None, True, 2),
        },
    ),
    "down until something else is said": (
        [down(2, 10, cause=STANDING), on_link("set", 4, 20, cause=STANDING, parameters={"state": "up"})],
        {15: EdgeOutage(False, 20, False, 2), 20: UP},
    ),
    "another change meanwhile": (
        [down(2, 10), loses(3, 15), over(3, 18), over(2, 20)],
        {16: EdgeOutage(False, 20, False, 2), 19: EdgeOutage(False, 20, False, 2)},
    ),
    "a relative change meanwhile": (
        [on_link("set", 1, 5, parameters={"rate": {"scale": 0.5}, "latency": {"scale": 2}}), down(2, 10), over(2, 20)],
        {5: UP, 10: EdgeOutage(False, 20, False, 2), 20: UP},
    ),
    "another link meanwhile": (
        [down(2, 10), down(1, 15, blocks=OTHER), over(2, 20), over(1, 40, blocks=OTHER)],
        {16: EdgeOutage(False, 20, False, 2), 20: UP},
    ),
    "by rounds, of which the clock knows nothing": ([down(2, None, at_round=3)], {0: UP, 99: UP}),
}


@pytest.mark.parametrize("case", TIMES.values(), ids=TIMES)
def test_an_outage_is_known_from_its_first_instant_to_its_last(
    case: tuple[list[CompiledEvent], dict[int, EdgeOutage]],
) -> None:
    events, expected = case
    outages = Outages(events)
    assert {at_ns: outages.edge((1, 0), at_ns) for at_ns in expected} == expected
    assert {outages.edge((1, 3), at_ns) for at_ns in expected} == {UP}


def test_a_link_came_up_when_it_last_did() -> None:
    outages = Outages([down(2, 10), over(2, 20), loses(5, 25), over(5, 28), down(3, 30), over(3, 40)])
    healed = {
        (after_ns, now_ns): outages.healed_ns((1, 0), after_ns, now_ns)
        for after_ns in (5, 20, 35)
        for now_ns in (25, 28, 45)
    }
    assert healed == {
        (5, 25): 20,
        (5, 28): 20,
        (5, 45): 40,
        (20, 25): 20,
        (20, 28): 20,
        (20, 45): 40,
        (35, 25): 35,
        (35, 28): 35,
        (35, 45): 40,
    }
    assert outages.healed_ns((1, 0), 5, 20) == 20
    assert outages.healed_ns((1, 0), 5, 39) == 20
    brief = Outages([down(2, 9), over(2, 10), down(3, 20), down(4, 21), over(4, 22)])
    assert [brief.healed_ns((1, 0), 5, now_ns) for now_ns in (9, 10, 30)] == [5, 10, 10]


def test_the_next_crash_is_the_first_after_now() -> None:
    crashes = [
        CompiledEvent("crash", 0, at_ns=30, nodes=(1, 2)),
        CompiledEvent("crash", 1, at_ns=10, nodes=(2,)),
        CompiledEvent("crash", 2, at_round=1, nodes=(2,)),
        CompiledEvent("pause", 3, at_ns=50, nodes=(2,)),
    ]
    ends = {(node, now): Outages(crashes).ends_ns(node, now) for node in (0, 1, 2) for now in (0, 9, 10, 29, 30)}
    assert ends == {
        **{(0, now): None for now in (0, 9, 10, 29, 30)},
        **{(1, now): 30 if now < 30 else None for now in (0, 9, 10, 29, 30)},
        **{(2, now): 10 if now < 10 else 30 if now < 30 else None for now in (0, 9, 10, 29, 30)},
    }


def message(round: int = 4, *, kind: Kind = Kind.DATA, attempt: int = 0, src: int = 1) -> Transit:
    return Transit(src, 0 if src else 1, kind, round, 0, attempt, 0)


LISTED = {"model": "drop_list", "messages": [{"round": 4}]}
LOSERS: dict[str, tuple[list[CompiledEvent], dict[int, int | None]]] = {
    "a loss for a while": ([loses(2, 10), over(2, 20)], {9: None, 10: 2, 19: 2, 20: None}),
    "an outage for a while": ([down(2, 10), over(2, 20)], {9: None, 10: 2, 20: None}),
    "a reset": ([down(2, 10, "down_reset")], {9: None, 10: 2}),
    "an outage that holds": ([down(2, 10, "down_hold")], {10: None}),
    "a loss that is not sure": ([loses(2, 0, 0.99)], {0: None}),
    "a loss that is scaled": ([loses(2, 0, {"scale": 2})], {0: None}),
    "the last of two": ([loses(2, 0), loses(3, 10), over(3, 20)], {5: 2, 15: 3, 25: 2}),
    "a loss that is replaced": (
        [loses(2, 0, cause=STANDING), loses(3, 10, 0, cause=STANDING)],
        {5: 2, 10: None},
    ),
    "a change of another kind": (
        [loses(2, 0, cause=STANDING), on_link("set", 3, 10, cause=STANDING, parameters={"rate": "1mbit"})],
        {5: 2, 10: 2},
    ),
    "a chain that may lose it": (
        [loses(2, 0, {"model": "gilbert_elliott", "p": 0.5, "r": 0.5})],
        {0: None},
    ),
    "a list that names it": ([loses(2, 0, LISTED)], {0: 2}),
    "a list that names another": ([loses(2, 0, LISTED | {"messages": [{"round": 5}]})], {0: None}),
    "its rounds": ([loses(2, None, at_round=4, until_round=5)], {0: 2}),
    "earlier rounds": ([loses(2, None, at_round=2, until_round=4)], {0: None}),
    "later rounds": ([loses(2, None, at_round=5)], {0: None}),
}


@pytest.mark.parametrize("case", LOSERS.values(), ids=LOSERS)
def test_what_is_sure_to_lose_a_message_is_named(case: tuple[list[CompiledEvent], dict[int, int | None]]) -> None:
    events, expected = case
    outages = Outages(events)
    assert {at_ns: outages.loser(message(), at_ns) for at_ns in expected} == expected
    assert {at_ns: outages.is_lost(message(), at_ns) for at_ns in expected} == {
        at_ns: event is not None for at_ns, event in expected.items()
    }
    assert {outages.loser(message(src=0), at_ns) for at_ns in expected} == {None}


def test_links_that_lose_everything_are_to_blame_until_an_entry_replaces_them() -> None:
    outages = Outages([loses(2, 10, 0.5, cause=STANDING)], lambda edge: LinkSpec(loss=1))
    assert [outages.loser(message(), at_ns) for at_ns in (9, 10)] == [BY_LINKS, None]
    assert outages.is_lost(message(), 9)
    assert not Outages([]).is_lost(message(), 9)


def test_the_entry_that_drops_a_message_by_name_is_named() -> None:
    drops = [
        CompiledEvent("drop", 3, at_round=4, until_round=5, blocks=LINK, parameters={"kind": "data", "attempt": 0}),
        CompiledEvent("drop", 5, at_ns=10, blocks=LINK, parameters={"until_ns": 20}),
        CompiledEvent("delay", 6, at_ns=0, blocks=LINK, parameters={"by": 9}),
    ]
    outages = Outages(drops)
    assert outages.dropper(message(), 0) == 3
    assert outages.dropper(message(attempt=1), 0) is None
    assert outages.dropper(message(kind=Kind.NOTICE), 0) is None
    assert [outages.dropper(message(5), at_ns) for at_ns in (9, 10, 19, 20)] == [None, 5, 5, None]
    assert outages.dropper(message(src=0), 0) is None
    assert [outages.is_lost(message(round), 0) for round in (4, 5)] == [True, False]


# what links that are down divide


def linked(*pairs: tuple[int, int], down: tuple[tuple[int, int], ...] = ()) -> Snapshot:
    nodes = [is_(node, State.RUNNING) for node in range(6)]
    edges = {edge: EdgeNow() for src, dst in pairs for edge in ((src, dst), (dst, src))}
    return fleet(*nodes, edges=edges | {edge: EdgeNow(up=False) for edge in down})


BOTH = ((0, 3), (3, 0), (1, 3), (3, 1))
RING = ((0, 1), (1, 2), (3, 4), (4, 5))


def test_links_both_ways_divide_a_fleet_into_sides() -> None:
    assert divides(linked(*RING, down=BOTH), BOTH) == Divide(BOTH, ((0, 1, 2), (3, 4, 5)))
    around = linked(*RING, (2, 5), down=BOTH)
    assert divides(around, BOTH) is None
    three = (*BOTH, (4, 2), (2, 4))
    assert divides(linked((0, 1), (3, 5), down=three), three) == Divide(three, ((0, 1), (2,), (3, 5), (4,)))


def test_a_side_without_one_of_the_links_is_none() -> None:
    """Node 5 is by itself for another reason."""
    assert divides(linked((0, 1), (1, 2), (3, 4), down=BOTH), BOTH) == Divide(BOTH, ((0, 1, 2), (3, 4)))


def test_other_links_that_are_down_hold_no_side_together() -> None:
    apart = linked(*RING, down=(*BOTH, (2, 5), (5, 2)))
    assert divides(apart, BOTH) == Divide(BOTH, ((0, 1, 2), (3, 4, 5)))


def test_links_divide_though_they_are_up_by_now_and_one_of_them_divides_nothing() -> None:
    assert divides(linked(*RING, *BOTH), BOTH) == Divide(BOTH, ((0, 1, 2), (3, 4, 5)))
    more = (*BOTH, (0, 2), (2, 0))
    assert divides(linked(*RING, down=more), more) is None


def test_links_one_way_divide_sources_from_sinks() -> None:
    one_way = ((3, 0), (3, 1), (4, 1))
    assert divides(linked(*RING, down=one_way), one_way) == Divide(one_way, ((3, 4), (0, 1)), one_way=True)
    back = {edge: EdgeNow() for edge in ((0, 3), (1, 4))}
    snapshot = linked(*RING, down=one_way)
    other = fleet(*snapshot.nodes.values(), edges={**snapshot.edges, (4, 0): EdgeNow(up=False)})
    assert divides(other, one_way) == Divide(one_way, ((3, 4), (0, 1)), one_way=True)
    by_now = fleet(*snapshot.nodes.values(), edges={**snapshot.edges, **dict.fromkeys(one_way, EdgeNow())})
    assert divides(by_now, one_way) == Divide(one_way, ((3, 4), (0, 1)), one_way=True)
    both_up = fleet(*snapshot.nodes.values(), edges={**snapshot.edges, **back})
    assert divides(both_up, one_way) == Divide(one_way, ((3, 4), (0, 1)), one_way=True)
    beside = fleet(*snapshot.nodes.values(), edges={**snapshot.edges, (4, 0): EdgeNow()})
    assert divides(beside, one_way) is None


def test_a_chain_of_links_has_no_two_sides() -> None:
    chain = ((0, 1), (1, 2), (2, 3))
    ring = linked((0, 4), (4, 3), (1, 5), (5, 2), (4, 5), down=chain)
    assert divides(ring, chain) is None
    assert divides(linked(down=chain), chain) == Divide(chain, ((0,), (1,), (2,), (3,)))
