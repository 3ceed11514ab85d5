"""Whoever sends more than is needed is held back, or counts once: nothing that others send grows without bound."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc.aio
import msgpack
import numpy as np
import pytest
import torch

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.core.bounds import CALLS_BESIDE, STREAMS_A_PAIR, STREAMS_BESIDE, WINDOW, MemoryBounds
from netdfl.core.clock import RealClock
from netdfl.core.types import Kind, Message, Payload, StepId
from netdfl.host.blueprint import Blueprint
from netdfl.host.network import LOOKAHEAD_AT_HOME, message_options
from netdfl.node.mailbox import Mailbox
from netdfl.node.not_finite import NonFinitePolicy
from netdfl.node.requests import MOST_KEPT, Requests
from netdfl.node.runtime import Node
from netdfl.node.shares import weight_in
from netdfl.node.state_transfer import MOST_ANSWERS, StateTransfer
from netdfl.scenario.explain.explain import explain
from netdfl.scenario.load import loads
from netdfl.testing.transports import KeptLedger, KeptSink, vector_payload
from netdfl.transport import wire
from netdfl.transport.base import Fate, deliver_one
from netdfl.transport.grpc.chunks import split
from netdfl.transport.grpc.options import GrpcOptions
from netdfl.transport.grpc.receiving import MOST_ASSEMBLED, DataServicer, most_open
from netdfl.transport.security.identity import Identity
from netdfl.transport.v1.data_pb2 import HelloRequest, Receipt

RUN_ID, NBYTES, MB = b"run-0001", 1000, 10**6
ME = Identity(0, 0, RUN_ID, "abc")


def message(src: int, round: int, *, kind: Kind = Kind.DATA, attempt: int = 0, nbytes: int = NBYTES) -> Message:
    return Message(src, 9, kind, 0, round, 0, attempt, Payload(size=nbytes))


def share() -> Payload:
    """A share of push-sum of a thousand bytes."""
    return Payload(vector_payload(np.zeros(3)).arrays, {"w": 0.25}, size=NBYTES)


def nothing(*said: object) -> None:
    """Do nothing."""


# the mailbox


def test_early_messages_of_a_peer_are_held_back_beyond_its_bytes_and_taken_when_there_is_room() -> None:
    mailbox, roomy = Mailbox(keep_late=False, peer_bytes=3 * NBYTES), list[int]()
    early = [deliver_one(mailbox, message(1, round)) for round in range(5)]
    assert early == [Fate.DELIVERED] * 3 + [None] * 2
    assert deliver_one(mailbox, message(2, 0)) is Fate.DELIVERED, "what one sends costs no other"
    mailbox.when_room(lambda: roomy.append(1))
    for round in range(5):
        assert 1 in mailbox.open(StepId(round, 0), nothing)
        if round < 2:
            assert deliver_one(mailbox, message(1, round + 3)) is Fate.DELIVERED
            assert deliver_one(mailbox, message(1, round + 4)) is None
        assert {each.src for each in mailbox.close(StepId(round, 0))} >= {1}
    assert roomy == [1]
    assert mailbox.num_kept == 0


def test_the_awaited_message_and_the_only_one_of_a_peer_are_taken_however_long_they_are() -> None:
    mailbox = Mailbox(keep_late=False, peer_bytes=NBYTES)
    assert deliver_one(mailbox, message(1, 7, nbytes=9 * NBYTES)) is Fate.DELIVERED
    assert deliver_one(mailbox, message(1, 8)) is None
    mailbox.open(StepId(0, 0), nothing)
    assert deliver_one(mailbox, message(1, 0, nbytes=9 * NBYTES)) is Fate.DELIVERED
    assert deliver_one(mailbox, message(1, 7)) is Fate.DUPLICATE
    assert [each.round for each in mailbox.close(StepId(0, 0))] == [0]
    assert deliver_one(mailbox, message(1, 8)) is None
    assert [each.round for each in mailbox.take_early(StepId(7, 0))] == [7]
    assert deliver_one(mailbox, message(1, 8)) is Fate.DELIVERED


def test_late_mass_is_held_back_beyond_its_bytes_and_none_is_lost() -> None:
    mailbox = Mailbox(keep_late=True, peer_bytes=NBYTES, late_bytes=2 * NBYTES)
    mailbox.open(StepId(9, 0), nothing)
    mailbox.close(StepId(9, 0))
    assert [deliver_one(mailbox, message(1, round)) for round in range(4)] == [Fate.DELIVERED] * 2 + [None] * 2
    assert [each.round for each in mailbox.take_late()] == [0, 1]
    assert [deliver_one(mailbox, message(1, round)) for round in (2, 3)] == [Fate.DELIVERED] * 2
    assert [each.round for each in mailbox.take_late()] == [2, 3]


def test_a_node_that_has_finished_holds_nobody_back_and_keeps_of_late_mass_its_weight() -> None:
    mailbox = Mailbox(keep_late=True, peer_bytes=NBYTES, late_bytes=2 * NBYTES)
    mailbox.open(StepId(9, 0), nothing)
    mailbox.close(StepId(9, 0))
    late = [message(1, round)._replace(payload=share()) for round in range(9)]
    assert [deliver_one(mailbox, each) for each in late[:3]] == [Fate.DELIVERED] * 2 + [None]
    mailbox.finish()
    assert [deliver_one(mailbox, each) for each in late[2:]] == [Fate.DELIVERED] * 7
    assert [(each.round, len(each.payload.arrays)) for each in mailbox.unread()] == [
        (round, int(round < 2)) for round in range(9)
    ]
    assert weight_in(each.payload for each in mailbox.unread()) == 9 * 0.25


def test_a_node_that_has_finished_keeps_of_a_late_message_nothing_but_its_weight() -> None:
    mailbox = Mailbox(keep_late=True, peer_bytes=NBYTES, late_bytes=NBYTES)
    mailbox.open(StepId(9, 0), nothing)
    mailbox.close(StepId(9, 0))
    mailbox.finish()
    for round, more in enumerate(({"w": 0.5, "junk": "x" * NBYTES}, {"w": "0.5"}, {"w": [0.5]}, {})):
        deliver_one(mailbox, message(1, round)._replace(payload=Payload(meta=more, size=NBYTES)))
    assert [dict(each.payload.meta) for each in mailbox.unread()] == [{"w": 0.5}, {}, {}, {}]


@pytest.mark.parametrize(
    ("value", "late"),
    [
        ({}, False),
        ({"a": {}}, True),
        (1.5, True),
        ("two", False),
        (None, False),
        *(pytest.param(value, late, marks=pytest.mark.soak) for value in ([], [2**40]) for late in (False, True)),
        *(pytest.param(value, True, marks=pytest.mark.soak) for value in ({}, "two", None)),
        *(pytest.param(value, False, marks=pytest.mark.soak) for value in ({"a": {}}, 1.5)),
    ],
)
def test_metadata_counts_what_it_takes_in_memory(value: Any, late: bool) -> None:
    tracemalloc.start()
    before, kept, mailbox = tracemalloc.get_traced_memory()[0], 0, Mailbox(keep_late=True, peer_bytes=MB, late_bytes=MB)
    if late:
        mailbox.open(StepId(99, 0), nothing)
        mailbox.close(StepId(99, 0))
    packed = msgpack.packb({"values": [value] * 999})
    for round in range(99):
        payload = Payload(meta=msgpack.unpackb(packed), size=len(packed))
        kept += deliver_one(mailbox, message(1, round)._replace(payload=payload)) is Fate.DELIVERED
    del payload
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 0 < kept < 99
    assert taken < 1.3 * MB


def test_a_mailbox_without_bounds_of_bytes_keeps_late_mass_whole_to_the_end() -> None:
    mailbox = Mailbox(keep_late=True)
    mailbox.open(StepId(9, 0), nothing)
    mailbox.close(StepId(9, 0))
    mailbox.finish()
    assert deliver_one(mailbox, message(1, 3)._replace(payload=share())) is Fate.DELIVERED
    assert [len(each.payload.arrays) for each in mailbox.unread()] == [1]


def test_what_is_too_old_to_serve_is_dropped_and_not_held_back() -> None:
    mailbox = Mailbox(keep_late=False, stale=2, peer_bytes=NBYTES, late_bytes=NBYTES)
    mailbox.open(StepId(9, 0), nothing)
    mailbox.close(StepId(9, 0))
    assert [deliver_one(mailbox, message(1, round)) for round in (8, 9, 3)] == [Fate.DELIVERED, None, Fate.LATE]
    assert deliver_one(mailbox, message(1, 8)) is Fate.DUPLICATE


def test_a_mailbox_is_full_while_it_holds_anybody_back() -> None:
    mailbox = Mailbox(keep_late=False, peer_bytes=NBYTES, bound=3)
    assert deliver_one(mailbox, message(1, 5)) is Fate.DELIVERED
    assert deliver_one(mailbox, message(1, 6)) is None
    assert not mailbox.is_full
    mailbox.when_room(lambda: None)
    assert mailbox.is_full
    mailbox.make_room()
    assert not mailbox.is_full
    assert [deliver_one(mailbox, message(src, 5)) for src in (2, 3)] == [Fate.DELIVERED] * 2
    assert mailbox.is_full


def test_of_a_peer_so_many_requests_are_kept_and_no_other_pays_for_them() -> None:
    ledger: Any = SimpleNamespace(refused=nothing)
    requests, answered = Requests(ledger), list[tuple[int, int]]()
    asked = [requests.deliver(message(1, 0, kind=Kind.REQUEST, attempt=attempt)) for attempt in range(MOST_KEPT + 2)]
    assert asked == [Fate.DELIVERED] * MOST_KEPT + [None] * 2
    assert requests.deliver(message(2, 0, kind=Kind.REQUEST)) is Fate.DELIVERED
    requests.serve(lambda request: answered.append((request.src, request.attempt)))
    assert answered == [*((1, attempt) for attempt in range(MOST_KEPT)), (2, 0)]
    assert requests.deliver(message(1, 0, kind=Kind.REQUEST, attempt=MOST_KEPT)) is Fate.DELIVERED


def test_requests_that_were_held_back_come_again_once_somebody_answers() -> None:
    mailbox, ledger, answered = Mailbox(keep_late=False), KeptLedger(), list[int]()
    requests = Requests(ledger)  # type: ignore[arg-type]
    mailbox.on(Kind.REQUEST, requests.deliver)
    asked = [message(1, 0, kind=Kind.REQUEST, attempt=attempt) for attempt in range(MOST_KEPT + 1)]
    assert [deliver_one(mailbox, each) for each in asked][-1] is None
    mailbox.when_room(lambda: answered.append(deliver_one(mailbox, asked[-1]) is Fate.DELIVERED))
    node: Any = SimpleNamespace(requests=requests, non_finite=NonFinitePolicy("pass", ledger), mailbox=mailbox)  # type: ignore[arg-type]
    Node.serve(node, lambda request: None)
    assert answered == [True]


def test_who_fetches_without_end_gets_one_model_and_so_many_answers() -> None:
    sent, state = list[Message](), SimpleNamespace(round=4, model=lambda algorithm: torch.arange(3.0))
    node: Any = SimpleNamespace(
        id=0,
        epoch=0,
        latest=state,
        mailbox=Mailbox(keep_late=False),
        post=sent.append,
        algorithm=ALGORITHMS["dfedavg"].build(Exchange()),
    )
    StateTransfer(node)
    for attempt in range(200):
        assert deliver_one(node.mailbox, message(1, 0, kind=Kind.FETCH, attempt=attempt)) is Fate.DELIVERED
    deliver_one(node.mailbox, message(1, 0, kind=Kind.FETCH)._replace(epoch=1))
    deliver_one(node.mailbox, message(2, 0, kind=Kind.FETCH))
    assert [each.dst for each in sent] == [1] * MOST_ANSWERS + [1, 2]
    assert len({id(each.payload) for each in sent}) == 1


# calls


class Call:
    """The context of a call, and what comes over it."""

    def __init__(self, *data: bytes) -> None:
        self.data, self.status = list(data), ""

    def peer(self) -> str:
        return "ipv4:203.0.113.9:4711"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    async def read(self) -> object:
        if self.data:
            return self.data.pop(0)
        return await asyncio.Event().wait()

    async def write(self, receipt: Receipt) -> None:
        """Take an answer."""

    async def send_initial_metadata(self, metadata: object) -> None:
        """Take metadata."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.status = f"{code.name}: {details}"
        raise asyncio.CancelledError


def servicer(ledger: Any, **options: Any) -> DataServicer:
    """Node 0, which knows node 1."""
    made = DataServicer(ME, RealClock(), ledger, GrpcOptions(**options))
    made.attach(KeptSink())
    made.introduce(1)
    return made


def method(node: DataServicer, name: str) -> Any:
    """The handler of a method, as a server gets it."""
    return node.methods().service(SimpleNamespace(method=f"/netdfl.v1.Node/{name}", invocation_metadata=()))


async def greeted(node: DataServicer) -> None:
    said = {"protocol_version": wire.PROTOCOL_VERSION, "run_id": RUN_ID, "scenario_hash": "abc", "node": 1, "callee": 0}
    assert (await node.hello(HelloRequest(**said).SerializeToString(), Call())).accepted  # type: ignore[arg-type]


def pieces(round: int) -> Sequence[bytes]:
    """A message of node 1 in chunks."""
    big = Message(1, 0, Kind.DATA, 0, round, 0, 0, vector_payload(np.arange(4000.0)))
    return list(split(wire.FrameWriter(RUN_ID).header(big, 0), wire.FrameWriter.body(big.payload), 8000))


@asynccontextmanager
async def half_sent(node: DataServicer, number: int) -> AsyncIterator[tuple[list[asyncio.Task[Any]], list[Call]]]:
    """Messages of node 1 that stop after their first chunk."""

    async def first(round: int) -> AsyncIterator[bytes]:
        yield pieces(round)[0]
        await asyncio.Event().wait()

    calls = [Call() for _ in range(number)]
    serve = method(node, "PushChunks").stream_unary
    tasks = [asyncio.create_task(serve(first(round), call)) for round, call in enumerate(calls)]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    try:
        yield tasks, calls
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_half_sent_message_is_given_up_at_its_deadline_and_its_sender_named() -> None:
    ledger = KeptLedger()
    node = servicer(ledger, call_deadline=50_000_000)
    await greeted(node)
    async with half_sent(node, 1) as ((task,), _):
        receipt = await task
    assert receipt.fate == "refused:malformed"
    ((edge, reason, what),) = ledger.refusals
    assert (edge, reason) == ((1, 0), "malformed")
    assert "a message stopped before its end" in what


async def test_of_half_sent_messages_the_newest_stay_and_the_next_whole_one_is_taken() -> None:
    node = servicer(KeptLedger())
    await greeted(node)
    async with half_sent(node, 7) as (tasks, calls):
        await asyncio.wait(tasks[: 7 - MOST_ASSEMBLED])
        assert [task.done() for task in tasks] == [True] * (7 - MOST_ASSEMBLED) + [False] * MOST_ASSEMBLED
        assert {call.status.partition(":")[0] for call in calls if call.status} == {"UNAVAILABLE"}

        async def whole() -> AsyncIterator[bytes]:
            for piece in pieces(9):
                yield piece

        assert (await method(node, "PushChunks").stream_unary(whole(), Call())).fate == "delivered"


async def test_of_silent_streams_the_newest_stay_and_one_that_was_heard_is_never_ended() -> None:
    node = servicer(KeptLedger())
    await greeted(node)
    serve = method(node, "Push").stream_stream
    frame = wire.encode(Message(1, 0, Kind.DATA, 0, 0, 0, 0, vector_payload(np.zeros(3))), RUN_ID, 0)
    honest = asyncio.create_task(serve(None, Call(frame)))
    await asyncio.sleep(0.01)
    silent = [asyncio.create_task(serve(None, Call())) for _ in range(500)]
    await asyncio.sleep(0.05)
    assert not honest.done()
    assert len([each for each in silent if not each.done()]) < most_open(1)
    assert node.num_open <= most_open(1)
    for task in (honest, *silent):
        task.cancel()
    await asyncio.gather(honest, *silent, return_exceptions=True)


# what follows from the scenario


def test_a_server_opens_as_many_calls_as_the_pairs_of_a_connection_need() -> None:
    options = dict(GrpcOptions().server())
    assert options["grpc.max_concurrent_streams"] == STREAMS_A_PAIR + STREAMS_BESIDE
    assert options["grpc.server.max_pending_requests"] < 1000
    packed = MemoryBounds.of(num_nodes=1000, together=50, peers=10, directed=False, dim=10)
    assert packed.streams == STREAMS_A_PAIR * 50**2 + STREAMS_BESIDE
    assert packed.calls == STREAMS_A_PAIR * 50 * 10 + CALLS_BESIDE


@pytest.mark.parametrize(("topology", "window", "peers"), [("ring", WINDOW, 2), ("directed_ring", 100, 1)])
def test_bounds_follow_from_the_scenario_and_are_explained(topology: str, window: int, peers: int) -> None:
    algorithm = "sgp" if topology == "directed_ring" else "dpsgd"
    scenario = loads(
        f"{{schema: netdfl/1, name: bounded, nodes: 100, rounds: 3, task: {{kind: consensus, dim: 1000}}, "
        f"algorithm: {algorithm}, topology: {topology}}}"
    )
    bounds = explain(scenario).bounds
    assert (bounds.window, bounds.peers, bounds.frame_bytes) == (window, peers, 8000 + 65536)
    assert bounds.mailbox_bytes == peers * window * bounds.frame_bytes
    assert explain(scenario).to_json()["bounds"] == bounds.to_json()


@pytest.mark.parametrize(
    ("world", "asked", "lookahead"),
    [
        ("kind: processes", "", LOOKAHEAD_AT_HOME),
        ("kind: processes", "lookahead: 1MiB", 1 << 20),
        ("kind: processes, nodes_per_process: 2", "", GrpcOptions.lookahead),
        ("kind: slurm", "", GrpcOptions.lookahead),
    ],
    ids=["alone", "asked", "packed", "elsewhere"],
)
def test_little_is_read_ahead_where_nodes_of_one_machine_have_connections_of_their_own(
    world: str, asked: str, lookahead: int
) -> None:
    scenario = loads(
        f"{{schema: netdfl/1, name: bounded, nodes: 6, rounds: 3, task: {{kind: consensus}}, algorithm: dpsgd, "
        f"topology: ring, world: {{{world}}}, transport: {{{asked}}}}}"
    )
    options, bounds = message_options(Blueprint.of(scenario)), explain(scenario).bounds
    assert options.lookahead == lookahead
    assert (options.streams, options.calls) == (bounds.streams, bounds.calls)
    assert dict(options.server())["grpc.max_concurrent_streams"] == bounds.streams


def test_a_scenario_may_ask_for_more_calls() -> None:
    scenario = loads(
        "{schema: netdfl/1, name: bounded, nodes: 6, rounds: 3, task: {kind: consensus}, algorithm: dpsgd, "
        "topology: ring, transport: {streams: 7, calls: 9}}"
    )
    options = dict(message_options(Blueprint.of(scenario)).server())
    assert (options["grpc.max_concurrent_streams"], options["grpc.server.max_pending_requests"]) == (7, 9)
