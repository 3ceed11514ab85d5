"""The orders of things (messages, timers) that are due at one instant: a proof tries them as it tries faults.

Things at different nodes commute: whichever comes first, each node handles its own things in the same order. So the
orders of each node are chosen separately, and of all orders that differ only in how things at different nodes
interleave, exactly one is run. (Sleep sets have the same effect; here the nodes of two things decide whether they
commute.)

Things at different nodes don't commute where nodes share a limited uplink, downlink or core link, nor at an instant at
which the supervisor answered a report. There, all orders of the instant are chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, permutations
from math import factorial

from netdfl.core.errors import InputError
from netdfl.core.types import Json, NodeId
from netdfl.prove.player import Play
from netdfl.prove.points import ORDERS_BETWEEN, FaultPoint, exact_time
from netdfl.scenario.build import build_links
from netdfl.scenario.model.schema import Scenario
from netdfl.worlds.simulated.instants import DueInstant

MOST_AT_ONCE = 7
"""The most things (messages, timers) of one instant that are put in every order: so many have 5,040 orders."""


@dataclass(frozen=True)
class OrderFinder:
    """A finder of the orders in which messages and timers due at one instant could have acted in a simulated run.

    With `commuting`, those at different nodes count as independent, so that only the orders of each node are found.
    """

    commuting: bool = True

    def points(self, play: Play) -> Iterator[FaultPoint]:
        """Yield, for each instant, the orders other than the usual one of messages and timers that don't commute.

        Raises InputError where these are very many.
        """
        for instant in play.instants:
            for nodes, usual in self._groups(instant):
                for order in _orders(instant.at_ns, usual):
                    event: Json = {"at": exact_time(instant.at_ns), "order": list(order)}
                    yield FaultPoint(instant.at_ns, ORDERS_BETWEEN, "order", nodes, order, event)

    def _groups(self, instant: DueInstant) -> Iterator[tuple[tuple[NodeId, ...], Sequence[str]]]:
        """Yield groups of messages and timers due at an instant that don't commute with each other, by their names.

        Each group comes with its node in a tuple; a group of all nodes comes with an empty tuple.
        """
        if not self.commuting or instant.answered:
            yield (), [name for name, _ in instant.things]
            return
        by_node: dict[NodeId, list[str]] = {}
        for name, node in instant.things:
            by_node.setdefault(node, []).append(name)
        yield from (((node,), names) for node, names in sorted(by_node.items()))


def _orders(at_ns: int, usual: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Return all orders of the messages and timers named in `usual`, except `usual` itself.

    Messages of one link stay in the order in which they were sent.

    Raises InputError for too many of them.
    """
    if len(usual) < 2:
        return ()
    if len(usual) > MOST_AT_ONCE:
        raise InputError(
            f"order: all: {len(usual)} things that don't commute are due at {exact_time(at_ns)}, which have "
            f"{factorial(len(usual)):,} orders; give nodes or links different times, or fewer neighbors"
        )
    return sorted(set(permutations(usual)) - {tuple(usual)})


def may_follow(point: FaultPoint, faults: Iterable[FaultPoint]) -> bool:
    """Return whether the order `point` can be added to `faults`: no order there has the same messages or timers."""
    same = [each for each in faults if each.kind == "order" and each.at_ns == point.at_ns]
    return all(each.nodes and each.nodes != point.nodes for each in same)


def beside(point: FaultPoint, faults: Sequence[FaultPoint]) -> tuple[FaultPoint, ...]:
    """Return `faults` with `point` added; an order of a whole instant replaces the orders of single nodes at it."""
    if point.kind == "order" and not point.nodes:
        faults = [each for each in faults if each.kind != "order" or each.at_ns != point.at_ns]
    return (*faults, point)


def count_orders(points: Iterable[FaultPoint]) -> int:
    """Return the number of ways to choose an order for each instant, including the usual orders."""
    total, orders = 1, [point for point in points if point.kind == "order"]
    for _, same in groupby(orders, key=lambda point: (point.at_ns, point.nodes)):
        total *= 1 + len(list(same))
    return total


def shares_capacity(scenario: Scenario) -> bool:
    """Return whether messages of different nodes can share a limited uplink, downlink or core link."""
    links = build_links(scenario)
    specs = [links.node(node) for node in range(scenario.num_nodes)]
    limited = any(spec.uplink is not None or spec.downlink is not None for spec in specs)
    return (
        limited or scenario.underlay is not None or any("node" in event or "core" in event for event in scenario.events)
    )
