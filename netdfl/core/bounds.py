"""Bounds on the messages and RPC calls that nodes in real processes hold before they use them, from the scenario.

    of one peer       `window` messages that arrive early, each as long as this model's
    in all            the same for each of its `peers`
    on a connection   `streams` calls at a time, for the pairs of `together` nodes that may share it
    of a process      `calls` that it has not handled yet
    at a port         `connections`, few of them for callers that have not proved the fleet's secret

A message beyond a bound is held back: its sender waits, and nothing is lost. The first message of a peer is always
kept.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

WINDOW, MOST_WINDOW = 64, 1024
"""The smallest and the largest window: how many early messages of one peer a node keeps. A sender queues at most
`WINDOW` messages for one receiver."""
BESIDE = 64 * 1024
"""The most bytes that a message has in addition to its vector."""
STREAMS_A_PAIR = 4
"""The most open calls between two nodes: a stream of messages, a hello or a message in chunks, two that end now."""
STREAMS_BESIDE = 16
CALLS_BESIDE = 64
"""How many RPC calls may wait to be handled by a process besides the calls of its nodes' peers.

A call that waits takes some 40 kB.
"""
CONNECTIONS_A_PROCESS = 4
"""Connections to a port from each other process: one for messages, one for heartbeats, and two that failed unnoticed
or serve calls by hand."""
VISITORS, MOST_VISITORS = 192, 64
"""VISITORS: the most connections to a port over which nobody has proved the fleet's secret.

Each takes 10 to 45 kB. MOST_VISITORS: how many of these each periodic check leaves open. Their difference is the number
that strangers must open between two checks before a node of the fleet gets no connection.
"""


def connections_for(processes: int) -> int:
    """Return how many connections a port may have in a fleet of `processes`, each with ports of its own."""
    return CONNECTIONS_A_PROCESS * processes + VISITORS


@dataclass(frozen=True, kw_only=True)
class MemoryBounds:
    """The limits on messages, RPC calls and connections of other processes that a fleet's nodes hold in memory.

    Attributes:
        window: the most early messages of one peer that a node keeps.
        frame_bytes: the bytes of a message with one vector of the scenario's model.
        peers: the most peers that a node receives from.
        together: the number of nodes in a process.
        streams: the most RPC calls at a time on a connection.
        calls: the most RPC calls that wait until a process handles them.
        connections: the most connections to a port.
    """

    window: int
    frame_bytes: int
    peers: int
    together: int
    streams: int
    calls: int
    connections: int

    @classmethod
    def of(
        cls, *, num_nodes: int, together: int, peers: int, directed: bool, dim: int, tls: bool = False
    ) -> MemoryBounds:
        """Return the limits for `num_nodes` nodes, `together` of them per process, with up to `peers` neighbors each.

        Messages hold `dim` numbers. With `tls` each node has a port and connections of its own. On one-way links a
        node may run ahead of a neighbor by as many rounds as there are nodes on the way back to it.
        """
        together = min(together, num_nodes)
        return cls(
            window=min(MOST_WINDOW, max(WINDOW, num_nodes if directed else 0)),
            frame_bytes=8 * dim + BESIDE,
            peers=peers,
            together=together,
            streams=STREAMS_A_PAIR * together**2 + STREAMS_BESIDE,
            calls=STREAMS_A_PAIR * together * peers + CALLS_BESIDE,
            connections=connections_for(num_nodes if tls else -(-num_nodes // together)),
        )

    def to_json(self) -> dict[str, int]:
        """Return the limits, and the limits in bytes that follow from them, for the run's record."""
        return {**asdict(self), "peer_bytes": self.peer_bytes, "mailbox_bytes": self.mailbox_bytes}

    @property
    def peer_bytes(self) -> int:
        """Maximum bytes of one peer's messages that are stored for steps that the node does not await yet."""
        return self.window * self.frame_bytes

    @property
    def mailbox_bytes(self) -> int:
        """Maximum bytes of all peers' messages that are stored for steps that the node does not await yet."""
        return self.peers * self.peer_bytes
