"""What a multicast counts is what its messages count, one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.clock import RealClock
from netdfl.core.outcome import outcome_of
from netdfl.core.types import Kind, MessageId, Multicast, Payload, StepId
from netdfl.node.ledger import EdgeCount
from netdfl.testing.loopback import SilentRecorder
from netdfl.transport.base import Fate
from netdfl.worlds.simulated.ledger import SimulatedLedger

RECEIVERS = ((1, 2, 3), (2, 4), (1,))

STEPS = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1), st.integers(0, 1), st.booleans())


def ledger() -> SimulatedLedger:
    return SimulatedLedger(0, RealClock(), SilentRecorder())


def data(round: int, dsts: tuple[int, ...], incarnation: int = 0, step: int = 0) -> Multicast:
    return Multicast(0, dsts, MessageId(Kind.DATA, incarnation, StepId(round, step), 0, 0), (Payload(),) * len(dsts))


def told(count: EdgeCount) -> tuple[object, ...]:
    return count.sent, count.delivered, count.in_flight, [(slots.life, slots.runs) for slots in count.sent_steps]


@given(st.lists(STEPS, max_size=30), st.sets(st.integers(0, 29)))
def test_multicasts_are_counted_as_their_messages(
    steps: list[tuple[int, int, int, int, bool]], looks: set[int]
) -> None:
    """Rounds and steps go on, or jump; a life or the receivers change; some look at the counts meanwhile."""
    together, one_by_one = ledger(), ledger()
    round, epoch = 0, 0
    for number, (which, jump, step, born, delivered) in enumerate(steps):
        round, epoch = round + jump, epoch + born
        multicast = data(round, RECEIVERS[which], epoch, step)
        together.sent(multicast, 10 * len(multicast.dsts), 0)
        messages = multicast.messages
        for message in messages:
            one_by_one.sent(Multicast.of(message), 10, 0)
        for message in messages if delivered else messages[:1]:
            for each in (together, one_by_one):
                each.settled(outcome_of(message, 10, 0, 0, Fate.DELIVERED), (message.payload,))
        if number in looks:
            assert set(together.edges) == set(one_by_one.edges)
    assert {dst: told(count) for dst, count in together.edges.items()} == {
        dst: told(count) for dst, count in one_by_one.edges.items()
    }
    assert together.counts == one_by_one.counts
    assert together.bytes_sent == one_by_one.bytes_sent
