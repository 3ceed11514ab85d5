"""The control plane: who may attend, that everything keeps its order, and that an end is noticed."""

from __future__ import annotations

import asyncio

import pytest
from grpc_fleet import until

from netdfl.core.control import Bye, Hello, Order, Probe, Progress, Report
from netdfl.core.errors import TransportError
from netdfl.transport.control.attendance import Attendee, ControlClient, ControlServer, control_channels
from netdfl.transport.security.secret import FleetSecret
from netdfl.transport.wire import PROTOCOL_VERSION


class Supervisor:
    """Keeps what nodes report."""

    def __init__(self) -> None:
        self.attendees: dict[int, Attendee] = {}
        self.reports: list[tuple[int, Report]] = []
        self.refused: list[str] = []
        self.server = ControlServer(FleetSecret(text="secret"), self.on_report, on_refused=self.refused.append)
        for node in range(10):
            self.server.expect(node, 0)

    def on_report(self, attendee: Attendee, report: Report) -> None:
        self.attendees[attendee.hello.node] = attendee
        self.reports.append((attendee.hello.node, report))


class Node:
    """Keeps what the supervisor orders."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.lost: list[str] = []

    async def attend(
        self, address: str, node: int, secret: str = "secret", version: int = PROTOCOL_VERSION, epoch: int = 0
    ) -> ControlClient:
        hello = Hello(node=node, role="client", pid=1, address="here", protocol_version=version, epoch=epoch)
        channels = control_channels(FleetSecret(text=secret))
        return await ControlClient.connect(address, hello, self.orders.append, self.lost.append, channels)


async def test_reports_and_orders_keep_their_order():
    supervisor, node = Supervisor(), Node()
    client = await node.attend(await supervisor.server.start(), 3)
    await until(lambda: 3 in supervisor.attendees)
    for number in range(50):
        client.report(Progress(round=number))
        supervisor.attendees[3].order(Probe(number))
    await until(lambda: len(supervisor.reports) == 51 and len(node.orders) == 50)
    assert supervisor.reports[0][1].address == "here"
    assert [report.round for _, report in supervisor.reports[1:]] == list(range(50))
    assert [order.id for order in node.orders] == list(range(50))
    await client.aclose()
    await supervisor.server.aclose()


async def test_what_is_queued_is_sent_before_leaving():
    supervisor, node = Supervisor(), Node()
    client = await node.attend(await supervisor.server.start(), 3)
    for number in range(100):
        client.report(Progress(round=number))
    client.report(Bye("done"))
    await client.aclose()
    await until(lambda: len(supervisor.reports) == 102)
    assert supervisor.reports[-1][1].reason == "done"
    assert node.lost == []
    await supervisor.server.aclose()


async def test_a_life_that_counts_as_ended_is_heard_no_more_and_its_stream_ends():
    supervisor, node, later = Supervisor(), Node(), Node()
    address = await supervisor.server.start()
    client = await node.attend(address, 3)
    client.report(Progress(round=1))
    await until(lambda: len(supervisor.reports) == 2)
    supervisor.server.dismiss(3, 0)
    client.report(Progress(round=2))
    await until(lambda: node.lost)
    assert [report.round for _, report in supervisor.reports[1:]] == [1]
    with pytest.raises(TransportError, match="not of this fleet"):
        await later.attend(address, 3)
    await client.aclose()
    await supervisor.server.aclose()


async def test_a_life_attends_once_and_who_says_so_again_is_somebody_else():
    supervisor, node, impostor = Supervisor(), Node(), Node()
    address = await supervisor.server.start()
    client = await node.attend(address, 3)
    with pytest.raises(TransportError, match="not of this fleet"):
        await impostor.attend(address, 3)
    supervisor.attendees[3].order(Probe(1))
    await until(lambda: node.orders == [Probe(1)])
    await client.aclose()
    with pytest.raises(TransportError, match="not of this fleet"):
        await impostor.attend(address, 3)
    assert [type(report) for _, report in supervisor.reports] == [Hello]
    assert impostor.orders == []
    assert len(supervisor.refused) == 2
    assert all("node 3 of epoch 0 attended before" in what for what in supervisor.refused)
    await supervisor.server.aclose()


@pytest.mark.parametrize(
    ("number", "epoch", "words"),
    [
        (10, 0, "node 10 was never started"),
        (3, 1, "node 3 was restarted 0 times, not 1"),
        (4, 1, "node 4 was restarted 2 times, not 1"),
        (4, 3, "node 4 was restarted 2 times, not 3"),
    ],
)
async def test_no_life_attends_that_nobody_started(number: int, epoch: int, words: str):
    supervisor = Supervisor()
    supervisor.server.expect(4, 2)
    address = await supervisor.server.start()
    with pytest.raises(TransportError, match="not of this fleet"):
        await Node().attend(address, number, epoch=epoch)
    assert supervisor.reports == []
    assert words in supervisor.refused[0]
    client = await Node().attend(address, 4, epoch=2)
    await client.aclose()
    await supervisor.server.aclose()


async def test_a_dead_supervisor_is_noticed_by_every_node():
    supervisor, nodes = Supervisor(), [Node(), Node()]
    address = await supervisor.server.start()
    clients = [await node.attend(address, number) for number, node in enumerate(nodes)]
    await until(lambda: len(supervisor.attendees) == 2)
    await supervisor.server.aclose()
    await until(lambda: all(node.lost for node in nodes))
    assert all("the supervisor" in node.lost[0] and len(node.lost) == 1 for node in nodes)
    await asyncio.gather(*(client.aclose() for client in clients))


@pytest.mark.parametrize(
    ("secret", "version", "words"),
    [("guess", PROTOCOL_VERSION, "secret"), ("", PROTOCOL_VERSION, "secret"), ("secret", 1, "version")],
)
async def test_a_stranger_may_not_attend(secret, version, words):
    supervisor = Supervisor()
    address = await supervisor.server.start()
    with pytest.raises(TransportError, match=f": {words}$"):
        await Node().attend(address, 3, secret, version)
    assert not supervisor.reports
    await supervisor.server.aclose()


async def test_no_supervisor_is_one_clear_line():
    with pytest.raises(TransportError, match=r"node 3 can't attend at the supervisor 127\.0\.0\.1:1: "):
        await Node().attend("127.0.0.1:1", 3)
