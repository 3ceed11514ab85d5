"""A node's ledger against counts by hand: whatever is sent and becomes of it, in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.clock import RealClock
from netdfl.core.fates import FateClass, FateKind
from netdfl.core.outcome import Outcome, outcome_of
from netdfl.core.types import Kind, Message, Multicast, Payload
from netdfl.node.ledger import LAST, LAST_LOST, NodeLedger
from netdfl.testing.loopback import SilentRecorder
from netdfl.transport.base import Fate

SETTLED = [Fate(kind) for kind in FateKind if kind is not FateKind.IN_FLIGHT]
ARRIVED = (Fate.DELIVERED, Fate.LATE, Fate.DUPLICATE)
SENT = st.tuples(
    st.integers(1, 2), st.sampled_from([Kind.DATA, Kind.ACK, Kind.HEARTBEAT]), st.sampled_from([None, *SETTLED])
)


class Rows(SilentRecorder):
    """Keeps the rows of messages."""

    def __init__(self) -> None:
        self.kept: list[tuple[Outcome, Sequence[Payload]]] = []

    def outcome(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:  # type: ignore[override]
        self.kept.append((outcome, payloads))


@given(st.lists(SENT, max_size=60), st.randoms(use_true_random=False))
def test_what_was_sent_is_what_arrived_what_did_not_and_what_is_on_its_way(sent: list[Any], random: Any) -> None:
    rows = Rows()
    ledger = NodeLedger(0, RealClock(), rows)
    messages = [Message(0, dst, kind, 0, number, 0, 0, Payload()) for number, (dst, kind, _) in enumerate(sent)]
    for number, message in enumerate(messages):
        ledger.sent(Multicast.of(message), 10 + number, number)
    settled = [number for number, (_, _, fate) in enumerate(sent) if fate is not None]
    random.shuffle(settled)
    for number in settled:
        message = messages[number]
        outcome = outcome_of(message, 10 + number, number, number + 5, sent[number][2])
        ledger.settled(outcome, (message.payload,))
    assert rows.kept == [
        (Outcome(((0, m.dst),), m.id, 10 + n, n, n + 5, sent[n][2]), (m.payload,))
        for n, m in ((n, messages[n]) for n in settled)
    ]
    assert ledger.bytes_sent == sum(10 + number for number in range(len(sent)))
    counts = Counter(fate.counts_as for _, _, fate in sent if fate)
    assert ledger.counts.sent == len(sent)
    assert ledger.counts.unfinished == len(sent) - len(settled)
    for name in set(FateClass) - {FateClass.UNFINISHED}:
        assert getattr(ledger.counts, name) == counts[name]
    for dst in (1, 2):
        for aside, edges in ((False, ledger.edges), (True, ledger.aside)):
            of = [n for n, (to, kind, _) in enumerate(sent) if to == dst and (kind is Kind.HEARTBEAT) == aside]
            assert (dst in edges) == bool(of)
            if not of:
                continue
            edge, done = edges[dst], [n for n in settled if n in of]
            lost = [n for n in done if sent[n][2] not in ARRIVED]
            assert edge.flying == {m.id: n for n, m in enumerate(messages) if n in of and n not in done}
            assert (edge.sent, edge.lost, edge.delivered) == (len(of), len(lost), len(done) - len(lost))
            assert edge.in_flight == len(of) - len(done)
            assert dict(edge.dropped) == Counter(sent[n][2] for n in lost)
            assert [id.at.round for id, *_ in edge.last] == done[-LAST:]
            assert [id.at.round for id, *_ in edge.last_lost] == lost[-LAST_LOST:]
