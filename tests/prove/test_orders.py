"""Orders of what is due at one instant: how many there are, what they change, and which of them are the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest
import yaml

from netdfl.core.errors import InputError
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.prove.bound import read_bound
from netdfl.prove.counterexample import write_counterexample
from netdfl.prove.orders import OrderFinder
from netdfl.prove.player import Play
from netdfl.prove.points import FaultPoint
from netdfl.prove.proof import REDUCTIONS, ScenarioProof
from netdfl.prove.properties import choose_properties
from netdfl.scenario.load import load, loads
from tests.prove.naive import FLEET, PAIR
from tests.prove.planted import HiddenBug, comes_first
from tests.prove.test_counts import outcome, plays_of, proof

FIRST = {"wait": {"for": {"quorum": 1}, "deadline": "20ms"}}
"""A node mixes with the first message alone, so that it matters which that is."""
ONE = FLEET | FIRST | {"rounds": 1}
APART = {
    "links": {"default": {"latency": "5ms"}, "1->0": {"latency": "6ms"}, "2->0": {"latency": "6ms"}}
    | {"0->2": {"latency": "7ms"}, "1->2": {"latency": "8ms"}}
}
"""At 15 ms two messages are due at node 1, at 16 ms two at node 0."""
DEADLINE = {"links": {"default": {"latency": "5ms"}, "0->1": {"latency": "20ms"}}}
"""What node 0 says comes to node 1 at the instant of its deadline."""


def due(run: ExploredRun, *, by_node: bool) -> Iterator[tuple[int, int, list[str]]]:
    """From a record: each instant at which several things are due at a node, or anywhere in the fleet, with them."""
    found: dict[tuple[int, int], list[str]] = {}

    def add(at_ns: int | None, node: int, name: str) -> None:
        if at_ns is not None:
            found.setdefault((at_ns, node if by_node else -1), []).append(name)

    for m in run.rows.messages:
        add(m.arrived_ns, m.dst, f"{m.src}->{m.dst}")
    for node, round, at_ns in {(m.src, m.round, m.sent_ns) for m in run.rows.messages}:
        add(at_ns, node, f"train {node} {round}")
    for w in run.rows.waits:
        if w.deadline_ns is not None and w.until_ns >= w.since_ns + w.deadline_ns:
            add(w.since_ns + w.deadline_ns, w.node, f"wait {w.node} {w.round} {w.step}")
    return ((at_ns, node, names) for (at_ns, node), names in sorted(found.items()) if len(names) > 1)


def count_orders(plain: Mapping[str, Any], *, by_node: bool = True) -> int:
    """The number of all orders, each played by an executor: the next choice that is not made yet, in every way."""
    executor = Executor()

    def below(order: dict[str, list[str]], made: frozenset[tuple[int, int]]) -> int:
        world = {**plain["world"], "order": order}
        run = executor.run(load({**plain, "world": world}))
        for at_ns, node, names in due(run, by_node=by_node):
            if (at_ns, node) not in made:
                before = order.get(f"{at_ns}ns", [])
                return sum(
                    below({**order, f"{at_ns}ns": [*before, *each]}, made | {(at_ns, node)})
                    for each in permutations(names)
                )
        return 1

    return below({}, frozenset())


@pytest.mark.parametrize(
    ("plain", "many"),
    [
        (FLEET | {"rounds": 1}, 8),
        pytest.param(FLEET | {"rounds": 2}, 64, marks=pytest.mark.soak),
        (ONE | APART, 4),
        (PAIR | DEADLINE, 4),
    ],
    ids=["ring", "two rounds", "apart", "at a deadline"],
)
def test_there_are_as_many_orders_as_a_naive_enumeration_finds(plain: dict[str, Any], many: int) -> None:
    answer = proof(plain, "order: all", ("stall", "finish")).run()
    assert answer.survives
    assert answer.progress.schedules == answer.progress.played == count_orders(plain) == many


@pytest.mark.parametrize("most", [1, 2])
def test_losses_and_orders_are_counted_together(most: int) -> None:
    """Where losses change nothing of what is sent: the orders beside each set of losses."""
    plain = PAIR | DEADLINE
    sent = [(round, edge) for round in (0, 1) for edge in ("0->1", "1->0")]
    sets = [some for k in range(most + 1) for some in combinations(sent, k)]
    drops = [[{"at_round": round, "drop": edge} for round, edge in some] for some in sets]
    answer = proof(plain, f"loss: {most}, order: all", ("stall",)).run()
    assert answer.progress.schedules == sum(count_orders(plain | {"events": events}) for events in drops)


def test_three_losses_at_one_instant_are_each_counted_once() -> None:
    assert proof(FLEET | {"rounds": 1}, "loss: 3", ("stall",), without=REDUCTIONS).run().progress.schedules == 42


@pytest.mark.parametrize("plain", [ONE | APART, PAIR | DEADLINE | {"rounds": 1}], ids=["quorum", "deadline"])
def test_orders_at_different_nodes_change_neither_the_answer_nor_the_outcomes(plain: dict[str, Any]) -> None:
    whole, all_of = plays_of(proof(plain, "order: all", ("stall",), without=REDUCTIONS))
    answer, some = plays_of(proof(plain, "order: all", ("stall",)))
    assert answer.survives
    assert whole.survives
    assert whole.progress.schedules == len(all_of) == count_orders(plain, by_node=False) > len(some)
    assert {outcome(play) for play in some} == {outcome(play) for play in all_of}
    assert len({outcome(play) for play in some}) == len(some), "or nothing is shown"


def test_one_by_one_in_the_usual_order_is_the_same_run() -> None:
    """Where no node acts between two messages that come to it at one instant."""
    runs = [
        Executor().run(load({**FLEET, "world": {**FLEET["world"], **order}}))
        for order in ({}, {"order": {}}, {"order": {"15ms": ["2->1", "0->1", "again 1 7"]}})
    ]
    assert len({run.event_log_hash for run in runs}) == 1


def test_a_counterexample_has_the_order_and_shows_what_its_comment_says() -> None:
    """A message behind its deadline is missed, which takes another order alone."""
    plain, names = PAIR | DEADLINE | {"rounds": 1}, ("stall",)
    usual = outcome(proof(plain, "loss: 0", names).baseline)
    bound = dict(usual[3])["consensus_distance"] + 1e-9  # type: ignore[index]
    properties = choose_properties(load(dict(plain)), names, consensus=bound)
    assert ScenarioProof(load(dict(plain)), read_bound("loss: 0"), properties).run().survives
    answer = ScenarioProof(load(dict(plain)), read_bound("order: all"), properties).run()
    assert str(answer).startswith(
        "does not survive another order at 1 instant (bound: up to 0 faults; order: all; messages: data,"
    )
    text, sentence = write_counterexample(answer)
    assert yaml.safe_load(text)["world"]["order"] == {"30ms": ["wait 1 0 0", "0->1"]}
    assert sentence.startswith("the consensus distance is")
    assert f"# Event log: {Executor().run(loads(text)).event_log_hash}\n" in text


class NothingDepends(OrderFinder):
    """A wrong version, by which what is due at one node commutes as well."""

    def points(self, play: Play) -> Iterator[FaultPoint]:
        return iter(())


UPLINK = {"links": {"default": {"latency": "5ms"}, "0": {"uplink": "8Mbit"}}, "rounds": 1}
"""The messages of node 0 leave it one after the other, and come to nodes 1 and 2 at one instant."""


@pytest.mark.parametrize(
    ("plain", "hidden", "wrong"),
    [
        (FLEET | {"rounds": 1}, comes_first("src", 0, 2, of=1), NothingDepends()),
        (FLEET | UPLINK, comes_first("dst", 2, 1, of=0), OrderFinder(commuting=True)),
    ],
    ids=["one node", "a shared uplink"],
)
def test_a_bug_that_shows_in_one_order_is_hidden_by_a_wrong_idea_of_what_commutes(
    plain: dict[str, Any], hidden: HiddenBug, wrong: OrderFinder
) -> None:
    """In the usual order the fleet survives."""
    with hidden.planted():
        assert proof(plain, "loss: 0", ("stall",)).run().survives
        found = proof(plain, "order: all", ("stall",)).run()
        hiding = proof(plain, "order: all", ("stall",))
        hiding.enumeration.prefix_player = replace(hiding.enumeration.prefix_player, orders=wrong)
        assert hiding.run().survives, "what a wrong version would say"
    assert found.progress.broken is not None
    assert "the later one came first" in found.progress.broken[2]
    assert len(found.faults) == 1


def test_an_instant_that_the_supervisor_answers_is_put_in_order_as_a_whole() -> None:
    plain = FLEET | {"rounds": 1, "wait": {"deadline": "none", "on_stall": "skip"}}
    proven = proof(plain, "loss: 1, order: all", ("stall",))
    usual, skipped = (proven.player.play(events) for events in ([], [{"at_round": 0, "drop": "0->1"}]))
    assert {len(point.nodes) for point in OrderFinder().points(usual)} == {1}
    orders = [point for point in OrderFinder().points(skipped) if point.at_ns == skipped.instants[-1].at_ns]
    assert len(orders) == 120 - 1
    assert {point.nodes for point in orders} == {()}


@pytest.mark.parametrize(
    ("plain", "faults", "told"),
    [
        (FLEET | {"links": {"default": {}}}, "order: all", "give all links a latency"),
        (
            FLEET | {"nodes": 9, "topology": "full"},
            "order: all",
            "8 things that don't commute are due at 15ms, which have 40,320",
        ),
        (FLEET, "order: 2", "'order' is no kind of fault; use loss, crash, pause, cut, delay, order: all"),
        (FLEET, "loss: 2, order: all", "these are at least"),
        (
            FLEET | {"world": {"kind": "simulated", "order": {"1s": ["0-1"]}}},
            "loss: 1",
            "'0-1' names nothing that is due",
        ),
    ],
)
def test_what_is_too_much_or_can_not_be_ordered_is_refused(plain: dict[str, Any], faults: str, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        proof(plain, faults, ("stall",), most=10_000).run()
