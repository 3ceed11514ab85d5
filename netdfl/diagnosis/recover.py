"""How a stall is ended where the scenario asks for it: leave the culprits out, or have the message sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from netdfl.core.types import Kind, NodeId
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.outgoing import SentKey
from netdfl.diagnosis.snapshot import Snapshot, What

OnStall: TypeAlias = Literal["stop", "skip", "resend"]
MOST_RESENDS = 3


@dataclass(frozen=True, slots=True)
class Skip:
    """`node` waits for `sources` no more this time."""

    node: NodeId
    sources: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class Resend:
    """`src` sends its message of (round, step) and `kind` to `dst` again."""

    src: NodeId
    dst: NodeId
    round: int
    step: int
    kind: Kind = Kind.DATA

    @property
    def sent(self) -> SentKey:
        """What `src` calls the message."""
        return self.dst, self.round, self.step, self.kind


RecoveryStep: TypeAlias = Skip | Resend


@dataclass
class Recovery:
    """What the scenario chose (`wait.on_stall`), and how often each message was sent again."""

    choice: OnStall
    can_send_again: Callable[[Resend], bool]
    resent: Counter[Resend] = field(default_factory=Counter)

    def steps(self, finding: Finding, snapshot: Snapshot) -> list[RecoveryStep]:
        """What ends `finding`; empty where nothing does, so that the run has to stop."""
        if not finding.permanent or finding.suspected:
            return []
        if self.choice == "skip":
            return self._skips(finding, snapshot)
        return self._resends(finding, snapshot) if self.choice == "resend" else []

    def _skips(self, finding: Finding, snapshot: Snapshot) -> list[RecoveryStep]:
        waits = {root: snapshot.nodes[root].wait for root in finding.roots}
        if any(wait is None or wait.what is What.ROOM for wait in waits.values()):
            return []
        return [Skip(root, frozenset(s for node, s in finding.witness if node == root)) for root in finding.roots]

    def _resends(self, finding: Finding, snapshot: Snapshot) -> list[RecoveryStep]:
        if finding.cause is not Cause.LOST_MESSAGE:
            return []
        steps = [_lost(snapshot, root, culprit) for root, culprit in finding.witness]
        if any(self.resent[step] >= MOST_RESENDS or not self.can_send_again(step) for step in steps):
            return []
        self.resent.update(steps)
        return list(steps)


def _lost(snapshot: Snapshot, root: NodeId, culprit: NodeId) -> Resend:
    """The message for want of which `root` waits for `culprit`: one from there, or its own request to there."""
    wait = snapshot.nodes[root].wait
    assert wait is not None, f"node {root} is the root of a stall and waits for nothing"
    src, dst = wait.awaited[culprit].edge or (culprit, root)
    kind = Kind.DATA if wait.what is What.MESSAGE else Kind.REQUEST if src == root else Kind.REPLY
    return Resend(src, dst, wait.round, wait.step, kind)
