"""A chance beside the draw that it is held against, to the last bit; small choices of how a link's stages are made."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from math import nextafter

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.channel import Links
from netdfl.links.rules.base import Departure, Drop, Transit
from netdfl.links.rules.disorder import Corrupt, Corruption, Duplicate, Duplication, Reorder, Reordering
from netdfl.links.rules.keyed_random import count_uniform, unit_uniform
from netdfl.links.rules.latency import Delay
from netdfl.links.rules.loss import Bernoulli, GilbertElliott
from netdfl.links.rules.rate import Shape
from netdfl.links.rules.tcp import Tcp, default_table, on_the_line_ns
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.selectors import parse_nodes
from netdfl.links.spec import LinksSpec
from tests.links.driving import drive

S = 10**9
SEED = 5


def unit(round: int = 3, nbytes: int = 100) -> Transit:
    return Transit(0, 1, Kind.DATA, round, 0, 0, nbytes)


def damaged(p: float) -> bool:
    sent = unit()
    Corrupt(SEED, Corruption(p, True)).advance(sent, 0)
    return sent.corrupted


CHANCES: dict[str, Callable[[float], bool]] = {
    "bernoulli": lambda p: Bernoulli(SEED, probability=p).lost(unit()),
    "in a good state": lambda p: GilbertElliott(SEED, p=0.0, r=1.0, loss_good=p).lost(unit()),
    "in a bad state": lambda p: GilbertElliott(SEED, p=1.0, r=0.0, loss_bad=p).lost(unit()),
    "duplicate": lambda p: len(Duplicate(SEED, Duplication(p)).copies(unit())) == 2,
    "corrupt": damaged,
    "reorder": lambda p: Reorder(SEED, Reordering(p, 10)).advance(unit(), 0) == 10,
}


@pytest.mark.parametrize("name", CHANCES)
def test_a_unit_is_hit_where_its_draw_lies_below_the_chance(name: str) -> None:
    draw, hit = unit_uniform(SEED, unit()), CHANCES[name]
    chances = (0.0, nextafter(draw, 0.0), draw, nextafter(draw, 1.0), 1.0)
    assert [hit(p) for p in chances] == [False, False, False, True, True]


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.ACK])
def test_a_chain_begins_and_changes_where_its_draws_lie_below_its_chances(kind: Kind) -> None:
    """The first draw of a chain says how it begins, by p / (p + r); p and r are chosen beside the draw of its step."""
    chain = SEED if kind is Kind.DATA else SEED ^ 1
    step = count_uniform(chain, 1)

    def states(p: float, r: float) -> list[bool]:
        model = GilbertElliott(SEED, p=p, r=r)
        return [model.lost(Transit(0, 1, kind, number, 0, 0, 1)) for number in range(2)]

    begins = count_uniform(chain, -1)
    assert [states(p, 1 - p)[0] for p in (nextafter(begins, 0), nextafter(begins, 1))] == [False, True]
    for chance, changes in ((nextafter(step, 0), False), (step, False), (nextafter(step, 1), True)):
        always, never = 1.0, 1e-9
        assert states(chance, always if chance / (chance + 1) < begins else 1e3)[1] is changes
        first, then = states(1.0, chance) if 1 / (1 + chance) > begins else (True, not changes)
        assert (first, then) == (True, not changes)
        assert states(never, always) == [False, False]


def links(block: dict[str, dict[str, object]], *entries: dict[str, object]) -> tuple[Links, list]:  # type: ignore[type-arg]
    events = compile_events(entries, Facts(2, Streams(1), {}, 100 * S))
    return Links(LinksSpec(block, {}, 2), Streams(1), events), events


def test_what_was_damaged_is_found_at_the_receiver_though_the_rule_has_ended_meanwhile() -> None:
    net, events = links({"default": {"latency": "2s"}}, {"at": "0s", "for": "1s", "link": "0->1", "corrupt": 1.0})
    found = drive(net, events, [(at, unit(at)) for at in (S // 2, 3 * S // 2)])
    assert [(each.unit.round, each.reason) for each in found] == [(S // 2, "corrupt"), (3 * S // 2, None)]


def test_a_node_whose_rate_was_doubled_before_its_first_message_serves_at_the_double() -> None:
    in_turn = {"rate": "800bit", "sharing": "fifo"}
    net, (event,) = links({"0": {"uplink": in_turn}}, {"at": "1s", "node": 0, "uplink": "x2"})
    assert net.apply(event, S) == []
    (leaves,) = net.path(0, 1).stages[0].enter(unit(), 9 * S)
    assert isinstance(leaves, Departure)
    assert leaves.at_ns == 9 * S + S // 2


def test_over_tcp_a_schedule_changes_the_loss_of_what_is_sent_later() -> None:
    spec = LinksSpec({"default": {"latency": "20ms"}}, {}, 2)
    (event,) = compile_events([{"at": "1s", "link": "0->1", "loss": 1.0}], Facts(2, Streams(1), {}, 100 * S))
    net = Links(spec, Streams(1), [event], default_table())
    stage = net.path(0, 1).stages[0]
    assert [type(each) for each in stage.enter(unit(), 0)] == [Departure]
    net.apply(event, S)
    assert [type(each) for each in stage.enter(unit(), S)] == [Drop]


def test_over_tcp_each_messages_excess_is_that_of_its_own_way() -> None:
    """Of messages of one size each meets its own round trip, not that of the one before."""
    table, rate, nbytes, found, expected = default_table(), 1e8, 10**6, [], []
    ways = [20 * 10**6, 50 * 10**6, 20 * 10**6]
    left = iter(ways)
    stage = Tcp(SEED, table, Bernoulli(0, probability=0.05), Shape(rate), Delay(True, quantile=lambda u: next(left)))
    for number, way in enumerate(ways):
        sent, now = unit(number, nbytes), 1000 * S * number
        found.append(stage.advance(sent, now) - now - way - on_the_line_ns(nbytes, rate))
        slices, coming = table.curve(nbytes, 0.05, 2 * way, rate)
        expected.append(int(slices[bisect_right(table.levels, unit_uniform(SEED, sent) / coming) - 1]))
    assert found == expected
    assert found[0] != found[1]


@pytest.mark.parametrize("text", ["[0, 1", "0, 1]", "[0", "1]"])
def test_a_list_of_nodes_has_both_its_brackets(text: str) -> None:
    with pytest.raises(ValueError, match="there is no group"):
        parse_nodes(text, {}, 4)
    assert parse_nodes("[0, 1]", {}, 4) == {0, 1}
