"""The identity of a node, which its peers compare once per channel, before they take any message."""

from __future__ import annotations

from dataclasses import dataclass

from netdfl.core.types import NodeId
from netdfl.transport.v1.data_pb2 import HelloRequest
from netdfl.transport.wire import PROTOCOL_VERSION

MOST_EPOCH = 1 << 20
"""The most restarts that a node may claim. A stranger's greater number would keep the node itself out."""
MOST_LETTERS = 64


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a node in a run.

    `run_id` is 8 bytes that the supervisor draws; `epoch` counts the restarts of the node.
    """

    node: NodeId
    epoch: int
    run_id: bytes
    scenario_hash: str

    def greeting(self, callee: NodeId, renewal: int = 0) -> HelloRequest:
        """Return this node's hello request, by which node `callee` checks its identity.

        A callee that accepts a new number `renewal` will not begin to read any body that this node lent to it before.
        """
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
        """Return the reason why `caller` does not belong to this node's fleet; empty if it does."""
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
    """Return untrusted text in a form that is safe in error messages: printable, one line, at most `most` letters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:most])
    return shown if len(text) <= most else f"{shown}..."
