"""Who a node is to its peers: compared once per channel, before any message is taken."""

from __future__ import annotations

from dataclasses import dataclass

from netdfl.core.types import NodeId
from netdfl.transport.v1.data_pb2 import HelloRequest
from netdfl.transport.wire import PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Identity:
    """A node of one run. `run_id` is 8 bytes that the launcher draws; `epoch` counts restarts."""

    node: NodeId
    epoch: int
    run_id: bytes
    scenario_hash: str

    def greeting(self, callee: NodeId) -> HelloRequest:
        """What this node says to `callee`."""
        return HelloRequest(
            protocol_version=PROTOCOL_VERSION,
            run_id=self.run_id,
            scenario_hash=self.scenario_hash,
            node=self.node,
            epoch=self.epoch,
            callee=callee,
        )

    def objection(self, caller: HelloRequest) -> str:
        """Why `caller` is a stranger to this node, with both sides' values; empty if it is none."""
        compared = (
            ("protocol version", caller.protocol_version, PROTOCOL_VERSION),
            ("run", caller.run_id.hex(), self.run_id.hex()),
            ("scenario", caller.scenario_hash, self.scenario_hash),
            ("address, which it takes for node", caller.callee, self.node),
        )
        wrong = [f"{what} {theirs}, expected {ours}" for what, theirs, ours in compared if theirs != ours]
        return f"node {caller.node} comes with another {'; another '.join(wrong)}" if wrong else ""
