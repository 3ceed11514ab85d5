"""Bytes are counted anew where a share becomes known late: of all messages of a node that have not left."""

from __future__ import annotations

import gc
import weakref

from netdfl.core.types import Edge, Kind
from netdfl.links.rules.base import Departure, Hold, StageOutcome, Transit
from netdfl.links.rules.rate import Shape
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.past import Past
from netdfl.links.sharing.stage import FairStage
from netdfl.links.sharing.told import ToldLink
from netdfl.links.sharing.ways import ToldWays

MBIT, S = 10**6, 10**9


class Unit(Transit):
    """A message whose end can be observed: it has no slots."""


class Node:
    """A node with an uplink of 8 Mbit/s and links to two others, the shares of which are told."""

    def __init__(self) -> None:
        self.network, self.uplink, self.ways = FairNetwork(Past()), SharedLink((0, 0), Shape(8 * MBIT)), ToldWays()
        self.told = {dst: ToldLink((0, dst), SharedLink((1, dst), Shape(8 * MBIT))) for dst in (1, 2)}
        self.stages = {dst: self.stage((0, dst), self.told[dst]) for dst in (1, 2)}

    def stage(self, edge: Edge, told: ToldLink) -> FairStage:
        return FairStage(self.network, edge, [self.uplink, told], judges=())

    def send(self, dst: int, at_s: float, number: int = 0) -> Transit:
        """Send a message of 1 MB, which is 8 Mbit."""
        unit = Unit(0, dst, Kind.DATA, number, 0, 0, 10**6)
        self.stages[dst].enter(unit, round(at_s * S))
        return unit

    def leave(self, unit: Transit, at_s: float) -> dict[int, float | None]:
        self.stages[unit.dst].left(unit, round(at_s * S))
        return self.share(at_s)

    def share(self, at_s: float) -> dict[int, float | None]:
        """When messages leave by the new shares, in s by receiver; None for those that stay."""
        return dict(map(seen, self.network.retimed(round(at_s * S))))

    def tell(self, dst: int, rate_bps: int, since_s: float) -> None:
        self.told[dst].take_share(rate_bps, round(since_s * S), self.network)


def seen(outcome: StageOutcome) -> tuple[int, float | None]:
    assert isinstance(outcome, Departure | Hold)
    return outcome.unit.dst, round(outcome.at_ns / S, 6) if isinstance(outcome, Departure) else None


def test_what_one_message_had_too_much_is_given_to_another_one_of_that_uplink() -> None:
    node = Node()
    node.send(1, 0)
    node.send(2, 0)
    assert node.share(0) == {1: 2, 2: 2}
    node.tell(1, MBIT, 0)
    assert node.share(0.5) == {1: 8, 2: round(8 / 7, 6)}, "as if known from the beginning"


def test_several_shares_of_several_times_come_at_once() -> None:
    node = Node()
    node.send(1, 0)
    node.share(0)
    for rate, since_s in ((4, 0.1), (2, 0.2), (1, 0.4)):
        node.tell(1, rate * MBIT, since_s)
    assert node.share(0.5) == {1: 0.4 + 8 - 0.8 - 0.4 - 0.4}
    node.tell(1, 3 * MBIT, 0.3)
    assert node.share(0.6) == {1: round(0.3 + (8 - 0.8 - 0.4 - 0.2) / 3, 6)}


def test_a_message_that_began_since_then_counts_only_from_its_beginning() -> None:
    node = Node()
    node.send(1, 0)
    node.share(0)
    node.send(2, 0.4)
    assert node.share(0.4) == {1: 1.6, 2: 2.4}
    node.tell(1, MBIT, 0.2)
    assert node.share(0.6) == {1: 0.2 + 8 - 1.6, 2: round(0.4 + 8 / 7, 6)}


def test_a_message_that_has_left_keeps_what_it_had() -> None:
    node = Node()
    first = node.send(2, 0)
    node.send(1, 0)
    assert node.share(0) == {1: 2, 2: 2}
    assert node.leave(first, 1) == {1: 1.5}, "handed over early, so that 4 Mbit are left"
    node.tell(1, 6 * MBIT, 0.5)
    assert node.share(1) == {1: round(1 + 4 / 6, 6)}, "the other one had its half until 1 s"


def test_what_happened_before_all_that_is_kept_counts_from_there() -> None:
    node = Node()
    node.send(1, 0)
    node.share(0)
    for number in range(100):
        node.network.touch(node.uplink)
        node.share(0.001 * number)
    node.tell(1, MBIT, 0)
    (left_s,) = node.share(0.1).values()
    assert left_s is not None
    assert 7.5 < left_s < 8, "not from the beginning, which is forgotten"


def test_no_message_that_has_left_is_kept() -> None:
    node = Node()
    unit = node.send(1, 0)
    node.share(0)
    node.leave(unit, 1)
    found = weakref.ref(unit)
    del unit
    gc.collect()
    assert found() is None


def test_a_message_over_core_links_leaves_only_when_a_share_has_come_or_none_will() -> None:
    for is_told in (True, False):
        node = Node()
        way = node.ways.add((0, 1), SharedLink((9,), Shape(8 * MBIT)))
        node.stages[1] = node.stage((0, 1), way)
        node.send(1, 0)
        assert node.share(0) == {}
        way.news()
        if is_told:
            way.take_share(4 * MBIT, 0, node.network)
        else:
            node.ways.go(node.network)
        assert node.share(1.5) == {1: 2 if is_told else 1}, "a time that may have passed"


def test_a_message_that_goes_on_after_a_stop_is_told_of_as_a_new_one() -> None:
    node = Node()
    node.send(1, 0)
    node.share(0)
    assert node.told[1].news()[1:] == (10**6, 8 * MBIT, 0)  # type: ignore[index]
    flow = next(iter(node.stages[1].flows.values()))
    flow.stop(S // 4)
    node.network.frees(flow)
    node.share(0.25)
    assert node.told[1].news() == (0, 0, 0, S // 4)
    flow.go_on(S // 2)
    node.network.crosses(flow)
    node.share(0.5)
    assert node.told[1].news() == (2, 10**6, 8 * MBIT, S // 2)
