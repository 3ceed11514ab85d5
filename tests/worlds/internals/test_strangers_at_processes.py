"""Strangers at the ports of a fleet, and certificates of earlier lives, change nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

import netdfl
from netdfl.core.control import Hello
from netdfl.core.errors import TransportError
from netdfl.record.judge import WELL
from netdfl.scenario.load import loads
from netdfl.supervisor.supervisor import Supervisor
from netdfl.transport.control.attendance import ControlClient, control_channels
from netdfl.transport.grpc.connections import for_node
from netdfl.transport.security.authority import Authority
from netdfl.transport.security.credentials import SUPERVISOR, Credentials, name_of
from netdfl.transport.security.secret import FleetSecret
from netdfl.transport.v1.data_pb2 import HelloReply, HelloRequest
from netdfl.transport.wire import PROTOCOL_VERSION
from netdfl.worlds import processes

SCENARIO = """
schema: netdfl/1
name: certified
nodes: 3
rounds: 8
world: {kind: processes, tls: true, nodes_per_process: 2, fidelity: {relative: 100, slack: 100s}}
task: {kind: consensus, dim: 8}
algorithm: dpsgd
topology: full
links: {default: {latency: 10ms}}
events: [{at_round: 2, crash: 2, restart_after: 50ms, state: kept}]
"""


class Strangers:
    """Comes to every port of a fleet at its start, and again when it is done and still listens."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.replies: list[str] = []
        self.scenario_hash = ""
        self.secrets_seen: list[str] = []

    async def come(self, supervisor: Supervisor) -> None:
        """Without a certificate, in plain text, with one of another run."""
        fleet = supervisor.fleet
        self.scenario_hash = fleet.world.plan.scenario_hash
        addresses = [hello.address for hello in fleet.hellos.values() if hello.address]
        other = _proof(Authority.make(self.authority.run).issue(1, 0), self._mine)
        for address in (*addresses, fleet.world.plan.control):
            for credentials in (None, grpc.ssl_channel_credentials(self._mine), other):
                with pytest.raises(grpc.aio.AioRpcError):
                    await self._hello(address, 1, 0, credentials)
        for hello in fleet.hellos.values():
            for what in ("environ", "cmdline"):
                self.secrets_seen.append(_read(Path(f"/proc/{hello.pid}/{what}")))

    async def come_back(self, supervisor: Supervisor) -> None:
        """As node 2 with its first life's certificate, as node 1 with node 2's; to node 0 and to the supervisor."""
        await self.come(supervisor)
        hellos, plan = supervisor.fleet.hellos, supervisor.fleet.world.plan
        stolen = FleetSecret(text=plan.secret).proof(0, hellos[0].address)
        old, new = self.authority.issue(2, 0), self.authority.issue(2, 1)
        self.replies = [
            await self._hello(hellos[0].address, 2, 0, _proof(old, self._mine), stolen),
            await self._hello(hellos[0].address, 1, 0, _proof(new, self._mine), stolen),
        ]
        for node, epoch, credentials in ((2, 0, old), (1, 0, new)):
            hello = Hello(
                node=node,
                role="client",
                epoch=epoch,
                protocol_version=PROTOCOL_VERSION,
                scenario_hash=plan.scenario_hash,
            )
            channels = control_channels(FleetSecret(text=plan.secret), credentials)
            with pytest.raises(TransportError) as refused:
                await ControlClient.connect(plan.control, hello, _ignore, _ignore, channels)
            self.replies.append(str(refused.value))

    async def _hello(
        self,
        address: str,
        node: int,
        epoch: int,
        credentials: grpc.ChannelCredentials | None,
        proof: tuple[tuple[str, str], ...] = (),
    ) -> str:
        name = name_of(self.authority.run, SUPERVISOR if "control" in address else 0)
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", name)]
        opened = (
            grpc.aio.insecure_channel(address)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options=options)
        )
        said = HelloRequest(
            protocol_version=PROTOCOL_VERSION,
            run_id=bytes.fromhex(self.authority.run),
            scenario_hash=self.scenario_hash,
            node=node,
            epoch=epoch,
            callee=0,
        )
        async with opened as channel:
            call = channel.unary_unary("/netdfl.v1.Node/Hello")
            reply = await call(said.SerializeToString(), timeout=30, metadata=(for_node(0), *proof))
            return HelloReply.FromString(reply).reason

    @property
    def _mine(self) -> bytes:
        return self.authority.issue(0, 0).authority.encode()


def _proof(credentials: Credentials, authority: bytes) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(authority, credentials.key.encode(), credentials.certificate.encode())


def _read(file: Path) -> str:
    with suppress(OSError):  # its process has crashed in the meantime
        return file.read_text(errors="replace")
    return ""


def _ignore(what: object) -> None:
    pass


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> list[Strangers]:
    made: list[Strangers] = []
    authority_of, gather, stop = processes._authority, Supervisor._gather, Supervisor._stop

    def kept(run_id: str) -> Authority:
        made.append(Strangers(authority_of(run_id)))
        return made[0].authority

    def after(own: Callable[..., Awaitable[Any]]) -> Any:
        async def work(supervisor: Supervisor) -> None:
            await own(supervisor)
            await made[0].come(supervisor)

        return work

    async def stop_later(supervisor: Supervisor, grace_s: float) -> Any:
        await made[0].come_back(supervisor)
        return await stop(supervisor, grace_s)

    monkeypatch.setattr(processes, "_authority", kept)
    monkeypatch.setattr(Supervisor, "_gather", after(gather))
    monkeypatch.setattr(Supervisor, "_stop", stop_later)
    return made


def test_strangers_and_old_lives_are_refused_counted_and_named_and_change_nothing(
    strangers: Sequence[Strangers], tmp_path: Path
) -> None:
    finished = netdfl.run(loads(SCENARIO), out=tmp_path / "run", page=False)
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    assert [each["node"] for each in finished.result["restarts"]] == [2]
    (came,) = strangers
    assert [reply.endswith("not of this fleet") for reply in came.replies] == [True] * 4
    refused = {(each["src"], each["reason"]): each["messages"] for each in finished.result["refused"]}
    assert refused[2, "foreign"] == 2  # both hellos with certificates of node 2 that are of this run
    assert (
        refused[None, "foreign"] >= 2 * 4 * 3 + 2 - 3
    )  # every port twice by three, two at the supervisor; node 2 crashed
    said = finished.run.rows("SELECT node, details->>'what' FROM events WHERE kind = 'refused'")
    assert {node for node, _ in said} == {None, 0, 1, 2}
    assert all("from 127.0.0.1" in what or "from ipv4:127.0.0.1" in what for _, what in said)
    files = [each for each in finished.path.rglob("*") if each.is_file()]
    assert not [each for each in files if b"PRIVATE KEY" in each.read_bytes()]
    assert any(came.secrets_seen)
    assert not [text for text in came.secrets_seen if "PRIVATE KEY" in text or came.authority.run in text]
