"""The admission of messages: whether a message fits the graph, the kinds of messages, and the rounds and their steps.

Relies on: the proof that each call carries, which shows that its sender belongs to the fleet; and `prepare`, which a
node calls at the beginning of a round, so that no message waits for a graph to be drawn.

Why: A member may still err, and in plain text it may speak in another's name. A message that no honest node sends is
refused here, before the mailbox keeps it, and counted with its sender. A check takes the same time in a fleet of any
size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from netdfl.core.types import Kind, Message, NodeId

_OF_ROUNDS = frozenset({Kind.DATA, Kind.NOTICE, Kind.REQUEST, Kind.REPLY})
_OF_NEIGHBORS = frozenset({Kind.HEARTBEAT, Kind.PROBE, Kind.QUERY, Kind.STATUS})
MOST_STEPS = 1024
"""The most exchanges in a round if a user's own mixing decides their number, which may differ between nodes."""
STEPS_WITHOUT_GOSSIP = 2
"""The exchanges in a round without gossip: a server's model and the clients' answers; or a pairwise exchange and the
message that a node has finished its round."""
KEPT = 16
"""For how many rounds a node keeps its senders and steps: the present one, and rounds whose messages come early or
late."""


class Admission:
    """The check of messages that come to one node: whether the run's graph, rounds and kinds of messages allow them."""

    def __init__(
        self,
        num_rounds: int,
        senders: Callable[[int], Iterable[NodeId]],
        neighbors: Collection[NodeId],
        asked: Mapping[Kind, bool],
        handles: Callable[[Kind], bool],
        steps: Callable[[int], int] = lambda round: MOST_STEPS,
    ) -> None:
        """Admit the messages that may come in the rounds of a run.

        Args:
            num_rounds: how many rounds the run has.
            senders: returns the nodes that have an edge to this one in a round.
            neighbors: the nodes that have an edge to or from this node in any round.
            asked: for each kind of message that algorithms use, whether this run's algorithm expects it.
            handles: returns whether a part of this node, such as its failure detector, takes messages of another kind.
            steps: returns the number of steps, which are exchanges of messages, of a round.
        """
        self._num_rounds, self._senders, self._neighbors = num_rounds, senders, neighbors
        self._asked, self._handles, self._steps = asked, handles, steps
        self._known: dict[int, tuple[frozenset[NodeId], int]] = {}

    def prepare(self, round: int) -> None:
        """Look up the nodes with an edge to this node in `round` and the next one, before their messages come."""
        for each in range(round, min(round + 2, self._num_rounds)):
            if each not in self._known:
                self._from(each)

    def objection(self, message: Message) -> str:
        """Return the reason why no member of the run would send this message; empty if one may."""
        src, _, kind, _, round, step, _, _ = message
        if not (self._asked[kind] if kind in self._asked else self._handles(kind)):
            return f"node {src} sent a {kind}, which nobody uses in this run"
        if kind in _OF_ROUNDS:
            if not 0 <= round < self._num_rounds:
                return f"node {src} sent a {kind} of round {round}, and the run has {self._num_rounds}"
            senders, steps = self._known.get(round) or self._from(round)
            if src not in senders:
                return f"node {src} sent a {kind} of round {round}, in whose graph it has no edge to this node"
            if not 0 <= step < steps:
                return f"node {src} sent a {kind} of step {step} of round {round}, which has {steps}"
        elif kind in _OF_NEIGHBORS and src not in self._neighbors:
            return f"node {src} sent a {kind}, and is no neighbor of this node"
        return ""

    def _from(self, round: int) -> tuple[frozenset[NodeId], int]:
        if len(self._known) >= KEPT:
            del self._known[next(iter(self._known))]
        found = self._known[round] = frozenset(self._senders(round)), self._steps(round)
        return found
