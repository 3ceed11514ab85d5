"""A real node's part in the diagnosis: it answers probes, leaves nodes out, and sends messages again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from netdfl.core.control import Probe, ProbeReply, Recover
from netdfl.diagnosis.account import Account, give_account, stack_of
from netdfl.diagnosis.outgoing import Outgoing
from netdfl.node.pause import Gate
from netdfl.node.runtime import Node


class Probed:
    """What the launcher asks of one node."""

    def __init__(self, node: Node, outgoing: Outgoing, gate: Gate, finished: Callable[[], bool]) -> None:
        """Speak for `node`, which sends through `outgoing` and stands still behind `gate`."""
        self.node, self.outgoing, self.gate, self.finished = node, outgoing, gate, finished
        self._sending: set[asyncio.Task[None]] = set()

    def account(self) -> Account:
        """What the node does now."""
        return give_account(
            self.node,
            self.outgoing,
            finished=self.finished(),
            paused=self.gate.closed,
            stack=stack_of(self.gate.coroutine),
        )

    def answer(self, probe: Probe) -> ProbeReply:
        """The answer to `probe`."""
        return ProbeReply(probe.id, self.account().to_json())

    def recover(self, order: Recover) -> None:
        """Wait no more for some nodes; send some messages again, if they are still kept."""
        if order.skip:
            self.node.waits.skip(frozenset(order.skip))
        for again in order.again:
            sent = again.dst, again.round, again.step, again.kind
            if self.outgoing.can_send_again(sent):
                task = asyncio.create_task(self.outgoing.send_again(sent))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
