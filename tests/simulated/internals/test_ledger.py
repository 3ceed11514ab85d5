"""What is counted for several edges at once is, by edge, what is counted message by message."""

from __future__ import annotations

from netdfl.core.clock import RealClock
from netdfl.core.types import Kind, MessageId, Multicast, Payload, StepId
from netdfl.node.ledger import EdgeCount
from netdfl.testing.loopback import SilentRecorder
from netdfl.worlds.simulated.ledger import MOST_SENT, SimulatedLedger


def ledger() -> SimulatedLedger:
    return SimulatedLedger(0, RealClock(), SilentRecorder())


def data(round: int, dsts: tuple[int, ...], incarnation: int = 0, step: int = 0) -> Multicast:
    return Multicast(0, dsts, MessageId(Kind.DATA, incarnation, StepId(round, step), 0, 0), (Payload(),) * len(dsts))


def told(count: EdgeCount) -> tuple[object, ...]:
    return count.sent, count.delivered, count.in_flight, [(slots.life, slots.runs) for slots in count.sent_steps]


def test_a_node_with_the_same_receivers_keeps_one_line() -> None:
    found = ledger()
    for round in range(10 * MOST_SENT):
        found.sent(data(round, (1, 2, 3)), 30, 0)
    assert len(found._sent) == 1
    assert [told(count)[0] for count in found.edges.values()] == [10 * MOST_SENT] * 3


def test_lines_of_changing_receivers_are_written_down_before_there_are_many() -> None:
    found = ledger()
    for round in range(10 * MOST_SENT):
        found.sent(data(round, (1 + round % 5, 7)), 30, 0)
        assert len(found._sent) <= MOST_SENT
    assert sum(count.sent for count in found.edges.values()) == 20 * MOST_SENT
