"""Rules that go by the round of a message, and a path's stages as they are made, changed, forgotten and made again."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.building import Maker
from netdfl.links.channel import Links
from netdfl.links.rules.base import DROPPED, HELD, Departure, Drop, RoundValues, Stage, Transit
from netdfl.links.rules.latency import Delay, Latency, constant
from netdfl.links.rules.loss import Bernoulli, GilbertElliott, Loss
from netdfl.links.rules.mahimahi import Opportunities, TraceRate
from netdfl.links.rules.rate import Rate, Shape
from netdfl.links.rules.state import LinkState
from netdfl.links.rules.tcp import Tcp, default_table
from netdfl.links.schedule.active_changes import UNSAID, EffectiveValue, Overlays, Piece, by_rounds, own_rules
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts
from netdfl.links.selectors import Block
from netdfl.links.spec import LinksSpec, choose

S = 10**9
LINK = (Block(frozenset([0]), frozenset([1])),)
ALL, NONE = Bernoulli(0, probability=1.0), Bernoulli(0, probability=0.0)


def unit(round: int = 0, nbytes: int = 100, *, src: int = 0, dst: int = 1, **more: int) -> Transit:
    return Transit(src, dst, Kind.DATA, round, more.get("step", 0), more.get("attempt", 0), nbytes)


def test_a_round_has_the_value_of_the_last_piece_that_began() -> None:
    pieces = RoundValues([(2, "a"), (4, None), (5, "b")])
    assert [pieces.at(round) for round in range(7)] == [None, None, "a", "a", None, "b", "b"]


def test_loss_and_state_by_rounds_stand_before_the_clocks() -> None:
    loss = Loss(ALL, RoundValues([(2, NONE), (4, None)]))
    assert [loss.advance(unit(round), 7) for round in (1, 2, 4)] == [DROPPED, 7, DROPPED]
    assert [Loss(None, RoundValues([(2, ALL)])).advance(unit(round), 7) for round in (1, 2)] == [7, DROPPED]
    state = LinkState("down_drop", RoundValues([(2, "up"), (4, None), (5, "down_hold")]))
    assert [state.advance(unit(round), 7) for round in (1, 2, 4, 5)] == [DROPPED, 7, DROPPED, HELD]
    assert len(state.held) == 1


@pytest.mark.parametrize(("round", "took"), [(0, 15), (2, 30), (4, 5), (6, 15), (8, 15)])
def test_latency_by_rounds_is_another_value_or_a_factor_on_the_clocks(round: int, took: int) -> None:
    five = constant(delay=5)
    stage = Latency(
        0, constant(delay=10), RoundValues([(2, (None, 2.0)), (4, (five, 1.0)), (6, (five, 3.0)), (8, None)])
    )
    assert list(stage.changed({"latency_scale": 1.5}, 0)) == []
    assert stage.advance(unit(round), 100) == 100 + took


@pytest.mark.parametrize(("round", "took"), [(0, 100), (2, 200), (4, 50), (6, 100), (8, 200), (9, 334)])
def test_a_rate_by_rounds_is_another_value_or_a_factor_on_the_clocks(round: int, took: int) -> None:
    """A byte takes a nanosecond; what is no whole number of them is rounded up."""
    stage = Rate(Shape(8e9))
    fast = 16e9
    stage.rounds = RoundValues([(2, (None, 0.5)), (4, (fast, 1.0)), (6, None), (8, (fast, 0.25)), (9, (None, 0.3))])
    assert stage.advance(unit(round), 1000) == 1000 + took


def set_(source: int, at_round: int | None = None, until: int | None = None, **more: Any) -> CompiledEvent:
    changes = more.pop("changes")
    head = {"at_round": at_round, "until_round": until, "cause": source, "blocks": LINK}
    return CompiledEvent("set", source, **{**head, **more}, parameters=changes)


def test_the_rounds_of_several_entries_are_cut_where_any_begins_or_ends() -> None:
    twice, plain = {"latency": {"scale": 2.0}}, {"latency": "5ms", "state": "down_drop"}
    latency = choose("latency", "5ms")
    events = [set_(1, 4, None, changes=plain), set_(0, 2, 6, changes=twice), set_(2, 7, 8, changes={"rate": "8bit"})]
    named = {"latency": EffectiveValue(latency), "state": EffectiveValue("down_drop")}
    assert by_rounds(events) == [
        Piece(2, {"latency": EffectiveValue(UNSAID, 2.0)}),
        Piece(4, named),
        Piece(6, named),
        Piece(7, named | {"rate": EffectiveValue(choose("rate", "8bit"))}),
        Piece(8, named),
    ]
    ended = by_rounds([set_(0, 2, 3, changes=plain)])
    assert ended == [Piece(2, named), Piece(3, {})]


# the stages of a link


def maker() -> Maker:
    return Maker(Streams(7), (0, 1))


def test_what_is_no_rule_has_a_stage_that_does_nothing_where_one_is_needed() -> None:
    keys = ("state", "loss", "duplicate", "corrupt", "rate", "latency", "reorder")
    base = dict.fromkeys(keys[1:], EffectiveValue(None)) | {"state": EffectiveValue("up")}
    stages = list(maker().stages(base, set(keys), ()))
    assert [type(stage).__name__ for stage in stages] == [
        *("LinkState", "Loss", "Duplicate", "Corrupt", "Rate", "Latency", "Reorder")
    ]
    for stage in stages:
        (outcome,) = stage.enter(unit(), 5)
        assert isinstance(outcome, Departure)
        assert (outcome.at_ns, outcome.unit.corrupted) == (5, False)
    assert next(maker().stages(base, {"rate"}, ())).changed({"rate_scale": 0.5}, 0) == []


def test_each_stage_draws_from_a_stream_of_its_own() -> None:
    base = {key: EffectiveValue(choose(key, 0.5)) for key in ("loss", "duplicate", "corrupt", "reorder")}
    base["latency"] = EffectiveValue(choose("latency", {"dist": "uniform", "low": 0, "high": 10**9}))
    loss, *rest = maker().stages(base, set(base), ())
    seeds = [loss.model.seed, *(stage.seed for stage in rest)]
    assert seeds == [
        Streams(7).integer("link", 0, 1, rule) for rule in ("loss", "duplicate", "corrupt", "latency", "reorder")
    ]


def test_by_rounds_a_stage_has_a_table_of_its_own_key_alone() -> None:
    base = own_rules(LinksSpec({"default": {"loss": 0.5, "rate": "8bit", "latency": "1s"}}, {}, 2), (0, 1)).values
    pieces = [
        Piece(3, {"loss": EffectiveValue(None), "state": EffectiveValue("down_drop")}),
        Piece(5, {"rate": EffectiveValue(UNSAID, 0.5)}),
    ]
    state, loss, rate, latency = maker().stages(base, {"state", "loss", "rate", "latency"}, pieces)
    assert [state.rounds.at(round) for round in (2, 3, 5)] == [None, "down_drop", None]
    table = loss.rounds
    assert (table.at(2), table.at(5), table.at(3).probability) == (None, None, 0.0)
    assert [rate.rounds.at(round) for round in (4, 5)] == [None, (None, 0.5)]
    assert latency.rounds is None
    up = [Piece(3, {"state": EffectiveValue("up")})]
    assert next(maker().stages(base, {"state"}, up)).rounds.at(3) is None
    whole = [
        Piece(
            1,
            {
                "rate": EffectiveValue(choose("rate", "16bit"), 0.5),
                "latency": EffectiveValue(choose("latency", "2s"), 3.0),
            },
        )
    ]
    rate, latency = maker().stages(base, {"rate", "latency"}, whole)
    assert rate.rounds.at(1) == (16.0, 0.5)
    assert latency.rounds.at(1) == (constant(delay=2 * S), 3.0)


def test_over_tcp_a_link_is_its_state_and_one_stage_for_the_rest() -> None:
    table = default_table()
    base = own_rules(LinksSpec({"default": {"loss": 0.01, "rate": "8Mbit", "latency": "1s"}}, {}, 2), (0, 1)).values
    assert list(maker().tcp(base, set(), table)) == []
    (tcp,) = maker().tcp(base, {"latency"}, table)
    assert isinstance(tcp, Tcp)
    assert (tcp.loss, tcp.rate, tcp.delay.constant_ns, tcp.seed) == (0.01, 8e6, S, maker().seed("tcp"))
    state, tcp = maker().tcp(base | {"state": EffectiveValue("down_drop")}, {"state"}, table)
    assert (type(state), state.state, type(tcp)) == (LinkState, "down_drop", Tcp)


# the links of a fleet


def links(block: dict[str, Any], *entries: dict[str, Any]) -> tuple[Links, list[CompiledEvent]]:
    events = compile_events(entries, Facts(4, Streams(7), {}, 100 * S, 50))
    return Links(LinksSpec(block, {}, 4), Streams(7), events), events


@pytest.mark.parametrize(("key", "place"), [("uplink", 0), ("downlink", 2)])
def test_a_nodes_change_reaches_each_unit_in_its_stage_on_its_path(key: str, place: int) -> None:
    node = "0" if key == "uplink" else "1"
    in_turn = {"rate": "800bit", "sharing": "fifo"}
    both = {"default": {"latency": "1s"}, "0": {"uplink": in_turn}, "1": {"downlink": in_turn}}
    net, (event, back) = links(both, {"at": "500ms", "for": "1s", "node": node, key: "x0.5"})
    path = net.path(0, 1)
    its = unit()
    assert [(type(each), each.at_ns) for each in path.stages[place].enter(its, 0)] == [(Departure, S)]
    (changed,) = net.apply(event, S // 2)
    assert isinstance(changed, Departure)
    assert (changed.unit, changed.at_ns) == (its, 3 * S // 2)
    (again,) = net.apply(back, S)
    assert again.at_ns == 5 * S // 4
    assert net.apply(back, S) == [], "it is as it was already"


def test_a_nodes_rate_that_changed_before_its_first_path_is_the_changed_one() -> None:
    in_turn = {"rate": "800bit", "sharing": "fifo"}
    net, (event,) = links({"0": {"uplink": in_turn}}, {"at": "1s", "node": 0, "uplink": "x0.5"})
    assert net.apply(event, S) == []
    (leaves,) = net.path(0, 2).stages[0].enter(unit(dst=2), 9 * S)
    assert leaves.at_ns == 11 * S


def test_what_is_no_change_by_the_clock_changes_no_path() -> None:
    entries = {"at_round": 3, "link": "0->1", "loss": 1}, {"at": "1s", "crash": 1}, {"at": "1s", "drop": "0->1"}
    net, events = links({"default": {"latency": "1s"}}, *entries)
    path = net.path(0, 1)
    assert [net.apply(event, S) for event in events] == [[], [], []]
    assert net.path(0, 1) is path
    (stage,) = path.stages
    assert [type(each).__name__ for each in stage.stages] == ["NamedLoss", "Loss", "Latency"]


def test_a_path_is_kept_until_it_is_forgotten_and_then_made_as_the_link_is_now() -> None:
    net, (event,) = links({"default": {"latency": "1s"}}, {"at": "1s", "link": "0->1", "latency": "3s"})
    path = net.path(0, 1)
    assert net.path(0, 1) is path
    net.forget(2, 3)
    net.forget(0, 1)
    assert net.apply(event, S) == []
    fresh = net.path(0, 1)
    assert fresh is not path
    (leaves,) = fresh.stages[0].enter(unit(), 0)
    assert leaves.at_ns == 3 * S


def test_another_copy_of_the_links_draws_the_same() -> None:
    net, _ = links({"default": {"loss": 0.5}})
    again, _ = links({"default": {"loss": 0.5}})
    sent = [unit(round) for round in range(40)]
    fates = [[type(each) for u in sent for each in one.path(0, 1).stages[0].enter(u, 0)] for one in (net, again)]
    assert fates[0] == fates[1]
    assert {Departure, Drop} == set(fates[0])


def test_changes_of_a_link_and_of_a_node_end_with_their_cause() -> None:
    overlays = Overlays()
    first, second = (
        set_(0, changes={"uplink": "8bit"}, blocks=(), nodes=(1, 2), at_ns=1),
        set_(1, changes={"rate": "8bit"}),
    )
    standing = set_(2, changes={"uplink": "9bit"}, blocks=(), nodes=(2,), cause=-1)
    for event in (first, second, standing):
        overlays.apply(event)
    assert [list(overlays.on_node(node)) for node in (1, 2, 3)] == [[first], [first, standing], []]
    assert list(overlays.on_link((0, 1))) == [second]
    over = CompiledEvent("unset", 0, cause=0, nodes=(1, 2))
    overlays.apply(over)
    overlays.apply(over)
    assert [list(overlays.on_node(node)) for node in (1, 2)] == [[], [standing]]
    assert list(overlays.on_link((0, 1))) == [second]
    overlays.apply(CompiledEvent("unset", 1, cause=1, blocks=LINK))
    assert list(overlays.on_link((0, 1))) == []


# small parts


class Passing(Stage):
    def advance(self, unit: Transit, now_ns: int) -> int:
        return now_ns


def test_a_stage_without_more_is_changed_by_nothing_and_never_rests() -> None:
    stage = Passing()
    assert (stage.instant, stage.reason, stage.rests(0)) == (True, "loss", False)
    assert list(stage.changed({"state": "down_reset"}, 0)) == []


def test_a_trace_that_is_reset_drops_what_has_not_left_and_begins_with_the_next_moment() -> None:
    stage = TraceRate(Opportunities((10, 20, 30, 40), queue_bytes=2000))
    first, second, third = unit(0, 1500), unit(1, 1500), unit(2, 100)
    assert [stage.advance(each, 5) for each in (first, second)] == [10, 20]
    assert list(stage.changed({"state": "down_drop"}, 10)) == []
    dropped = list(stage.changed({"state": "down_reset"}, 10))
    assert [(type(each), each.unit, each.reason) for each in dropped] == [(Drop, second, "reset")]
    assert list(stage.changed({"state": "down_reset"}, 11)) == []
    assert [stage.advance(third, 11), stage.advance(unit(3, 1500), 11)] == [20, 30]
    assert stage.advance(unit(4, 1500), 11) == DROPPED
    for key in ("rate", "rate_scale"):
        with pytest.raises(ValueError, match="a rate from a trace can't be changed"):
            stage.changed({key: 1.0}, 12)


def test_a_trace_counts_the_bytes_that_each_unit_had_though_one_stands_for_many() -> None:
    stage, one = TraceRate(Opportunities((10, 20, 30, 40), queue_bytes=2000)), unit(0, 1500)
    assert [stage.advance(one, 5), stage.advance(one, 5)] == [10, 20]
    one.nbytes = 100
    assert stage.advance(one, 11) == 30, "100 bytes wait, and 1500 are in service: the first has left"
    one.nbytes = 1950
    assert stage.advance(one, 11) == DROPPED


def test_latency_rests_from_the_moment_on_when_the_last_has_left() -> None:
    kept, fused = Latency(0, constant(delay=5)), Latency(0, constant(delay=5))
    assert kept.rests(0)
    kept.enter(unit(), 0)
    fused.advance(unit(), 0)
    assert [stage.rests(at_ns) for stage in (kept, fused) for at_ns in (4, 5)] == [False, True] * 2
    free = Latency(0, Delay(fifo=False, constant_ns=5))
    free.enter(unit(), 0)
    assert [free.rests(at_ns) for at_ns in (4, 5)] == [False, True]


def test_loss_rests_where_its_model_remembers_nothing_and_no_round_has_another() -> None:
    chain = GilbertElliott(0, p=0.5, r=0.5)
    assert [Loss(model).rests(0) for model in (None, NONE, chain, object())] == [True, True, False, False]
    assert not Loss(NONE, RoundValues([(2, ALL)])).rests(0)
