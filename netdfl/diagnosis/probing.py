"""The deadlock detection of nodes without a supervisor: a node that has waited long sends probes.

A probe is a message of kind `probe` over the normal transport, with the delays, losses and bytes of its links. A node
passes a probe on only while it waits itself, and only if it has not sent the message that the asking node awaits. If it
has sent that message, it answers so: the message is lost or on its way, and no deadlock keeps the asking node waiting.
A finding takes two computations in a row during one wait.

A node that waits for all of its sources takes part in edge chasing, a node that waits for any of them in diffusing
computations, a node with a single source in both. Waits for k of n (1 < k < n) and for unknown senders have no
detector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from netdfl.core.clock import NS_PER_S, Clock
from netdfl.core.types import Kind, LogicalId, Message, NodeId, Payload, StepId
from netdfl.diagnosis.finding import DEADLINE, Cause, Finding
from netdfl.diagnosis.probes import AndDetector, EdgeChasingProbe, OrDetector
from netdfl.diagnosis.why import Grounds, Need, Reason, ReasonKind
from netdfl.node.runtime import Node
from netdfl.node.waits import OpenWait
from netdfl.transport.base import Fate

TIMES = 2
BACKOFF = 16
AFTER_NS = 2 * NS_PER_S
MOST_ATTEMPTS = (1 << 16) - 1
"""The number of attempts to send a message that its header can tell apart.

The attempt that marks reports and notices of emulated links is not counted (`NO_ATTEMPT` in
`transport/emulated/receipts.py`).
"""
MOST_WAITS = 4
"""The most waits per node, on average, that a probe may have passed; a longer path is malformed.

A node has one wait at a time.
"""


class DeadlockProber:
    """One node's part in the deadlock detection by probes between nodes."""

    def __init__(
        self,
        node: Node,
        num_nodes: int,
        *,
        after_ns: int,
        found: Callable[[Finding], None],
        still: Callable[[], bool] = lambda: False,
    ) -> None:
        """Send probes once a wait of `node` has lasted `after_ns`, unless `still()` returns that the node is paused.

        `num_nodes` is the number of nodes of the fleet. `found` is called with each diagnosed stall.
        """
        self.node, self.num_nodes, self.after_ns = node, num_nodes, after_ns
        self._found, self._still = found, still
        self._chase, self._diffuse = AndDetector(node.id), OrDetector(node.id)
        self._wait: OpenWait | None = None
        self._missing: frozenset[NodeId] = frozenset()
        self._proofs = 0
        self._fresh = self._told = False
        self._sent: Counter[NodeId] = Counter()
        self._numbers: Counter[NodeId] = Counter()
        node.mailbox.on(Kind.PROBE, self.take)

    async def run(self) -> None:
        """Check the node's wait until cancelled, at growing intervals while nothing is found."""
        clock, pause_ns = self.node.clock, self.after_ns
        while True:
            await clock.sleep_until(clock.now_ns() + pause_ns)
            asked = not self._still() and self._look(clock)
            pause_ns = min(2 * pause_ns, BACKOFF * self.after_ns) if asked and self._proofs == 0 else self.after_ns

    def _look(self, clock: Clock) -> bool:
        """Start a deadlock detection if the node's wait has lasted long; return whether one was started."""
        self._follow()
        wait = self._wait
        if wait is None or self._told or clock.now_ns() - wait.since_ns < self.after_ns:
            return False
        self._fresh = True
        probes = self._chase.start() if self._for_all(wait) else []
        self._send(probes + (self._diffuse.start() if self._for_any(wait) else []))
        return True

    # the node's wait

    def _follow(self) -> None:
        """Pass the awaited nodes to the deadlock detectors, if the wait is new or fewer nodes are awaited."""
        wait = self.node.waits.current
        if wait is not None and (wait.sources is None or wait.deadline_ns is not None):
            wait = None  # the senders are not known, or time ends the wait
        missing = frozenset() if wait is None else self._open(wait)
        if wait is self._wait and missing == self._missing:
            return
        self._wait, self._missing = wait, missing
        self._proofs, self._told = 0, False
        self._sent.clear()
        self._chase.wait(missing if wait is not None and self._for_all(wait) else ())
        self._diffuse.wait(missing if wait is not None and self._for_any(wait) else ())

    def _open(self, wait: OpenWait) -> frozenset[NodeId]:
        return (wait.sources or frozenset()) - wait.have - self.node.waits.gone - wait.silent

    def _for_all(self, wait: OpenWait) -> bool:
        return wait.need - len(wait.have) >= len(self._missing)

    def _for_any(self, wait: OpenWait) -> bool:
        return wait.need - len(wait.have) == 1

    def _gave(self, to: NodeId, id: LogicalId) -> bool:
        """Return whether this node has sent the message `id` that node `to` awaits, or is past the message's step."""
        round, step = id.at
        if id.kind is Kind.REPLY:
            return self.node.requests.answered.get(to) == (round, step)
        if self.node.round != round or self._wait is None:
            return self.node.round > round
        return self._wait.round < round or self._wait.step >= step

    def _will_give(self, to: NodeId, id: LogicalId) -> bool:
        """Return whether this node will send `id` although it waits, as a reply or as a repetition."""
        delivery = self.node.delivery
        if id.kind is Kind.REPLY:
            return self.node.requests.serving
        kinds = (id.kind, Kind.NOTICE) if id.kind is Kind.DATA else (id.kind,)
        return delivery is not None and any((to, id._replace(kind=kind)) in delivery.due_again for kind in kinds)

    # messages

    def take(self, message: Message) -> Fate:
        """Handle a received probe, and send the probes that follow from it; refuse a malformed one."""
        try:
            probe, id = _read(message, self.num_nodes)
        except (KeyError, TypeError, ValueError):
            return Fate.REFUSED
        self._follow()
        if probe.kind == "sent":
            self._was_sent(probe)
        elif probe.kind == "reply":
            self._detect(probe)
        elif self._gave(probe.src, id):
            if not self._will_give(probe.src, id):
                self._send([EdgeChasingProbe("sent", probe.initiator, probe.number, self.node.id, probe.src)])
        elif not self._will_give(probe.src, id):
            self._detect(probe)
        return Fate.DELIVERED

    def _detect(self, probe: EdgeChasingProbe) -> None:
        detector: AndDetector | OrDetector = self._chase if probe.kind == "probe" else self._diffuse
        self._send(detector.receive(probe))
        if detector.deadlocked and probe.initiator == self.node.id:
            detector.deadlocked = False
            self._proofs += self._fresh
            self._fresh = False
            if self._proofs == TIMES and not self._told:
                self._tell(Cause.DEADLOCK, detector.members)

    def _was_sent(self, probe: EdgeChasingProbe) -> None:
        """Record that an awaited node has sent its message, which is lost or still under way."""
        wait = self._wait
        if wait is None or probe.initiator != self.node.id or probe.src not in self._missing:
            return
        self._sent[probe.src] += 1
        sure = {node for node, times in self._sent.items() if times >= TIMES}
        if len(self._missing - sure) < wait.need - len(wait.have) and not self._told:
            self._tell(Cause.LOST_MESSAGE, [(node, wait.round) for node in sorted(sure)])

    def _send(self, probes: Sequence[EdgeChasingProbe]) -> None:
        for probe in () if self._still() else probes:
            self.node.post(self._message(probe))

    def _message(self, probe: EdgeChasingProbe) -> Message:
        wait, me = self._wait, self.node
        slot = ("", 0, 0) if wait is None else (str(wait.kind), wait.round, wait.step)
        path = [list(each) for each in (*probe.path, (me.id, slot[1]))]
        meta = {"kind": probe.kind, "initiator": probe.initiator, "number": probe.number, "slot": slot, "path": path}
        attempt = self._numbers[probe.dst] % MOST_ATTEMPTS
        self._numbers[probe.dst] += 1
        round = max(me.round, 0)
        return Message(me.id, probe.dst, Kind.PROBE, me.epoch, round, 0, attempt, Payload(meta=meta))

    def _tell(self, cause: Cause, members: Sequence[tuple[NodeId, int]]) -> None:
        assert self._wait is not None
        self._told, me, now = True, self.node.id, self.node.clock.now_ns()
        nodes = tuple(sorted({node for node, _ in members} | ({me} if cause is Cause.DEADLOCK else set())))
        missing = sorted(self._missing)
        if cause is Cause.DEADLOCK:
            others = [Need(node, round) for node, round in members if node != me]
            own = Need(me, self._wait.round, tuple(missing), len(missing))
            grounds = Grounds(at_ns=now, knot=(*others, own))
        else:
            round, why = self._wait.round, ReasonKind.LOST_OR_LATE
            sent = [Reason(waiter=me, source=node, round=round, why=why, edge=(node, me)) for node in nodes]
            grounds = Grounds(at_ns=now, reasons=tuple(sent))
        self._found(
            Finding(
                cause=cause,
                roots=nodes if cause is Cause.DEADLOCK else (me,),
                culprits=nodes,
                grounds=grounds,
                round=self._wait.round,
                witness=tuple((me, source) for source in missing),
                began_ns=self._wait.since_ns,
                found_ns=now,
                permanent=cause is Cause.DEADLOCK,
                suspected=cause is not Cause.DEADLOCK,
                remedies=(DEADLINE,),  # waits with a deadline are not looked at
            )
        )


def _read(message: Message, num_nodes: int) -> tuple[EdgeChasingProbe, LogicalId]:
    """Read the probe in `message`. Raises KeyError, TypeError or ValueError if it has none that a node could send.

    `num_nodes` is the number of nodes of the fleet.
    """
    meta: Any = message.payload.meta
    kind, round, step = meta["slot"]
    if meta["kind"] not in ("probe", "query", "reply", "sent"):
        raise ValueError(meta["kind"])
    if len(meta["path"]) > MOST_WAITS * num_nodes:
        raise ValueError(f"a path of {len(meta['path'])} nodes")
    path = tuple((_whole(node), _whole(own)) for node, own in meta["path"])
    computation = _whole(meta["initiator"]), _whole(meta["number"])
    if strangers := [node for node in (computation[0], *(node for node, _ in path)) if not 0 <= node < num_nodes]:
        raise ValueError(f"a probe of node {strangers[0]}")
    probe = EdgeChasingProbe(meta["kind"], *computation, message.src, message.dst, path)
    return probe, LogicalId(Kind(kind or Kind.DATA), StepId(_whole(round), _whole(step)))  # none: it awaits nothing


def _whole(value: Any) -> int:
    """Return `value` if it is an integer, as any number of a probe is. Raises TypeError."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no integer")
    return value
