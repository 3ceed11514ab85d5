"""A member whose stream to the supervisor goes on, after a good hello, with reports that no node makes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from netdfl.core.control import (
    EVALUATOR,
    LOST,
    Crashed,
    Evaluate,
    Evaluated,
    Exit,
    FilePart,
    Gone,
    Happened,
    Hello,
    ModelSaved,
    Order,
    ProbeReply,
    Progress,
    Report,
)
from netdfl.core.types import Json
from netdfl.diagnosis.account import Account, WaitAccount
from netdfl.diagnosis.snapshot import State, WaitKind
from netdfl.record.directory import RunDirectory
from netdfl.record.status import NodeStatus, Phase
from netdfl.scenario.load import loads
from netdfl.supervisor.reports import FILES_OF_A_LIFE
from netdfl.supervisor.supervisor import Supervisor
from netdfl.transport.control import attendance
from netdfl.transport.control.attendance import Attendee, ControlClient, ControlServer, control_channels
from netdfl.transport.control.codec import encode
from netdfl.transport.security.authority import Authority
from netdfl.transport.security.credentials import SUPERVISOR
from netdfl.transport.security.secret import FleetSecret
from netdfl.transport.v1 import control_pb2 as pb
from netdfl.transport.wire import PROTOCOL_VERSION
from tests.hostile.client import member
from tests.transport.grpc_fleet import until

ROUNDS = 5
SCENARIO = f"""
schema: netdfl/1
name: told
nodes: 3
rounds: {ROUNDS}
task: {{kind: consensus, dim: 4}}
algorithm: dpsgd
topology: ring
world: {{kind: processes}}
events: [{{at: 1s, crash: 1, restart_after: 1s}}, {{at: 1s, crash: 2}}]
"""
BEYOND = 2**32 - 1


class Desk:
    """A supervisor of three nodes that have begun, with what it records and orders."""

    def __init__(self, path: Path) -> None:
        self.orders: list[tuple[int, Order]] = []
        self.rows: list[tuple[int | None, str, Json]] = []
        store: Any = SimpleNamespace(
            event=lambda at, node, round, kind, **more: self.rows.append((node, kind, more)),
            metrics=lambda *_: None,
        )
        clock = SimpleNamespace(now_ns=lambda: 7, call_at=lambda *_: None)
        world: Any = SimpleNamespace(
            clock=clock, recorder=lambda store: store, order=lambda *told: self.orders.append(told)
        )
        nothing: Any = lambda told: None  # noqa: E731
        self.supervisor = Supervisor(
            loads(SCENARIO), RunDirectory(path), world, note=nothing, show=nothing, store=store
        )
        self.fleet = self.supervisor.fleet
        for node in range(3):
            self.fleet.status.nodes[node] = NodeStatus(node, phase=Phase.RUNNING)
            self.fleet.epochs[node] = 0

    def tell(self, *reports: Report, node: int = 1) -> None:
        for report in reports:
            self.supervisor.report(node, report)

    @property
    def refused(self) -> list[tuple[str, int]]:
        """The reason and the sender of all that is refused."""
        return [(row["reason"], row["src"]) for _, kind, row in self.rows if kind == "refused"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def account(node: int = 1, *sources: int, round: int = 2) -> dict[str, Any]:
    """That `node` waits for `sources`."""
    wait = WaitAccount(what=WaitKind.MESSAGE, round=round, step=0, sources=sources, need=1, since_ns=0)
    told = Account(node=node, epoch=0, at_ns=1, state=State.WAITING, round=round, since_ns=0, wait=wait)
    return dict(told.to_json())


def crash(source: int, **more: Any) -> Crashed:
    return Crashed(**{"at_ns": 1, "round": 1, "source": source, "at_round": None, "state": "kept"} | more)


def part(path: str) -> FilePart:
    return FilePart(path, 0, b"x", grows=True)


NEVER: dict[str, Report] = {
    "in another's name": Hello(node=2, role="client", address="6.6.6.6:666"),
    "in the evaluator's name": Hello(node=EVALUATOR, role="evaluator"),
    "in the name of none": Hello(node=99, role="client"),
    "figures": Evaluated(4, {"test_accuracy": 0.999}),
    "a round past the last": Progress(round=BEYOND),
    "a model past the last round": ModelSaved(1_000_000),
    "whom another refused": Happened(0, 0, "refused", {"src": 2, "reason": "malformed", "what": "node 2"}),
    "a death": Happened(0, 0, "died", {"reason": "x"}),
    "an end past the last round": Happened(0, BEYOND, "failed", {"reason": "x"}),
    "an end with a key of the record's": Happened(0, 0, "failed", {"reason": "x", "kind": "z"}),
    "an end without a reason": Happened(0, 0, "failed", {}),
    "an end with a number for a reason": Happened(0, 0, "failed", {"reason": 1}),
    "an end with a list for details": Happened(0, 0, "failed", ["reason"]),  # type: ignore[arg-type]
    "another's crash": crash(1),
    "a crash of no entry": crash(7),
    "a crash past the last round": crash(0, round=BEYOND),
    "a crash in between": crash(0, state="\x1b[2J"),
    "another's account": ProbeReply(0, account(2)),
    "an account of none": ProbeReply(0, account(1000)),
    "a wait for none": ProbeReply(0, account(1, 0, 1000)),
    "a wait past the last round": ProbeReply(0, account(1, 0, round=BEYOND)),
    "no account": ProbeReply(0, {"x": 1}),
    "an account that is a list": ProbeReply(0, []),  # type: ignore[arg-type]
    "another's file": part("store/events-002.jsonl"),
    "a file with a long name": part(f"logs/001-{'x' * 300}.log"),
    "a snapshot past the last round": part("snapshots/1000000-001.safetensors"),
    "a snapshot of no round": part("snapshots/x-001.safetensors"),
    "a second model": part("models/001-x.safetensors"),
    "a second checkpoint": part("checkpoints/x-001.safetensors"),
}


@pytest.mark.parametrize("what", NEVER)
def test_what_no_node_reports_is_refused_in_its_name_and_changes_nothing(desk: Desk, what: str) -> None:
    before = {node: status.to_text() for node, status in desk.fleet.status.nodes.items()}
    desk.tell(NEVER[what])
    assert desk.refused == [("malformed", 1)]
    assert len(desk.rows) == 1
    assert desk.orders == []
    assert (desk.fleet.hellos, desk.fleet.error, desk.fleet.status.evaluation) == ({}, None, None)
    assert {node: status.to_text() for node, status in desk.fleet.status.nodes.items()} == before
    assert desk.supervisor.stalls.waits() == {}
    assert desk.supervisor.evaluation.over
    assert not [path for path in desk.fleet.directory.path.rglob("*") if path.is_file() and path.name != "events.jsonl"]


def test_who_is_no_node_of_the_fleet_reports_nothing(desk: Desk) -> None:
    desk.tell(Progress(round=1), node=3)
    desk.tell(Progress(round=1), node=-7)
    assert desk.refused == [("malformed", 3), ("malformed", -7)]


def test_the_evaluator_reports_figures_alone(desk: Desk) -> None:
    desk.tell(Evaluated(4, {"test_accuracy": 0.5}), node=EVALUATOR)
    assert desk.rows == []
    assert desk.fleet.status.evaluation is not None
    desk.tell(ModelSaved(1), node=EVALUATOR)
    assert [(kind, row["reason"], "src" in row) for _, kind, row in desk.rows] == [("refused", "malformed", False)]


def test_what_a_node_reports_is_taken(desk: Desk) -> None:
    desk.tell(Hello(node=1, role="client", address="here"), Progress(round=0), Progress(round=ROUNDS))
    desk.tell(ProbeReply(0, account(1, 0)), ModelSaved(0), ModelSaved(ROUNDS - 1))
    desk.tell(part("store/events-001.jsonl"), part("logs/001-1.log"), part("logs/000-001.log"))
    for path in ("snapshots/000004-001", "models/001", "checkpoints/001"):
        desk.tell(part(f"{path}.safetensors"))
    assert set(desk.supervisor.stalls.waits()) == {1}
    desk.tell(crash(0), Happened(0, 1, "failed", {"reason": "x"}))
    assert desk.refused == []
    assert [kind for _, kind, _ in desk.rows] == ["crash", "failed"]


def test_a_node_that_fails_has_died_in_the_round_that_it_named_and_by_its_error(desk: Desk) -> None:
    desk.fleet.start_ns = 1
    desk.tell(Happened(0, 3, "failed", {"reason": "TypeError: x"}))
    desk.supervisor.exited(1, Exit(0, 1))
    assert desk.fleet.status.nodes[1].round == 3
    assert desk.rows[-1] == (1, "died", {"signal": None, "exit_code": 1, "reason": "TypeError: x"})


def test_a_life_ends_once_and_writes_so_many_files(desk: Desk) -> None:
    desk.tell(crash(0), crash(0), *[Happened(0, 0, "failed", {"reason": "x"})] * 3)
    assert desk.refused == [("malformed", 1)] * 3
    desk.fleet.epochs[1] = 1
    desk.tell(crash(0), Happened(0, 0, "training_error", {"reason": "x"}))
    assert [kind for _, kind, _ in desk.rows if kind != "refused"] == ["crash", "failed", "crash", "training_error"]
    desk.rows.clear()
    for number in range(2 * FILES_OF_A_LIFE + 5):
        desk.tell(part(f"store/t{number}-001.jsonl"))
    assert desk.refused == [("malformed", 1)] * 5
    desk.tell(part("store/t0-001.jsonl"))
    assert len(desk.refused) == 5


# on a stream


class Streams:
    """The streams of two nodes to a supervisor's port."""

    def __init__(self, tls: bool) -> None:
        self.reports: list[tuple[int, Report]] = []
        self.refused: list[str] = []
        self.malformed: list[tuple[int, str]] = []
        self.behind: list[tuple[int, str]] = []
        self.attendees: list[Attendee] = []
        self._secret = FleetSecret(text="secret")
        self._authority = Authority.make("ab" * 8) if tls else None
        self.server = ControlServer(
            self._secret,
            self._heard,
            credentials=self._issue(SUPERVISOR),
            on_refused=self.refused.append,
            on_malformed=lambda node, what: self.malformed.append((node, what)),
            on_behind=lambda attendee, why: self.behind.append((attendee.hello.node, why)),
            num_nodes=1,
        )

    def _issue(self, node: int) -> Any:
        return None if self._authority is None else self._authority.issue(node, 0)

    def _heard(self, attendee: Attendee, report: Report) -> None:
        if isinstance(report, Hello):
            self.attendees.append(attendee)
        self.reports.append((attendee.hello.node, report))

    @asynccontextmanager
    async def of(self, *nodes: int) -> AsyncIterator[list[ControlClient]]:
        """The streams of `nodes`, each after its own hello."""
        address, clients = await self.server.start(), []
        for node in nodes:
            self.server.expect(node, 0)
            channels = control_channels(self._secret, self._issue(node))
            clients.append(await ControlClient.connect(address, hello(node), print, print, channels))
        yield clients
        for client in clients:
            await client.aclose()
        await self.server.aclose()


def hello(node: int) -> Hello:
    return Hello(node=node, role="client", address=f"at {node}", protocol_version=PROTOCOL_VERSION)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_stream_is_of_the_node_of_its_first_hello(tls: bool) -> None:
    streams = Streams(tls)
    async with streams.of(1, 2) as (mine, _):
        for node in (2, 1, 99, EVALUATOR):
            mine.report(hello(node))
        mine.report(Progress(round=1))
        await until(lambda: (1, Progress(round=1)) in streams.reports)
    assert [node for node, report in streams.reports if isinstance(report, Hello)] == [1, 2]
    assert [node for node, _ in streams.malformed] == [1] * 4
    assert streams.malformed[0][1] == "node 1 introduced itself once more, as node 2"
    assert streams.refused == []


@asynccontextmanager
async def unread(streams: Streams) -> AsyncIterator[Any]:
    """A member's stream on which nothing is read, unless the test does."""
    address = await streams.server.start()
    streams.server.expect(1, 0)
    async with grpc.aio.insecure_channel(address) as channel:
        shown = member("secret", SUPERVISOR, "the supervisor")
        call = channel.stream_stream("/netdfl.v1.Control/Attend")(metadata=shown)
        await call.write(encode(hello(1)))
        await until(lambda: bool(streams.attendees))
        yield call
    await streams.server.aclose()


BYTES = {
    "no message": b"\xff\xff",
    "no report": b"",
    "details that are no JSON": pb.Report(happened=pb.Happened(kind="failed", details="[")).SerializeToString(),
    "an account without a bottom": pb.Report(probe_reply=pb.ProbeReply(account="[" * 100_000)).SerializeToString(),
}


@pytest.mark.parametrize("what", BYTES)
async def test_bytes_that_are_no_report_are_refused_and_the_stream_goes_on(what: str) -> None:
    streams = Streams(tls=False)
    async with unread(streams) as call:
        await call.write(BYTES[what])
        await call.write(encode(Progress(round=1)))
        await until(lambda: len(streams.reports) == 2)
    assert streams.malformed == [(1, "node 1 sent bytes that are no report")]


async def test_who_reads_no_orders_is_lost_for_that_and_no_more_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "MOST_UNREAD", 4)
    streams = Streams(tls=False)
    async with unread(streams) as call:
        (attendee,) = streams.attendees

        def behind() -> bool:
            attendee.order(Gone(2, "x" * 50_000))
            return bool(streams.behind)

        await until(behind)
        for _ in range(20):
            behind()
        assert attendee.orders.qsize() <= 8
        with suppress(grpc.aio.AioRpcError):  # by now, or as soon as it reads
            await call.write(encode(Progress(round=1)))
            while await call.read():
                pass
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert streams.behind == [(1, "it left 8 orders of the supervisor unread")]
    assert [type(report) for _, report in streams.reports] == [Hello]


def test_the_evaluator_is_told_of_every_round_at_once() -> None:
    attendee = Attendee(hello(EVALUATOR), most_unread=2)
    for round in range(100):
        attendee.order(Evaluate(round, ()))
    assert (attendee.orders.qsize(), attendee.fell_behind.is_set()) == (100, False)


def test_who_was_lost_before_its_process_ends_dies_once_in_a_life(desk: Desk) -> None:
    desk.fleet.start_ns = 0
    lost = Exit(0, LOST, lost="it left 8 orders of the supervisor unread")
    for how in (lost, Exit(0, 1), lost):
        desk.supervisor.exited(1, how)
    died = {"reason": lost.lost}
    assert [row for _, kind, row in desk.rows if kind == "died"] == [died]
    desk.fleet.epochs[1] = 1
    desk.supervisor.exited(1, Exit(1, 1))
    assert [row for _, kind, row in desk.rows if kind == "died"] == [died, {"signal": None, "exit_code": 1}]
