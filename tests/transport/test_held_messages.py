"""What a node holds of others' messages until they have crossed their emulated links: bounded, and only what is new."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netdfl
from netdfl.core.outcome import outcome_of
from netdfl.core.rng import Streams
from netdfl.core.types import Kind, Message, Payload
from netdfl.host.blueprint import Blueprint
from netdfl.host.network import PausableSink
from netdfl.links.channel import Links
from netdfl.links.spec import LinksSpec
from netdfl.node.delivery import NOT_ADMITTED, AcknowledgingTransport, ResendPolicy
from netdfl.scenario.load import loads
from netdfl.testing.transports import KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport.base import CheckingSink, Fate, Sink
from netdfl.transport.emulated.receipts import Receipts, SentMessage
from netdfl.transport.emulated.transport import HELD_BYTES, EmulatedTransport
from netdfl.transport.link_header import LinkHeader
from netdfl.transport.wire import frame_size
from tests.transport.virtual_nodes import MS, VirtualTime

PAYLOAD = vector_payload(np.zeros(1000, np.float32))
EACH = frame_size(PAYLOAD) + HELD_BYTES


class Receiving:
    """Node 0 of three, whose carrier is this test; `measured` has what was measured, `reports` the unread reports."""

    def __init__(self, sink: Sink, peer_bytes: int = 0, nodes: Any = None, seen_from: Any = None) -> None:
        self.clock, self.measured = VirtualTime(), list[tuple[int, ...]]()
        self.reads_reports, self.reports = True, list[Message]()
        self.transport = EmulatedTransport(
            0,
            lambda ledger: self,  # type: ignore[arg-type, return-value]
            Links(LinksSpec({"default": {"latency": "25ms"}, **(nodes or {})}, {}, 3), Streams(5), (), halves=True),
            (),
            clock=self.clock,
            ledger=KeptLedger(),
            seed=1,
            peer_bytes=peer_bytes,
            measure=lambda *times: self.measured.append(times),
        )
        (seen_from or self.transport).attach(sink)
        self.transport.begin()

    def attach(self, sink: Any) -> None:
        """Be the carrier."""

    def carry(self, message: Message, link_header: bytes) -> None:
        """Be the carrier: report to a sender, which reads its reports at once or not at all."""
        self.reports.append(message)
        if self.reads_reports:
            self.read_reports()

    async def hand_over(self) -> None:
        """Be the carrier: nothing waits."""

    def read_reports(self) -> list[Message]:
        """Answer all reports, as their receivers do once they have read them, and return them."""
        read, self.reports = self.reports, []
        for each in read:
            answer = outcome_of(each, 0, self.clock.now_ns(), self.clock.now_ns(), Fate.DELIVERED)
            self.transport.receipts.settled(answer, (each.payload,))
        return read

    def come(self, message: Message, due_ns: int) -> Fate | None:
        return self.transport.deliver_with_header(message, LinkHeader(1, due_ns - 25 * MS, due_ns).pack())

    def come_in_turn(self, messages: Sequence[Message], due_ns: int) -> None:
        """As gRPC offers the messages of one sender: each until it is taken."""
        if messages and self.come(messages[0], due_ns) is None:
            self.transport.when_room(lambda: self.come_in_turn(messages, due_ns))
        elif messages:
            self.come_in_turn(messages[1:], due_ns)


def message(src: int, round: int, payload: Payload = PAYLOAD) -> Message:
    return data_message((src, 0), round, payload)


def test_what_is_held_of_a_sender_is_bounded_and_another_does_not_feel_it() -> None:
    sink = KeptSink()
    node = Receiving(sink, peer_bytes=4 * EACH)
    fates = [node.come(message(1, round), 100 * MS) for round in range(300)]
    assert fates == [Fate.IN_FLIGHT] * 4 + [None] * 296
    assert node.come(message(2, 0), 100 * MS) == Fate.IN_FLIGHT
    node.clock.run()
    assert len(sink.messages) == 5
    assert node.come(message(1, 4), 200 * MS) == Fate.IN_FLIGHT


def test_messages_without_contents_are_bounded_too() -> None:
    node = Receiving(KeptSink(), peer_bytes=1 << 20)
    fates = [node.come(message(1, round, Payload()), 100 * MS) for round in range(2000)]
    assert 0 < fates.count(Fate.IN_FLIGHT) <= (1 << 20) / HELD_BYTES


def test_much_metadata_counts_what_it_takes_in_memory() -> None:
    node, much = Receiving(KeptSink(), peer_bytes=1 << 20), Payload(meta={"values": [[]] * 1000})
    fates = [node.come(message(1, round, much), 100 * MS) for round in range(30)]
    assert fates == [Fate.IN_FLIGHT] * 8 + [None] * 22
    node.clock.run()
    assert node.come(message(1, 8, much), 200 * MS) == Fate.IN_FLIGHT


def _told(reports: Sequence[Message]) -> list[int]:
    return [len(list(each.payload.meta["fates"])) for each in reports]  # type: ignore[call-overload]


def test_what_a_sender_does_not_read_of_its_messages_fates_is_bounded() -> None:
    """One report waits, the other fates are in the next, and what neither has told counts as held."""
    sink = KeptSink()
    node = Receiving(sink, peer_bytes=1 << 20)
    node.reads_reports = False
    for round in range(3000):
        node.come(message(1, round, Payload()), 0)
        node.come(message(1, round, Payload()), node.clock.now_ns() + MS)
        node.clock.run()
    assert len(sink.messages) <= (1 << 20) / HELD_BYTES + 3000  # what is due at once has its fate in the answer
    assert _told(node.reports) == [1]
    assert node.come(message(1, 0, Payload()), node.clock.now_ns() + MS) is None
    (first,) = node.read_reports()
    (second,) = node.reports
    assert sum(_told([first, second])) <= (1 << 20) / HELD_BYTES
    node.reads_reports = True
    node.read_reports()
    assert node.come(message(1, 0, Payload()), node.clock.now_ns() + MS) == Fate.IN_FLIGHT


def test_another_sender_does_not_feel_who_reads_no_reports() -> None:
    node = Receiving(KeptSink(), peer_bytes=2 * EACH)
    node.reads_reports = False
    node.come_in_turn([message(1, round) for round in range(9)], MS)
    assert node.come(message(2, 0), 2 * MS) == Fate.IN_FLIGHT
    node.clock.run()
    assert {each.dst for each in node.reports} == {1, 2}


async def test_all_fates_are_reported_by_a_node_that_leaves() -> None:
    """Also those that waited behind a report without an answer."""
    node = Receiving(KeptSink())
    node.reads_reports = False
    for round in range(3):
        node.come(message(1, round), node.clock.now_ns() + MS)
        node.clock.run()
    assert _told(node.reports) == [1]
    await node.transport.hand_over()
    assert _told(node.reports) == [1, 2]
    assert _told(node.read_reports()) == [1, 2]


def test_the_answer_to_a_report_is_not_taken_for_one_to_an_acknowledgement() -> None:
    """Node 0's acknowledgement of round 0 is on its way to node 1 while node 1 reads a report."""
    ledger = KeptLedger()
    receipts = Receipts(ledger, 0)
    acknowledgement = message(1, 0)._replace(src=0, dst=1, kind=Kind.ACK)
    receipts.add(SentMessage(acknowledgement, 40, 0))
    report = Receipts.report(0, 1, 0, [[1, "delivered", 5]])
    receipts.settled(outcome_of(report, 40, 0, 1, Fate.DELIVERED), (report.payload,))
    assert not ledger.rows


def test_what_a_receiver_says_it_holds_is_not_kept_by_its_sender() -> None:
    """Else a receiver that never reports could have its neighbors keep all models that they sent."""
    payload = vector_payload(np.zeros(1000, np.float32))
    before = sys.getrefcount(payload)
    receipts = Receipts(KeptLedger(), 0)
    receipts.add(SentMessage(data_message((0, 1), 0, payload), 4000, 0))
    assert sys.getrefcount(payload) > before
    held = outcome_of(data_message((0, 1), 0, PAYLOAD), 4000, 0, 1, Fate.IN_FLIGHT)
    receipts.settled(held, (PAYLOAD,))
    assert sys.getrefcount(payload) == before


def test_a_single_message_is_held_whatever_its_size() -> None:
    sink = KeptSink()
    node = Receiving(sink, peer_bytes=1)
    node.come_in_turn([message(1, round) for round in range(5)], 100 * MS)
    node.clock.run()
    assert [each.round for each in sink.messages] == list(range(5))


def test_who_has_more_on_a_slow_downlink_waits_and_all_comes_when_it_would() -> None:
    """The downlink is never idle, so it does not matter that the rest waits before it."""
    nodes = {"0": {"downlink": "1Mbit"}}
    ends = []
    for peer_bytes in (0, 3 * EACH):
        sink = KeptSink()
        node = Receiving(sink, peer_bytes, nodes)
        node.come_in_turn([message(1, round) for round in range(20)], 10 * MS)
        node.clock.run()
        assert sorted(each.round for each in sink.messages) == list(range(20))
        ends.append(node.clock.now_ns())
    assert ends[0] == ends[1]


def test_what_waited_for_room_is_not_measured() -> None:
    """It is late because of what its sender sent before, not because of the machine."""
    sink = KeptSink()
    node = Receiving(sink, peer_bytes=2 * EACH)
    node.come_in_turn([message(1, round) for round in range(3)], 100 * MS)
    node.come_in_turn([message(1, 3)], 60 * MS)
    node.clock.run()
    assert len(sink.messages) == 4
    assert {(due, at) for _, _, _, due, at in node.measured} == {(100 * MS, 100 * MS)}


def _door(refused: list[str]) -> PausableSink:
    blueprint = Blueprint.of(
        loads(
            "{schema: netdfl/1, name: held, nodes: 3, rounds: 16, task: {kind: consensus, dim: 8}, algorithm: dpsgd, "
            "topology: full, world: {kind: processes}}"
        )
    )
    mailbox = blueprint.mailbox()
    return PausableSink(mailbox, blueprint.admission(0, mailbox), lambda message, why: refused.append(why))


def test_what_no_member_sends_is_refused_before_it_is_held() -> None:
    refused: list[str] = []
    node = Receiving(_door(refused))
    assert node.come(message(1, 16), 1 << 59) == NOT_ADMITTED
    assert node.come(message(1, 1)._replace(kind=Kind.REQUEST), 1 << 59) == NOT_ADMITTED
    assert node.come(message(1, 15), 100 * MS) == Fate.IN_FLIGHT
    assert len(refused) == 2


def test_so_it_is_where_messages_are_acknowledged() -> None:
    refused: list[str] = []
    node = Receiving(KeptSink())
    delivery = AcknowledgingTransport(0, 0, node.transport, node.clock, ResendPolicy())
    assert isinstance(delivery, CheckingSink)
    delivery.attach(_door(refused))
    assert node.come(message(1, 16), 1 << 59) == NOT_ADMITTED
    acknowledgement = message(1, 3)._replace(kind=Kind.ACK)
    assert node.come(acknowledgement, 100 * MS) == Fate.IN_FLIGHT
    assert len(refused) == 1


def test_only_messages_that_the_mailbox_had_not_are_measured() -> None:
    node = Receiving(_door([]))
    for late_ns in range(50):
        node.clock.call_at(100 * MS + late_ns * MS, ("late",), lambda: node.come(message(1, 3), 100 * MS))  # type: ignore[arg-type]
    node.clock.run()
    assert [(due, at) for _, _, _, due, at in node.measured] == [(100 * MS, 100 * MS)]


@pytest.mark.parametrize(
    "more",
    [
        {"algorithm": "sgp", "topology": {"kind": "random_push", "out_neighbors": 2}, "delivery": "acknowledged"},
        {"algorithm": "ad_psgd", "topology": "ring"},
        {"algorithm": "dpsgd", "topology": "full", "wait": {"announce": True}},
    ],
    ids=lambda more: more["algorithm"],
)
def test_in_an_honest_fleet_nobody_is_refused(tmp_path: Path, more: Any) -> None:
    scenario = {
        "schema": "netdfl/1",
        "name": "honest",
        "nodes": 4,
        "rounds": 8,
        "world": {"kind": "tests.worlds.threads:THREADS"},
        "task": {"kind": "consensus", "dim": 8},
        "links": {"default": {"latency": "5ms", "downlink": "1Mbit"}},
    }
    result = netdfl.run({**scenario, **more}, out=tmp_path / "run", page=False).result
    reasons = [each for each in result["reasons"] if "the emulation missed its bound" not in each]  # a busy machine
    assert (reasons, result["refused"]) == ([], [])
