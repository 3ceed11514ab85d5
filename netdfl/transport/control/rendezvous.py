"""The rendezvous of nodes without a supervisor: each node answers calls about its progress, and calls the others.

A node is ready, running, or finished. It answers at the port of its data plane, and tells its phase in its own calls.

Machines share no clock. An answer holds the fleet's time at the callee, which the caller takes for the middle of the
call's round trip. So the clocks of two nodes differ by half of their fastest round trip at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import grpc
import grpc.aio

from netdfl.core.errors import TransportError
from netdfl.core.types import NodeId
from netdfl.core.versions import Versions, objection, taken
from netdfl.transport.base import MOST_NS
from netdfl.transport.grpc.connections import for_node
from netdfl.transport.security.credentials import CertificateSubject, Credentials
from netdfl.transport.security.identity import MOST_EPOCH, Identity
from netdfl.transport.security.secret import NOT_OF_THIS_FLEET, OPEN, FleetSecret
from netdfl.transport.security.tls import Guard, open_channel, why_not
from netdfl.transport.v1.data_pb2 import HelloRequest
from netdfl.transport.v1.meeting_pb2 import ASKING, FINISHED, READY, RUNNING, Answer, Call, Phase
from netdfl.transport.wire import PROTOCOL_VERSION

__all__ = ["ASKING", "FINISHED", "READY", "RUNNING", "Answer", "Line", "Rendezvous", "Reply", "make_call"]

MOST_ROUND = (1 << 31) - 1
_SERVICE = "netdfl.v1.Meeting"
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]


class Rendezvous:
    """One node's state in the rendezvous of nodes without a supervisor.

    It holds the node's own phase (ready, running or finished), and what the other nodes reported last.
    """

    def __init__(self, me: Identity, members: Collection[NodeId], versions: Versions = {}) -> None:  # noqa: B006 - read
        """Start in the phase *ready*, for the node `me`.

        `members` are all nodes of the fleet; `versions` are this node's software versions.
        """
        self.me, self.members, self.versions = me, frozenset(members), versions
        self.software: dict[NodeId, Versions] = {}
        self.phase: Phase = READY
        self.start_ns: int | None = None
        self.round: Callable[[], int] = lambda: 0
        self.on_restart: Callable[[NodeId, int], None] = lambda node, epoch: None
        self.on_finished: Callable[[NodeId, bool], None] = lambda node, owes: None
        self.ready = {me.node}
        self.finished = {node: asyncio.Event() for node in members}
        self.refused: dict[NodeId, str] = {}
        self._epochs: dict[NodeId, int] = {}
        self._guard: Guard | None = None

    @property
    def missing(self) -> list[NodeId]:
        """The members that have never reported that they are ready."""
        return sorted(self.members - self.ready)

    def service(self, guard: Guard | None = None) -> grpc.GenericRpcHandler:
        """Return the gRPC service that answers the rendezvous calls of other nodes.

        With a `guard`, TLS certificates prove which node calls.
        """
        self._guard = guard
        meet = grpc.unary_unary_rpc_method_handler(self.meet, Call.FromString, Answer.SerializeToString)
        return grpc.method_handlers_generic_handler(_SERVICE, {"Meet": meet})

    async def meet(self, call: Call, context: object) -> Answer:
        """Record the phase (ready, running, finished) in another node's call, and answer with this node's phase.

        A call from outside the fleet, or from a node with other software, is refused.
        """
        certified = None if self._guard is None else self._guard.caller(context)
        if refusal := self._objection(call, certified):
            if call.node in self.members:  # other callers are strangers, whose absence nobody will look into
                self.refused[call.node] = refusal
            return Answer(refusal=NOT_OF_THIS_FLEET)
        if differ := self._other_software(call):
            self.refused[call.node] = differ
            return Answer(refusal=differ)
        answer = self.answer()
        if call.node in self._epochs:
            answer.known_epoch = self._epochs[call.node]
        if call.phase != ASKING:
            self._hear(call)
        return answer

    def answer(self) -> Answer:
        """Return the answer to another node's call: this node's phase, its round, and the nodes not yet ready."""
        answer = Answer(
            run_id=self.me.run_id, phase=self.phase, round=self.round(), missing=self.missing, versions=self.versions
        )
        if self.start_ns is not None:
            answer.now_ns = time.monotonic_ns() - self.start_ns
        return answer

    def call(self) -> Call:
        """Return a call to another node, with this node's phase (ready, running or finished) and software versions."""
        return make_call(self.me, self.phase, self.versions)

    def _objection(self, call: Call, certified: CertificateSubject | None) -> str:
        if certified is not None and (reason := certified.objection(call.node, call.epoch)):
            return reason
        said = HelloRequest(
            protocol_version=call.protocol_version,
            run_id=call.run_id or self.me.run_id,
            scenario_hash=call.scenario_hash,
            node=call.node,
            epoch=call.epoch,
            callee=call.callee,
        )
        if call.node not in self.members:
            return f"node {call.node} is none of this fleet's {len(self.members)} nodes"
        if call.phase not in Phase.values():
            return f"node {call.node} is in phase {call.phase}, which this netdfl doesn't know"
        if call.phase != ASKING and call.epoch < (newest := self._epochs.get(call.node, 0)):
            return f"node {call.node} was restarted {newest} times, not {call.epoch}"
        return self.me.objection(said)

    def _other_software(self, call: Call) -> str:
        return objection(f"node {call.node}", taken(call.versions), f"node {self.me.node}", self.versions)

    def _hear(self, call: Call) -> None:
        known = self._epochs.get(call.node, 0)
        self._epochs[call.node] = call.epoch
        self.software[call.node] = taken(call.versions)
        self.ready.add(call.node)
        if call.phase == FINISHED:
            self.finished[call.node].set()
            self.on_finished(call.node, call.owes)
        if call.epoch > known:
            self.finished[call.node].clear()
            self.on_restart(call.node, call.epoch)


def make_call(me: Identity, phase: Phase = ASKING, versions: Versions = {}) -> Call:  # noqa: B006 - read only
    """Return a rendezvous call from node `me`, with its phase and its software versions."""
    return Call(
        protocol_version=PROTOCOL_VERSION,
        run_id=me.run_id,
        scenario_hash=me.scenario_hash,
        node=me.node,
        epoch=me.epoch,
        phase=phase,
        versions=versions,
    )


def _what_is_wrong(answer: Answer) -> str:
    """Return the reason why an answer to a rendezvous call can't come from netdfl; empty if it can."""
    if len(answer.run_id) != 8 and not answer.refusal:
        return f"a run of {len(answer.run_id)} bytes"
    if abs(answer.now_ns) > MOST_NS or answer.round > MOST_ROUND or answer.known_epoch > MOST_EPOCH:
        return f"time {answer.now_ns} ns, round {answer.round}, life {answer.known_epoch}"
    return ""


class Reply(NamedTuple):
    """The answer to a rendezvous call.

    It also holds the duration of the call, and the start of the fleet's time on the caller's monotonic clock, which is
    None until the nodes have agreed on the start.
    """

    answer: Answer
    took_ns: int
    start_ns: int | None


class StrangerError(TransportError):
    """The error that the expected node is not at an address: another program answers there, or nothing speaks TLS."""


class Line:
    """A connection to another node for rendezvous calls (about the progress of nodes without a supervisor).

    After a failure it is opened again, and the host name of the node is resolved again.
    """

    def __init__(
        self, peer: NodeId, address: str, credentials: Credentials | None = None, secret: FleetSecret = OPEN
    ) -> None:
        """Prepare a connection to node `peer` at `address`, opened by `ask`; with `credentials` it uses mutual TLS.

        Each call proves knowledge of the fleet's `secret`.
        """
        self.peer, self.address, self.credentials = peer, address, credentials
        self._metadata = for_node(peer), *secret.proof(peer, address)
        self._channel: grpc.aio.Channel | None = None

    async def ask(self, call: Call, timeout_s: float) -> Reply:
        """Make a rendezvous call to the node, and return its answer.

        Raises TransportError if the node does not answer or another program does.
        """
        if self._channel is None:
            self._channel = open_channel(self.address, self.peer, _OPTIONS, self.credentials)
        meet = self._channel.unary_unary(f"/{_SERVICE}/Meet", Call.SerializeToString, Answer.FromString)
        call.callee = self.peer
        began = time.monotonic_ns()
        try:
            answer = await meet(call, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            await self.aclose()
            unavailable = error.code() is grpc.StatusCode.UNAVAILABLE
            if unavailable and (why := await why_not(self.address, self.peer, self.credentials)):
                raise StrangerError(why) from error
            raise TransportError(f"node {self.peer} ({self.address}) does not answer: {error.details()}") from error
        took = time.monotonic_ns() - began
        if wrong := _what_is_wrong(answer):
            raise TransportError(f"node {self.peer} ({self.address}) answers what no node says: {wrong}")
        start = began + took // 2 - answer.now_ns if answer.HasField("now_ns") else None
        return Reply(answer, took, start)

    async def aclose(self) -> None:
        """Close the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
