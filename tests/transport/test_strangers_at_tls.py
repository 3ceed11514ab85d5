"""Where TLS is on, whoever is not of the run is refused, counted and named, by a client that is not netdfl's."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
import trustme
from bare_client import CHUNKS, HELLO, PUSH, channel, proof, to
from grpc_fleet import RUN_ID, assert_foreign, connect, grpc_fleet, make, until

from netdfl.core.control import EVALUATOR, Hello
from netdfl.core.errors import TransportError
from netdfl.core.types import Kind, Message, unicasts
from netdfl.testing.transports import KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport import wire
from netdfl.transport.control.attendance import Attendee, ControlClient, ControlServer, control_channels
from netdfl.transport.control.rendezvous import READY, RUNNING, Line, Rendezvous, make_call
from netdfl.transport.grpc.chunks import split
from netdfl.transport.grpc.transport import GrpcTransport
from netdfl.transport.security.authority import Authority
from netdfl.transport.security.credentials import SUPERVISOR, Credentials, name_of
from netdfl.transport.security.identity import Identity
from netdfl.transport.security.secret import FleetSecret
from netdfl.transport.security.tls import why_not
from netdfl.transport.v1.data_pb2 import HelloReply, HelloRequest, Receipt

RUN = RUN_ID.hex()
OURS, OTHERS = Authority.make(RUN), Authority.make(RUN)
NODE_0 = name_of(RUN, 0)
SECRET = FleetSecret(text="secret")


def fleet(ledger: KeptLedger) -> AbstractAsyncContextManager[Sequence[GrpcTransport]]:
    """Three nodes with mutual TLS; all write into `ledger`."""
    return grpc_fleet(3, ledger, authority=OURS)


async def assert_undisturbed(nodes: Sequence[GrpcTransport], ledger: KeptLedger) -> None:
    """Node 1 reaches node 0, in frames and in chunks."""
    sink = KeptSink()
    nodes[0].attach(sink)
    settled = len(ledger.rows)
    for round, size in enumerate((5, 1 << 20)):
        await nodes[1].send(unicasts([data_message((1, 0), round, vector_payload(np.zeros(size, np.float32)))]))
    await sink.until(2)
    await ledger.until_settled(settled + 2)
    assert [row.fate.text for row in ledger.rows[settled:]] == ["delivered"] * 2


def said_hello(node: int, epoch: int = 0) -> bytes:
    return HelloRequest(
        protocol_version=wire.PROTOCOL_VERSION, run_id=RUN_ID, scenario_hash="abc", node=node, epoch=epoch, callee=0
    ).SerializeToString()


async def say_hello(address: str, credentials: grpc.ChannelCredentials | None, node: int = 1, epoch: int = 0) -> str:
    """Why node 0 refuses this hello; empty: it does not."""
    async with channel(address, credentials, NODE_0) as opened:
        data = await opened.unary_unary(HELLO)(said_hello(node, epoch), timeout=20, metadata=to(0))
    reply = HelloReply.FromString(data)
    assert bool(reply.reason) != reply.accepted
    return reply.reason


async def test_a_fleet_talks_and_nobody_is_a_stranger() -> None:
    ledger = KeptLedger()
    async with fleet(ledger) as nodes:
        await assert_undisturbed(nodes, ledger)
    assert ledger.refusals == []


def host_of(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def selfmade() -> grpc.ChannelCredentials:
    """A certificate with node 1's names, of an authority of the stranger's own."""
    theirs = trustme.CA().issue_cert(name_of(RUN, 1), f"epoch-0.{name_of(RUN, 1)}")
    return grpc.ssl_channel_credentials(
        OURS.issue(0, 0).authority.encode(), theirs.private_key_pem.bytes(), theirs.cert_chain_pems[0].bytes()
    )


STRANGERS = {
    "without a certificate": grpc.ssl_channel_credentials(OURS.issue(0, 0).authority.encode()),
    "with one of its own making": selfmade(),
    "of another run": proof(OTHERS.issue(1, 0), OURS.issue(0, 0).authority),
    "a node that certifies another": proof(OURS.of_node(2).issue(1, 0)),
    "in plain text": None,
}


@pytest.mark.parametrize("which", STRANGERS)
async def test_who_is_no_member_never_gets_to_a_call(which: str) -> None:
    ledger = KeptLedger()
    async with fleet(ledger) as nodes:
        with pytest.raises(grpc.aio.AioRpcError):
            await say_hello(nodes[0].address, STRANGERS[which])
        await until(lambda: bool(ledger.refusals))
        await assert_undisturbed(nodes, ledger)
    assert_foreign(ledger, "no certificate of the run was shown")


@pytest.mark.parametrize(
    ("method", "metadata", "said", "words"),
    [
        ("/netdfl.v1.Meeting/Meet", to(0), "Method not found!", "Meeting/Meet: nobody answers such calls here"),
        (PUSH, (), "version", "Node/Push: version"),
    ],
)
async def test_a_member_whose_call_is_none_is_counted_once_and_named(
    method: str, metadata: tuple[tuple[str, str], ...], said: str, words: str
) -> None:
    ledger = KeptLedger()
    async with fleet(ledger) as nodes:
        async with channel(nodes[0].address, proof(OURS.issue(1, 0)), NODE_0) as opened:
            with pytest.raises(grpc.aio.AioRpcError, match=said):
                await opened.unary_unary(method)(b"", timeout=20, metadata=metadata)
        with socket.create_connection(host_of(nodes[0].address)):
            pass
        await until(lambda: len(ledger.refusals) == 2)  # who comes after it is seen to have left, too
        await assert_undisturbed(nodes, ledger)
    (_, _, first), (_, _, second) = ledger.refusals
    assert words in first
    assert ", node 1 of epoch 0 by its certificate)" in first
    assert "ended before TLS knew it" in second


async def test_whoever_connects_and_says_nothing_is_counted_when_it_leaves() -> None:
    ledger = KeptLedger()
    async with fleet(ledger) as nodes:
        host, _, port = nodes[0].address.rpartition(":")
        with socket.create_connection((host, int(port))) as silent:
            mine = silent.getsockname()[1]
            await assert_undisturbed(nodes, ledger)
            assert ledger.refusals == []
        await until(lambda: bool(ledger.refusals))
    ((edge, _, what),) = ledger.refusals
    assert edge is None
    assert f"from 127.0.0.1, port {mine}," in what


@pytest.mark.parametrize(
    ("shown", "said", "edge", "words"),
    [
        ((2, 0), (1, 0), (2, 0), "node 2 of epoch 0, by its certificate, says that it is node 1 of epoch 0"),
        ((1, 0), (1, 1), (1, 0), "node 1 of epoch 0, by its certificate, says that it is node 1 of epoch 1"),
        ((1, 0), (1, 0), (1, 0), "node 1 was restarted 3 times, not 0"),
        ((1, 2), (1, 2), (1, 0), "node 1 was restarted 3 times, not 2"),
        ((9, 0), (9, 0), None, "node 9 is not a peer of node 0"),
        ((SUPERVISOR, 0), (1, 3), None, "the supervisor of epoch 0, by its certificate, says that it is node 1"),
        ((EVALUATOR, 0), (1, 3), None, "the evaluator of epoch 0, by its certificate, says that it is node 1"),
    ],
)
async def test_a_hello_is_taken_from_whom_the_certificate_names_alone(
    shown: tuple[int, int], said: tuple[int, int], edge: Any, words: str
) -> None:
    """And of a node that was restarted, from its newest life alone: node 0 was told of it, and has not heard it yet."""
    ledger = KeptLedger()
    async with fleet(ledger) as nodes:
        nodes[0].set_peer(1, nodes[1].address, epoch=3)
        assert await say_hello(nodes[0].address, proof(OURS.issue(*shown)), *said) == "not of this fleet"
        assert not await say_hello(nodes[0].address, proof(OURS.issue(1, 3)), 1, 3)
    ((told, reason, what),) = ledger.refusals
    assert (told, reason) == (edge, "foreign")
    assert words in what
    assert "from ipv4:127.0.0.1:" in what


@pytest.mark.parametrize("chunks", [False, True])
@pytest.mark.parametrize(("shown", "named"), [((2, 0), (2, 0)), ((1, 1), (1, 0)), ((9, 0), None)])
async def test_a_message_is_taken_from_whom_the_certificate_names_alone(
    shown: tuple[int, int], named: Any, chunks: bool
) -> None:
    """Node 1 has said hello, so its number and its epoch are good; it is another that uses them."""
    ledger, sink = KeptLedger(), KeptSink()
    message = Message(1, 0, Kind.DATA, 0, 0, 0, 0, vector_payload(np.zeros(3)))
    pieces = split(wire.FrameWriter(RUN_ID).header(message, 0), wire.FrameWriter.body(message.payload), 1 << 19)
    async with fleet(ledger) as nodes:
        await assert_undisturbed(nodes, ledger)
        nodes[0].attach(sink)
        async with channel(nodes[0].address, proof(OURS.issue(*shown)), NODE_0) as opened:
            if chunks:
                data = await opened.stream_unary(CHUNKS)(pieces, timeout=20, metadata=to(0))
            else:
                call = opened.stream_stream(PUSH)(metadata=to(0))
                await call.write(wire.encode(message, RUN_ID, 0))
                data = await call.read()
                call.cancel()
        assert Receipt.FromString(data).fate == "refused:foreign"
    assert sink.messages == []
    ((edge, reason, what),) = ledger.refusals
    assert (edge, reason) == (named, "foreign")
    assert "by its certificate, says that it is node 1 of epoch 0" in what


def bare_tls(host: str, port: int) -> None:
    with suppress(ssl.SSLError), socket.create_connection((host, port)) as line:
        context = ssl.create_default_context()
        context.wrap_socket(line, server_hostname=NODE_0)


def bare_grpc(host: str, port: int) -> None:
    with grpc.secure_channel(f"{host}:{port}", proof(OURS.issue(1, 0))) as opened, suppress(grpc.RpcError):
        opened.unary_unary(HELLO)(said_hello(1), timeout=20)


def says(words: bytes) -> Callable[[str, int], None]:
    def speak(host: str, port: int) -> None:
        with socket.create_connection((host, port)) as line, suppress(ConnectionError):
            line.sendall(words)
            while line.recv(100):
                pass

    return speak


def silent(host: str, port: int) -> None:
    with socket.create_connection((host, port)):
        time.sleep(1.3)


STRANGERS_IN_PLAIN = {
    "TLS of gRPC": bare_grpc,
    "TLS of OpenSSL": bare_tls,
    "silence": silent,
    "another protocol": says(b"GET / HTTP/1.1\r\n\r\n"),
    "much of nothing": says(bytes(1 << 20)),
}


only_linux = pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="only Linux tells of connections that ended")


@only_linux
@pytest.mark.parametrize("which", STRANGERS_IN_PLAIN)
async def test_who_speaks_no_http_to_a_plain_port_is_counted_and_named_there(which: str) -> None:
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger) as nodes:
        host, _, port = nodes[0].address.rpartition(":")
        await assert_undisturbed(nodes, ledger)
        await asyncio.to_thread(STRANGERS_IN_PLAIN[which], host, int(port))
        await until(lambda: bool(ledger.refusals))
        await assert_undisturbed(nodes, ledger)
    assert_foreign(ledger, "ended before it spoke HTTP/2")


async def test_a_peer_that_leaves_a_plain_port_as_it_comes_is_no_stranger() -> None:
    ledger, plain = KeptLedger(), make(0)
    node = make(0, ledger)
    address = await node.start()
    node.set_peer(1, await plain.start())
    host, _, port = address.rpartition(":")
    for number in range(20):
        socket.create_connection((host, int(port))).close()
        async with channel(address, None) as opened:
            call = opened.unary_unary(HELLO)(said_hello(1), metadata=to(0))
            await asyncio.sleep(0.001 * number)
            call.cancel()
    assert await why_not(address, 0, None) == ""
    await asyncio.gather(node.aclose(), plain.aclose())
    assert ledger.refusals == []


@only_linux
async def test_the_supervisors_plain_port_tells_of_strangers_too() -> None:
    refused: list[str] = []
    server = ControlServer(SECRET, lambda who, report: None, on_refused=refused.append)
    host, _, port = (await server.start()).rpartition(":")
    await asyncio.to_thread(bare_grpc, host, int(port))
    await until(lambda: bool(refused))
    await server.aclose()
    assert "a connection from 127.0.0.1, port " in refused[0]


async def test_tls_to_a_plain_port_is_refused_and_the_caller_says_why() -> None:
    ledger, plain = KeptLedger(), make(0)
    mine = make(1, ledger, credentials=OURS.issue(1, 0))
    await connect([plain, mine])
    with pytest.raises(grpc.aio.AioRpcError):
        await say_hello(plain.address, proof(OURS.issue(1, 0)))
    await mine.send(unicasts([data_message((1, 0), round, vector_payload(np.zeros(3))) for round in range(3)]))
    await ledger.until_settled(3)
    await asyncio.gather(plain.aclose(), mine.aclose())
    assert {row.fate.text for row in ledger.rows} == {"failed:unavailable"}
    assert ledger.refusals == [((1, 0), "foreign", f"who listens at {plain.address} speaks no TLS, and this node does")]


@pytest.mark.parametrize("theirs", [OURS.issue(2, 0), OTHERS.issue(0, 0)])
async def test_a_node_that_is_not_whom_it_is_asked_for_gets_no_message(theirs: Credentials) -> None:
    ledger, other = KeptLedger(), make(0, credentials=theirs)
    mine = make(1, ledger, credentials=OURS.issue(1, 0))
    await connect([other, mine])
    await mine.send(unicasts([data_message((1, 0), 0, vector_payload(np.zeros(3)))]))
    await ledger.until_settled(1)
    await asyncio.gather(other.aclose(), mine.aclose())
    assert ledger.rows[0].fate.text == "failed:unavailable"
    ((edge, reason, what),) = ledger.refusals
    assert (edge, reason) == ((1, 0), "foreign")
    assert f"who listens at {other.address} has a certificate, but not that of node 0 of this run" in what


# nodes without a supervisor


@pytest.mark.parametrize(
    ("shown", "said", "words"),
    [
        ((1, 0), (1, 0), ""),
        ((2, 0), (1, 0), "node 2 of epoch 0, by its certificate, says that it is node 1"),
        ((1, 0), (1, 2), "node 1 of epoch 0, by its certificate, says that it is node 1 of epoch 2"),
    ],
)
async def test_whoever_calls_a_meeting_is_who_its_certificate_says(
    shown: tuple[int, int], said: tuple[int, int], words: str
) -> None:
    ledger, meeting = KeptLedger(), Rendezvous(Identity(0, 0, RUN_ID, "abc"), range(3))
    node = make(0, ledger, credentials=OURS.issue(0, 0), services=[meeting.service])
    line = Line(0, await node.start(), OURS.issue(*shown))
    reply = await line.ask(make_call(Identity(said[0], said[1], RUN_ID, "abc"), READY), 20)
    assert reply.answer.refusal == ("not of this fleet" if words else "")
    assert words in meeting.refused.get(1, "")
    assert meeting.missing == ([1, 2] if words else [2])
    await asyncio.gather(line.aclose(), node.aclose())


async def test_an_earlier_life_is_refused_by_the_meeting_that_heard_a_later_one() -> None:
    meeting = Rendezvous(Identity(0, 0, RUN_ID, "abc"), range(3))
    node = make(0, credentials=OURS.issue(0, 0), services=[meeting.service])
    address = await node.start()
    answers = []
    for epoch in (1, 0):
        line = Line(0, address, OURS.issue(1, epoch))
        reply = await line.ask(make_call(Identity(1, epoch, RUN_ID, "abc"), RUNNING), 20)
        answers.append(reply.answer.refusal)
        await line.aclose()
    await node.aclose()
    assert answers == ["", "not of this fleet"]
    assert meeting.refused == {1: "node 1 was restarted 1 times, not 0"}


async def test_a_line_says_why_tls_fails() -> None:
    plain = make(0)
    line = Line(0, await plain.start(), OURS.issue(1, 0))
    with pytest.raises(TransportError, match="speaks no TLS, and this node does"):
        await line.ask(make_call(Identity(1, 0, RUN_ID, "abc")), 20)
    await asyncio.gather(line.aclose(), plain.aclose())


async def test_a_plain_line_says_why_nobody_answers() -> None:
    certified = make(0, credentials=OURS.issue(0, 0))
    line = Line(0, await certified.start())
    with pytest.raises(TransportError, match="speaks TLS, and this node does not"):
        await line.ask(make_call(Identity(1, 0, RUN_ID, "abc")), 20)
    await asyncio.gather(line.aclose(), certified.aclose())


# the control plane


class Supervision:
    """A supervisor with TLS, and what it heard."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.hellos: list[int] = []
        self.refused: list[str] = []
        credentials = OURS.issue(SUPERVISOR, 0)
        self.server = ControlServer(SECRET, self.hear, host, credentials, self.refused.append)
        for node in (EVALUATOR, 1, 2):
            self.server.expect(node, 0)

    def hear(self, attendee: Attendee, report: object) -> None:
        self.hellos.append(attendee.hello.node)

    async def attended(self, address: str, credentials: Credentials | None, node: int = 1, epoch: int = 0) -> str:
        """Why a node can't attend; empty: it can."""
        hello = Hello(
            node=node, role="client", pid=1, address="here", protocol_version=wire.PROTOCOL_VERSION, epoch=epoch
        )
        try:
            client = await ControlClient.connect(
                address, hello, lambda order: None, lambda why: None, control_channels(SECRET, credentials)
            )
        except TransportError as error:
            return str(error)
        await client.aclose()
        return ""


@pytest.mark.parametrize(
    ("credentials", "node", "epoch", "words"),
    [
        (OURS.issue(2, 1), 1, 1, "not of this fleet"),
        (OURS.issue(1, 0), 1, 1, "not of this fleet"),
        (OURS.issue(1, 0), 1, 0, "not of this fleet"),
        (OTHERS.issue(1, 1), 1, 1, "has a certificate, but not that of the supervisor of this run"),
        (None, 1, 1, "can't attend"),
    ],
)
async def test_who_may_not_attend_is_refused_and_told(
    credentials: Credentials | None, node: int, epoch: int, words: str
) -> None:
    supervision = Supervision()
    address = await supervision.server.start()
    supervision.server.expect(1, 1)
    assert words in await supervision.attended(address, credentials, node, epoch)
    await until(lambda: bool(supervision.refused))
    assert all("127.0.0.1" in what for what in supervision.refused)
    assert not await supervision.attended(address, OURS.issue(1, 1), 1, 1)
    assert not await supervision.attended(address, OURS.issue(EVALUATOR, 0), EVALUATOR)
    assert supervision.hellos == [1, EVALUATOR]
    await supervision.server.aclose()


async def test_a_socket_in_the_file_system_can_have_tls_too(tmp_path: Any) -> None:
    folder = os.open(tmp_path, os.O_PATH)
    supervision = Supervision(f"unix:/proc/{os.getpid()}/fd/{folder}/c.sock")
    address = await supervision.server.start()
    assert not await supervision.attended(address, OURS.issue(1, 0))
    assert "can't attend" in await supervision.attended(address, None)
    await supervision.server.aclose()
    os.close(folder)
