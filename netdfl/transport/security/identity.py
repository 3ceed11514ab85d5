"""Who a node is to its peers: compared once per channel, before any message is taken."""

from __future__ import annotations

from dataclasses import dataclass

from netdfl.core.types import NodeId
from netdfl.transport.v1.data_pb2 import HelloRequest
from netdfl.transport.wire import PROTOCOL_VERSION

MOST_EPOCH = 1 << 20
"""How often a node may say that it was restarted: more is no restart, and would keep the node itself out."""
MOST_LETTERS = 64


@dataclass(frozen=True, slots=True)
class Identity:
    """A node of one run. `run_id` is 8 bytes that the supervisor draws; `epoch` counts restarts."""

    node: NodeId
    epoch: int
    run_id: bytes
    scenario_hash: str

    def greeting(self, callee: NodeId, renewal: int = 0) -> HelloRequest:
        """Make the hello of this node to `callee`, which renews what it lends to it in shared memory."""
        return HelloRequest(
            protocol_version=PROTOCOL_VERSION,
            run_id=self.run_id,
            scenario_hash=self.scenario_hash,
            node=self.node,
            epoch=self.epoch,
            callee=callee,
            renewal=renewal,
        )

    def objection(self, caller: HelloRequest) -> str:
        """Why `caller` is a stranger to this node, with both sides' values; empty if it is none."""
        compared = (
            ("protocol version", caller.protocol_version, PROTOCOL_VERSION),
            ("run", caller.run_id.hex(), self.run_id.hex()),
            ("scenario", caller.scenario_hash, self.scenario_hash),
            ("address, which it takes for node", caller.callee, self.node),
        )
        wrong = [f"{what} {plainly(str(theirs))}, expected {ours}" for what, theirs, ours in compared if theirs != ours]
        if wrong:
            return f"node {caller.node} comes with another {'; another '.join(wrong)}"
        if caller.epoch > MOST_EPOCH:
            return f"node {caller.node} says that it was restarted {caller.epoch} times, at most {MOST_EPOCH} are taken"
        return ""


def plainly(text: str, most: int = MOST_LETTERS) -> str:
    """What a stranger says, as it may stand in a sentence: on one line, and not for long."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:most])
    return shown if len(text) <= most else f"{shown}..."
