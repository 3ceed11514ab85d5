"""The start of a node without a supervisor: which run this is, whether it is a restart, and when the fleet starts.

The node with the lowest number draws the run's id, and decides on the fleet's start once all nodes are ready. A
restarted node learns both from any node that answers.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import Life, Rejoin
from netdfl.core.errors import InputError, MachineError, TransportError
from netdfl.core.types import NodeId
from netdfl.core.versions import Versions, told
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.returns import fresh_round
from netdfl.standalone.record import NodeRecord, NodeStage
from netdfl.standalone.request import Request
from netdfl.transport.control.rendezvous import FINISHED, Line, Reply, StrangerError, make_call
from netdfl.transport.control.rendezvous import Rendezvous as Meeting
from netdfl.transport.security.identity import Identity, plainly
from netdfl.transport.security.secret import NOT_OF_THIS_FLEET, SECRET, VERSION

LEAD_NS = 1_000_000_000
"""Nanoseconds between the decision on the fleet's start and that start, so that all nodes learn the time before it."""
LAST_ASKED_NS = 200_000_000
POLL_S = 0.1
CALL_S = 1.0
_MEANT = {
    VERSION: "it runs another version of netdfl; install the same one on all",
    SECRET: "it has another secret; give all nodes the same --secret, or credentials that were made together",
    NOT_OF_THIS_FLEET: "this node is not of its fleet; have all nodes read the same scenario, --set and --peers",
}


class NothingToRun(InputError):
    """The error for a node whose part in the run is over: by the schedule, or because it failed."""


class RunIdentity(NamedTuple):
    """The id of the run, and the number of restarts of this node so far."""

    run_id: bytes
    life: Life = Life()


class StartNegotiation:
    """One node's negotiation of the fleet's start with the other nodes. Every wait ends at the start timeout."""

    def __init__(
        self,
        request: Request,
        scenario_hash: str,
        events: Sequence[CompiledEvent],
        versions: Versions = {},  # noqa: B006
    ) -> None:
        """Start the clock of the start timeout. `events` are the compiled schedule, `versions` the node's software."""
        self.request, self.scenario_hash, self.events, self.versions = request, scenario_hash, events, versions
        self.credentials = request.certify(0)  # for asking: which life this is, the others tell
        self.lines = {
            node: Line(node, where, self.credentials, request.secret)
            for node, where in request.peers.items()
            if node != request.node
        }
        self._why: dict[NodeId, str] = {}
        self.until_ns = time.monotonic_ns() + request.start_timeout_ns
        self.before = NodeRecord.read(request.directory)

    async def certify(self, epoch: int) -> None:
        """Replace the credentials by which the node proves its identity, once it is known how often it has restarted.

        `epoch` is the number of restarts. With 0, or without TLS, nothing changes.
        """
        if epoch and self.credentials is not None:
            self.credentials = self.request.certify(epoch)
            await asyncio.gather(*(line.aclose() for line in self.lines.values()))
            for line in self.lines.values():
                line.credentials = self.credentials

    # which life this is

    async def find_beginning(self) -> RunIdentity:
        """Return the run's id and the number of this node's restarts: learned from the other nodes, or created.

        Raises InputError, MachineError.
        """
        before = self.before
        if before is not None and before.stage is NodeStage.FINISHED:
            raise InputError(
                f"{self.request.directory} holds the record of node {before.node} in a run that has ended; "
                "name a new --out, or empty it"
            )
        if before is not None and before.node != self.request.node:
            raise InputError(f"{self.request.directory} is the directory of node {before.node}; name another --out")
        if before is not None and before.stage in (NodeStage.FAILED, NodeStage.BROKE):
            raise NothingToRun(
                f"node {before.node} failed in round {before.round} and does not begin again: {before.reason}"
            )
        if before is not None and before.stage is not NodeStage.GATHERING:
            return await self._live_again(before)
        return await (self._draw() if self.request.node == self.request.first else self._ask_first())

    async def _draw(self) -> RunIdentity:
        """Create the run's id or, if the other nodes have started already, rejoin them: this node lost its record."""
        replies = await self._ask_all()
        if any(reply.start_ns is not None for reply in replies.values()):
            return await self._return_empty(replies)
        return RunIdentity(secrets.token_bytes(8) if self.before is None else bytes.fromhex(self.before.run_id))

    async def _ask_first(self) -> RunIdentity:
        """Learn the run's id from the node with the lowest number; rejoin if it knows an earlier start of this one."""
        while True:
            reply = await self._ask(self.request.first)
            if reply is not None and reply.start_ns is not None and reply.answer.HasField("known_epoch"):
                return await self._return_empty(await self._ask_all())
            if reply is not None:
                return RunIdentity(reply.answer.run_id)
            await self._pause(f"{self._who([self.request.first])} does not answer")

    async def _live_again(self, before: NodeRecord) -> RunIdentity:
        """Rejoin the run that `before`, this node's own record, names."""
        epoch, run_id = before.epoch + 1, bytes.fromhex(before.run_id)
        back = before.planned_return(self.events)
        if before.stage is NodeStage.CRASHED and back is None:
            raise NothingToRun(f"node {before.node} crashed in round {before.round}, as scripted, and never returns")
        replies = await self._running(run_id)
        if back is not None:
            start_ns = min(reply.start_ns or 0 for reply in replies.values())
            await asyncio.sleep(max(0, back.at_ns + start_ns - time.monotonic_ns()) / NS_PER_S)
            replies = await self._running(run_id)
        keep = (self.request.directory / "checkpoints").exists() if back is None else back.keep_state
        if keep:
            return RunIdentity(run_id, Life(epoch, Rejoin(keep_state=True, round=before.round)))
        return RunIdentity(run_id, Life(epoch, _afresh(before.round, replies, 0 if back is None else back.weight)))

    async def _return_empty(self, replies: Mapping[NodeId, Reply]) -> RunIdentity:
        """Rejoin the run after this node's record was lost, with a restart number that no other node knows yet."""
        known = [r.answer.known_epoch for r in replies.values() if r.answer.HasField("known_epoch")]
        run_id = next(reply.answer.run_id for reply in replies.values() if reply.start_ns is not None)
        return RunIdentity(run_id, Life(max(known, default=0) + 1, _afresh(0, replies)))

    async def _running(self, run_id: bytes) -> dict[NodeId, Reply]:
        """Wait until other nodes say that they are running the run `run_id`; return the answers of these nodes."""
        while True:
            replies = await self._ask_all(run_id)
            if running := {node: reply for node, reply in replies.items() if reply.start_ns is not None}:
                return running
            await self._pause(
                f"no other node runs the run {run_id.hex()}, of which {self.request.directory} holds a part; "
                "for a new run, begin with empty folders"
            )

    # when the fleet starts

    async def agree(self, meeting: Meeting, neighbors: Collection[NodeId], *, again: bool) -> None:
        """Wait for the other nodes, and set the fleet's start, `meeting.start_ns`; first all `neighbors` must answer.

        `again`: this node has restarted; then it is enough that some node answers.

        Raises:
            MachineError: the start timeout is over; the message names the missing or unreachable nodes.
            InputError: another node refuses this one, with the reason.
        """
        if again:
            meeting.start_ns = await self._start_of_others(meeting)
            return
        await self._reach(neighbors, meeting)
        if self.request.node == self.request.first:
            while meeting.missing:
                await self._pause(self._say_missing(meeting.missing, meeting.refused))
            self._tell_versions(meeting.software)
            meeting.start_ns = time.monotonic_ns() + LEAD_NS
        else:
            meeting.start_ns = await self._start_of_first(meeting)

    async def _reach(self, neighbors: Collection[NodeId], meeting: Meeting) -> None:
        """Return when every neighbor has answered once, so that a wrong address is noticed before the start."""
        left = set(neighbors)
        while left:
            left -= (await self._ask_all(meeting.me.run_id, left)).keys()
            if left:
                why = _why(left, meeting.refused)
                await self._pause(f"{self._who(sorted(left))} did not come, or can't be reached from here{why}")

    async def _start_of_first(self, meeting: Meeting) -> int:
        """Ask the first node until shortly before the start; return the start according to its fastest answer."""
        best: Reply | None = None
        what = f"{self._who([self.request.first])} does not answer"
        while best is None or time.monotonic_ns() < (best.start_ns or 0) - LAST_ASKED_NS:
            reply = await self._ask(self.request.first, meeting)
            if reply is not None and reply.start_ns is not None:
                best = reply if best is None else min(best, reply, key=attrgetter("took_ns"))
            elif reply is not None:
                missing = [node for node in reply.answer.missing if node in self.request.peers]
                what = self._say_missing(missing, {}) if missing else self._say_unreached()
            if best is None:
                await self._pause(what)
            else:
                await asyncio.sleep(POLL_S)
        assert best.start_ns is not None
        if not best.answer.versions:  # it can't tell either
            self._tell_versions({self.request.first: {}})
        return best.start_ns

    def _tell_versions(self, software: Mapping[NodeId, Versions]) -> None:
        """Print which nodes use other versions of software than this node. The first node prints this for all."""
        others = {f"node {node}": theirs for node, theirs in sorted(software.items())}
        for sentence in told(others, f"node {self.request.node}", self.versions):
            print(sentence, file=sys.stderr)

    async def _start_of_others(self, meeting: Meeting) -> int:
        """Tell all nodes that this one has restarted, and learn which are done; return the fleet's start.

        The start is from the fastest answer, which is the most exact.
        """
        found: list[Reply] = []
        asked = 0
        while asked < 3 or not found:
            asked += 1
            replies = await asyncio.gather(*(self._ask(node, meeting) for node in self.lines))
            there = {node: reply for node, reply in zip(self.lines, replies, strict=True) if reply is not None}
            found += [reply for reply in there.values() if reply.start_ns is not None]
            for node, reply in there.items():
                if reply.answer.phase == FINISHED:
                    meeting.finished[node].set()
            if not found:
                await self._pause(f"node {self.request.node} would rejoin, and nobody runs any more")
        start_ns = min(found, key=attrgetter("took_ns")).start_ns
        assert start_ns is not None
        return start_ns

    # asking

    async def _ask(self, peer: NodeId, meeting: Meeting | None = None, run_id: bytes = b"") -> Reply | None:
        """Return the answer of `peer`; None if it does not answer. Raises InputError if it refuses this node.

        Without a `meeting` (the state of the negotiation), the call names the run `run_id`.
        """
        me = Identity(self.request.node, 0, run_id, self.scenario_hash)
        call = make_call(me, versions=self.versions) if meeting is None else meeting.call()
        try:
            reply = await self.lines[peer].ask(call, CALL_S)
        except StrangerError as error:
            self._why[peer] = f"; {error}"
            return None
        except TransportError:
            return None
        self._why.pop(peer, None)
        if reply.answer.refusal:
            why = plainly(reply.answer.refusal, 500)
            raise InputError(f"{self._who([peer])} refuses this node: {_MEANT.get(why, why)}")
        return reply

    async def _ask_all(self, run_id: bytes = b"", nodes: Collection[NodeId] | None = None) -> dict[NodeId, Reply]:
        asked = self.lines if nodes is None else nodes
        replies = await asyncio.gather(*(self._ask(node, run_id=run_id) for node in asked))
        return {node: reply for node, reply in zip(asked, replies, strict=True) if reply is not None}

    async def _pause(self, what: str) -> None:
        """Wait before the next attempt. Raises MachineError if the start timeout is over, with `what` as its reason."""
        if time.monotonic_ns() > self.until_ns:
            raise MachineError(
                f"node {self.request.node} gave up after {self.request.start_timeout_ns / NS_PER_S:g} s: {what}"
                f"{''.join(self._why.values())}; "
                "start what is missing, check the addresses, or give a longer --start-timeout"
            )
        await asyncio.sleep(POLL_S)

    def _say_missing(self, missing: Sequence[NodeId], refused: Mapping[NodeId, str]) -> str:
        return f"{self._who(missing)} did not come{_why(missing, refused)}"

    def _say_unreached(self) -> str:
        """Return a text on why the first node does not start although all have reported."""
        where = self.request.peers.get(self.request.node, f"{self.request.host}:{self.request.port}")
        return (
            f"{self._who([self.request.first])} has heard of all nodes and can't reach one of its neighbors; "
            f"see that this node can be reached from there, at {where}"
        )

    def _who(self, nodes: Sequence[NodeId]) -> str:
        named = ", ".join(f"{node} ({self.request.peers[node]})" for node in nodes)
        return f"node{'s' * (len(nodes) > 1)} {named}"


def _why(nodes: Collection[NodeId], refused: Mapping[NodeId, str]) -> str:
    return "".join(f"; {reason}" for node, reason in sorted(refused.items()) if node in nodes)


def _afresh(round: int, replies: Mapping[NodeId, Reply], weight: int = 0) -> Rejoin:
    others = (reply.answer.round for reply in replies.values())
    return Rejoin(keep_state=False, round=fresh_round(round, others), weight=weight)
