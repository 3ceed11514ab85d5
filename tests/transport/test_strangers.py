"""Whoever reaches a node's port may say anything: it is refused, counted and named, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import pytest
from bare_client import to
from grpc_fleet import OPTIONS, RUN_ID, grpc_fleet, make
from hypothesis import given, settings
from hypothesis import strategies as st

from netdfl.core.clock import NS_PER_S, RealClock
from netdfl.core.errors import MalformedMessage, TransportError
from netdfl.core.fates import Fate
from netdfl.core.types import Kind, Message, Payload, unicasts
from netdfl.node.ledger import EACH_RECORDED, NodeLedger
from netdfl.record.directory import RunDirectory
from netdfl.record.judge import ExitCode
from netdfl.record.observations import RunFacts
from netdfl.record.result import summarize
from netdfl.record.run import open_run
from netdfl.record.store import StoreWriter
from netdfl.testing.transports import KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport import wire
from netdfl.transport.base import MOST_NS
from netdfl.transport.control.rendezvous import Line, Rendezvous
from netdfl.transport.emulated.receipts import Receipts, SentMessage
from netdfl.transport.grpc.receiving import DataServicer
from netdfl.transport.grpc.sending import SERVICE
from netdfl.transport.link_header import LinkHeader
from netdfl.transport.security.identity import MOST_EPOCH, Identity
from netdfl.transport.v1.data_pb2 import HelloReply, HelloRequest, Receipt
from netdfl.transport.v1.meeting_pb2 import Answer, Call

MOST = 4294967295
ME = Identity(0, 0, RUN_ID, "abc")


class Caller:
    """The context of a call, as far as it is asked."""

    def peer(self) -> str:
        return "ipv4:203.0.113.9:4711"

    def invocation_metadata(self) -> tuple[()]:
        return ()


def inlet(ledger: Any) -> DataServicer:
    """Node 0, which knows node 1."""
    made = DataServicer(ME, RealClock(), ledger, OPTIONS)
    made.attach(KeptSink())
    made.introduce(1)
    return made


def hello(**changed: Any) -> bytes:
    said = {
        "protocol_version": wire.PROTOCOL_VERSION,
        "run_id": RUN_ID,
        "scenario_hash": "abc",
        "node": 1,
        "epoch": 0,
        "callee": 0,
    }
    return HelloRequest(**(said | changed)).SerializeToString()


@pytest.mark.parametrize(
    ("said", "edge", "words"),
    [
        ({"node": MOST}, None, f"node {MOST} is not a peer of node 0"),
        ({"node": MOST, "run_id": b"other"}, None, "comes with another run"),
        ({"node": 1, "run_id": b"x" * 100_000}, (1, 0), "comes with another run 7878"),
        ({"node": 7, "scenario_hash": "\x1b[2J\n" * 9000}, None, "scenario ?[2J??[2J?"),
        ({"epoch": MOST}, (1, 0), f"restarted {MOST} times, at most {MOST_EPOCH}"),
        ({"callee": MOST}, (1, 0), f"takes for node {MOST}, expected 0"),
        ({"protocol_version": MOST}, (1, 0), "another protocol version"),
    ],
)
async def test_a_hello_names_its_sender_only_where_that_is_a_peer(said: Any, edge: Any, words: str) -> None:
    ledger = KeptLedger()
    node = inlet(ledger)
    reply = await node.hello(hello(**said), Caller())
    assert not reply.accepted
    ((told, reason, what),) = ledger.refusals
    assert (told, reason) == (edge, "foreign")
    assert words in what
    assert what.endswith(" (from ipv4:203.0.113.9:4711)")
    assert len(what) < 500
    assert what.isprintable()
    assert (await node.hello(hello(), Caller())).accepted


@pytest.mark.parametrize(
    ("changed", "reason", "edge"),
    [
        ({"src": MOST}, "hello_first", None),
        ({"src": MOST, "round": -2}, "malformed", None),
        ({"round": -(1 << 31)}, "malformed", (1, 0)),
        ({"step": -1}, "malformed", (1, 0)),
        ({"epoch": MOST}, "hello_first", (1, 0)),
    ],
)
async def test_a_message_names_its_sender_only_where_that_is_a_peer(changed: Any, reason: str, edge: Any) -> None:
    ledger = KeptLedger()
    node = inlet(ledger)
    await node.hello(hello(), Caller())
    message = data_message((1, 0), 0, vector_payload(np.zeros(3, np.float32)))._replace(**changed)
    receipt = await node.take(wire.encode(message, RUN_ID, 0))
    assert receipt.fate == f"refused:{reason}"
    assert [(told, why) for told, why, _ in ledger.refusals] == [(edge, reason)]


async def test_a_flood_of_strangers_is_counted_and_does_not_fill_the_disk(tmp_path: Path) -> None:
    """And the verdict is what it was: nobody's number reaches the arithmetic."""
    run = RunDirectory.create(tmp_path, "q", 0, out=tmp_path / "run")
    run.write("scenario.yaml", "")
    with StoreWriter(run.path, "000") as store:
        node = inlet(NodeLedger(0, RealClock(), store))
        for number in range(20 * EACH_RECORDED):
            await node.hello(hello(node=MOST - number, run_id=b"foreign!"), Caller())
        await node.hello(hello(run_id=b"foreign!"), Caller())
    found = open_run(run.path)
    assert len(found.events.fetchall()) == EACH_RECORDED + 19 + 1
    facts = RunFacts(scenario="q", seed=0, world="processes", algorithm="dpsgd", nodes=2, rounds=1, duration_s=1.0)
    summary = summarize(found, facts)
    assert summary.judgement.exit_code is ExitCode.PASS
    strangers = {"src": None, "reason": "foreign", "messages": 20 * EACH_RECORDED, "first_round": -1, "nodes": [0]}
    refused: Any = summary.result["refused"]
    counted = [{name: each[name] for name in strangers} for each in refused]
    assert counted == [strangers | {"src": 1, "messages": 1}, strangers]


def test_a_record_with_a_strangers_number_is_judged(tmp_path: Path) -> None:
    """As nodes wrote them before they asked who a stranger is."""
    run = RunDirectory.create(tmp_path, "q", 0, out=tmp_path / "run")
    run.write("scenario.yaml", "")
    with StoreWriter(run.path, "000") as store:
        for src in (MOST, -1, "me", None, 1 << 80):
            store.event(0, 0, -1, "refused", reason="foreign", what="x", src=src)
    facts = RunFacts(scenario="q", seed=0, world="processes", algorithm="dpsgd", nodes=2, rounds=1, duration_s=1.0)
    summary = summarize(open_run(run.path), facts)
    assert summary.judgement.exit_code is ExitCode.PASS
    assert sum(each["messages"] for each in summary.result["refused"]) == 5


ODD_RECEIPTS = [
    Receipt(fate="delivered", arrived_ns=MOST_NS + 1),
    Receipt(fate="delivered", arrived_ns=-(1 << 63)),
    Receipt(fate="delivered:'; DROP TABLE", arrived_ns=1),
    Receipt(fate="late:" + "x" * 1000, arrived_ns=1),
    Receipt(fate="nothing that there is", arrived_ns=1),
    Receipt(),
]


@pytest.fixture
async def liar() -> AsyncIterator[tuple[str, list[Receipt]]]:
    """A server that welcomes everybody and answers with the receipts in the list."""
    answers: list[Receipt] = []

    async def welcome(data: bytes, context: Any) -> HelloReply:
        return HelloReply(accepted=True)

    async def take(frames: Any, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            await context.write(answers.pop(0))

    methods = {
        "Hello": grpc.unary_unary_rpc_method_handler(welcome, None, HelloReply.SerializeToString),
        "Push": grpc.stream_stream_rpc_method_handler(take, None, Receipt.SerializeToString),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", answers
    await server.stop(None)


async def test_a_receipt_that_no_node_gives_is_a_broken_call(liar: tuple[str, list[Receipt]]) -> None:
    address, answers = liar
    answers += [*ODD_RECEIPTS, Receipt(fate="delivered", arrived_ns=1)]
    ledger = KeptLedger()
    node = make(0, ledger)
    await node.start()
    node.set_peer(1, address)
    rounds = range(len(answers))
    await node.send(unicasts([data_message((0, 1), round, vector_payload(np.zeros(3))) for round in rounds]))
    await ledger.until_settled(len(rounds))
    await node.aclose()
    assert [row.fate.text for row in ledger.rows] == ["failed:broken_call"] * len(ODD_RECEIPTS) + ["delivered"]


async def test_a_real_fleet_goes_on_beside_a_stranger() -> None:
    ledger, sink = KeptLedger(), KeptSink()
    async with grpc_fleet(2, ledger) as (a, b):
        b.attach(sink)
        async with grpc.aio.insecure_channel(b.address) as channel:
            call = channel.unary_unary(f"/{SERVICE}/Hello", None, HelloReply.FromString)
            assert not (await call(hello(node=MOST, callee=1), metadata=to(1))).accepted
            assert not (await call(b"\xff" * 40, metadata=to(1))).accepted
        await a.send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(5)))]))
        await sink.until(1)
    assert [edge for edge, _, _ in ledger.refusals] == [None, None]


# nodes without a supervisor


@pytest.mark.parametrize(
    "changed",
    [{"node": MOST}, {"epoch": MOST}, {"phase": 99}, {"run_id": b"x"}, {"callee": MOST}, {"protocol_version": 7}],
)
async def test_a_meeting_refuses_what_no_node_says(changed: Any) -> None:
    rendezvous = Rendezvous(ME, range(2))
    said = {
        "protocol_version": wire.PROTOCOL_VERSION,
        "run_id": RUN_ID,
        "scenario_hash": "abc",
        "node": 1,
        "callee": 0,
        "phase": 1,
    }
    answer = await rendezvous.meet(Call(**(said | changed)), None)
    assert answer.refusal
    assert rendezvous.missing == [1]
    assert set(rendezvous.refused) <= {1}
    assert not (await rendezvous.meet(Call(**said), None)).refusal


@pytest.mark.parametrize(
    "answer",
    [
        Answer(run_id=b"short"),
        Answer(run_id=b""),
        Answer(run_id=RUN_ID, now_ns=MOST_NS + 1),
        Answer(run_id=RUN_ID, round=MOST),
        Answer(run_id=RUN_ID, known_epoch=MOST),
    ],
)
async def test_an_answer_that_no_node_gives_is_none(answer: Answer) -> None:
    async def meet(call: Call, context: Any) -> Answer:
        return answer

    handler = grpc.unary_unary_rpc_method_handler(meet, Call.FromString, Answer.SerializeToString)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("netdfl.v1.Meeting", {"Meet": handler}),))
    line = Line(1, f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    with pytest.raises(TransportError, match="answers what no node says"):
        await line.ask(Call(), 10)
    await line.aclose()
    await server.stop(None)


# anything at all

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


def numbers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1) | st.sampled_from([0, 1, (1 << bits) - 1])


def run(work: Callable[[], Any]) -> Any:
    return asyncio.run(work())


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=60)
    | st.builds(
        hello,
        node=numbers(32),
        epoch=numbers(32),
        callee=numbers(32),
        run_id=st.just(RUN_ID) | st.binary(max_size=9),
        scenario_hash=st.just("abc") | st.text(max_size=80),
    )
)
def test_any_hello_is_answered(data: bytes) -> None:
    ledger = KeptLedger()
    reply = run(lambda: inlet(ledger).hello(data, Caller()))
    assert reply.accepted == (not ledger.refusals)
    assert all(edge in (None, (1, 0)) and len(what) < 600 for edge, _, what in ledger.refusals)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(list(Kind)),
    *(numbers(32),) * 2,
    *(st.integers(-(1 << 31), (1 << 31) - 1),) * 2,
    numbers(16),
    st.binary(max_size=40),
)
def test_any_message_has_a_receipt(
    kind: Kind, src: int, epoch: int, round: int, step: int, attempt: int, link_header: bytes
) -> None:
    ledger = KeptLedger()

    async def work() -> Receipt:
        node = inlet(ledger)
        await node.hello(hello(), Caller())
        frame = wire.encode(Message(src, 0, kind, epoch, round, step, attempt, Payload()), RUN_ID, 0)
        return await node.take(wire.FrameWriter.with_link_header(frame, link_header) if link_header else frame)

    receipt = run(work)
    assert Fate.is_text(receipt.fate)
    assert (receipt.fate == "delivered") == (not ledger.refusals)
    assert all(edge in (None, (1, 0)) for edge, _, _ in ledger.refusals)


@given(plain | st.lists(st.tuples(st.integers(-1, 3), st.text(max_size=9) | st.just("late"), plain).map(list)))
def test_any_report_is_taken_or_malformed(fates: Any) -> None:
    ledger = KeptLedger()
    receipts = Receipts(ledger, 0)
    receipts.add(SentMessage(data_message((0, 1), 0, vector_payload(np.zeros(3))), 60, 0, there=True))
    try:
        receipts.take_report(Receipts.report(1, 0, 0, fates))
    except MalformedMessage:
        pass
    assert all(Fate.is_text(row.fate.text) and abs(row.arrived_ns or 0) <= MOST_NS for row in ledger.rows)


@given(
    st.binary(max_size=40)
    | st.builds(LinkHeader, *(st.integers(-(1 << 63), (1 << 63) - 1),) * 3, st.just(0), st.booleans()).map(
        LinkHeader.pack
    )
)
def test_any_link_header_is_read_or_malformed(data: bytes) -> None:
    try:
        link_header = LinkHeader.read(data)
    except MalformedMessage:
        return
    assert link_header.serial >= 0
    assert max(abs(link_header.sent_ns), abs(link_header.due_ns)) <= MOST_NS < 1000 * 365 * 86400 * NS_PER_S


@settings(deadline=None)
@given(
    st.builds(
        Call,
        protocol_version=st.just(wire.PROTOCOL_VERSION) | numbers(32),
        run_id=st.just(RUN_ID) | st.binary(max_size=9),
        scenario_hash=st.just("abc") | st.text(max_size=9),
        node=numbers(32),
        epoch=numbers(32),
        callee=st.just(0) | numbers(32),
        phase=st.integers(0, 5),
    )
)
def test_any_call_is_answered(call: Call) -> None:
    async def work() -> None:
        rendezvous = Rendezvous(ME, range(2))
        for _ in range(2):  # what it has heard stands in its next answer
            assert (await rendezvous.meet(call, None)).SerializeToString() is not None
        assert set(rendezvous.refused) <= {0, 1}

    run(work)
