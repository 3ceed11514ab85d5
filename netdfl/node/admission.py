"""The admission of messages: whether the run has such a message for this node at all, by its graph, kinds and rounds.

Whoever sends has proved that it is of the fleet. A member may still err, and in plain text it may speak in another's
name; what no honest node sends is refused here. A look takes the same time however large the fleet is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from netdfl.core.types import Kind, Message, NodeId

_OF_ROUNDS = frozenset({Kind.DATA, Kind.NOTICE, Kind.REQUEST, Kind.REPLY})
_OF_NEIGHBORS = frozenset({Kind.HEARTBEAT, Kind.PROBE, Kind.QUERY, Kind.STATUS})
KEPT = 16
"""How many rounds' senders are kept: of the present round, and of rounds of which messages come early or late."""


class Admission:
    """The admission of messages to one node."""

    def __init__(
        self,
        num_rounds: int,
        senders: Callable[[int], Iterable[NodeId]],
        neighbors: Collection[NodeId],
        uses: Callable[[Kind], bool],
    ) -> None:
        """Admit what comes in the rounds of a run.

        Args:
            num_rounds: how many rounds the run has.
            senders: returns the nodes that have an edge to this one in a round.
            neighbors: the nodes that may ever have one, in either direction.
            uses: returns whether the algorithm, or a part of this node, expects a kind of messages.
        """
        self._num_rounds, self._senders, self._neighbors, self._uses = num_rounds, senders, neighbors, uses
        self._known: dict[int, frozenset[NodeId]] = {}

    def objection(self, message: Message) -> str:
        """Return why the run has no such message; empty if it has."""
        src, _, kind, _, round, _, _, _ = message
        if not self._uses(kind):
            return f"node {src} sent a {kind}, which nobody uses in this run"
        if kind in _OF_ROUNDS:
            if not 0 <= round < self._num_rounds:
                return f"node {src} sent a {kind} of round {round}, and the run has {self._num_rounds}"
            if src not in (self._known.get(round) or self._from(round)):
                return f"node {src} sent a {kind} of round {round}, in whose graph it has no edge to this node"
        elif kind in _OF_NEIGHBORS and src not in self._neighbors:
            return f"node {src} sent a {kind}, and is no neighbor of this node"
        return ""

    def _from(self, round: int) -> frozenset[NodeId]:
        if len(self._known) >= KEPT:
            del self._known[next(iter(self._known))]
        found = self._known[round] = frozenset(self._senders(round))
        return found
