"""Each node's view of each round (its neighbors and weights), combined from topology, selection and mixing weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from netdfl.core.types import NodeId, Role, View
from netdfl.topology.base import Topology
from netdfl.topology.graph import Graph
from netdfl.topology.selection import AllNeighbors, Participants, Selection
from netdfl.topology.weights import Matrix, MixingMatrix, Weights

_KEPT = 8
_TOLERANCE = 1e-9


class Network:
    """The views of all nodes, and the mixing matrix that they form together.

    A `View` holds a node's neighbors in a round and their weights. Weights are computed for the graph after neighbor
    selection. Where receivers do not know their senders, a view depends only on the node's own choice: `in_neighbors`
    is None and `in_weights` is empty.

    With a `server` (the last node, the hub of a star) the others are clients. In each round the server exchanges
    messages with that round's participants only. Its row of the matrix is the mean of the participants.
    `View.num_nodes` then counts clients.
    """

    def __init__(
        self,
        topology: Topology,
        weights: Weights | None = None,
        selection: Selection | None = None,
        *,
        server: NodeId | None = None,
        participants: Participants | None = None,
    ) -> None:
        """Use the topology's own weights, every neighbor and every client by default.

        Raises:
            ValueError: If the weights do not fit the graph of round 0, if receivers would need to
                know senders that they can't know, or if the server is not the hub of a star.
        """
        self.topology = topology
        self.weights = weights or topology.weights
        self.selection = selection or AllNeighbors()
        self.server = server
        self.receivers_know = topology.receivers_know and self.selection.receivers_know
        self._participants = participants or (lambda _: tuple(range(topology.num_nodes - 1)))
        self._selected = lru_cache(_KEPT)(self._select)
        self._mixing = lru_cache(_KEPT)(self.weights)
        self._views: dict[NodeId, View] = {}  # of one round, if all rounds have the same views but for their number
        if server is not None:
            _check_star(topology, server)
        elif self.receivers_know:
            self._mixing(self._selected(0))
        else:
            self._check_sender_weights()

    @property
    def num_nodes(self) -> int:
        """The number of all nodes, the server included."""
        return self.topology.num_nodes

    @cached_property
    def varies(self) -> bool:
        """Whether two rounds may have different graphs, by redrawing or by a selection in each round."""
        chosen = not isinstance(self.selection, AllNeighbors)
        sampled = self.server is not None and len(self._participants(0)) < self.num_nodes - 1
        return self.topology.time_varying or chosen or sampled

    def graph(self, round: int) -> Graph:
        """Return the graph over which nodes send messages in `round`, after neighbor selection.

        Where receivers don't know their senders, no single node can compute this graph.
        """
        if self.server is None:
            return self._selected(round)
        active = self._participants(round)
        return Graph.undirected(self.num_nodes, [(self.server, client) for client in active])

    def view(self, node: NodeId, round: int) -> View:
        """Return the neighbors of `node` in `round` and their mixing weights."""
        if self.server is not None:
            return self._server_view(round) if node == self.server else self._client_view(node, round)
        if self.receivers_know:
            if (known := self._views.get(node)) is None:
                return self._known_view(node, round)
            return tuple.__new__(View, (known[0], round, *known[2:]))  # `_replace` without its cost
        chosen = self.selection.select(node, round, self.topology.graph(round).out_neighbors(node))
        view = self._peer_view(node, round, self.weights(_own_edges(self.num_nodes, node, chosen)), None)
        hears, sends_to = self._possible(node, round)
        return view._replace(may_hear=hears, may_send_to=sends_to)

    def senders(self, node: NodeId, round: int) -> tuple[NodeId, ...]:
        """Return the nodes with an edge to `node` in `round`; where senders choose, those that may choose `node`."""
        if self.server is None and not self.receivers_know:
            return self._possible(node, round)[0]
        return self.view(node, round).in_neighbors or ()

    def matrix(self, round: int) -> Matrix:
        """Return the mixing matrix M of `round`, computed from all nodes' views: shape (n, n), one row per receiver."""
        matrix = np.zeros((self.num_nodes, self.num_nodes))
        for node in range(self.num_nodes):
            view = self.view(node, round)
            matrix[node, node] = view.self_weight
            matrix[list(view.out_weights), node] = list(view.out_weights.values())
        return matrix

    def _select(self, round: int) -> Graph:
        graph = self.topology.graph(round)
        wanted = [graph.out_neighbors(node) for node in range(self.num_nodes)]
        chosen = [self.selection.select(node, round, wanted[node]) for node in range(self.num_nodes)]
        if chosen == wanted:
            return graph
        return Graph(self.num_nodes, [(src, dst) for src, targets in enumerate(chosen) for dst in targets])

    def _possible(self, node: NodeId, round: int) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...]]:
        """Return the nodes that may send to `node`, and the nodes it may send to, as far as all nodes can know them."""
        if self.topology.receivers_know:
            graph = self.topology.graph(round)
            return graph.in_neighbors(node), graph.out_neighbors(node)
        others = tuple(other for other in range(self.num_nodes) if other != node)
        return others, others

    def _peer_view(self, node: NodeId, round: int, mixing: MixingMatrix, heard: tuple[NodeId, ...] | None) -> View:
        own, received, sent = mixing.node(node)
        return View(node, round, self.num_nodes, mixing.graph.out_neighbors(node), heard, own, received, sent)

    def _known_view(self, node: NodeId, round: int) -> View:
        graph = self._selected(round)
        view = self._peer_view(node, round, self._mixing(graph), graph.in_neighbors(node))
        if not self.varies:
            self._views[node] = view
        return view

    def _server_view(self, round: int) -> View:
        assert self.server is not None
        active = self._participants(round)
        received, sent = dict.fromkeys(active, 1 / len(active)), dict.fromkeys(active, 1.0)
        clients = self.num_nodes - 1
        return View(self.server, round, clients, active, active, 0.0, received, sent, Role.SERVER, self.server)

    def _client_view(self, node: NodeId, round: int) -> View:
        assert self.server is not None
        active, clients = self._participants(round), self.num_nodes - 1
        if node not in active:
            return View(node, round, clients, (), (), 1.0, {}, {}, Role.CLIENT, self.server, active=False)
        received, sent = {self.server: 1.0}, {self.server: 1 / len(active)}
        return View(node, round, clients, (self.server,), (self.server,), 0.0, received, sent, Role.CLIENT, self.server)

    def _check_sender_weights(self) -> None:
        graph = self.topology.graph(0)
        node = int(np.argmax(graph.out_degrees))
        try:
            own, _, sent = self.weights(_own_edges(self.num_nodes, node, graph.out_neighbors(node))).node(node)
            fits = abs(own + sum(sent.values()) - 1) < _TOLERANCE
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                "receivers don't know who will send to them here, so they can't weigh what comes; "
                "use column weights with push-sum, or a selection that is known"
            )


def without(view: View, gone: frozenset[NodeId], *, keep: Literal["rows", "columns"]) -> View:
    """Remove the nodes in `gone` from a view (neighbors and weights), and reassign their weight so that sums are kept.

    `keep="rows"` is for gossip: the weights of `gone` in this node's average go to `self_weight`, so `self_weight` and
    `in_weights` still sum to 1; `out_weights` to the others stay. Where the mixing matrix M is symmetric and both ends
    of a link remove each other, its columns still sum to 1, too, so the fleet's mean is kept.

    `keep="columns"` is for push-sum: `self_weight` and the remaining `out_weights` are scaled to sum to 1, which for
    equal shares is 1 / (1 + live out-neighbors) each; `in_weights` from the others stay, for information: senders
    decide them.

    A server's own model does not enter its mean: it takes the mean of the remaining clients. To its clients a server is
    never gone: they wait for it, and report to it.

    The mixing method decides whether rows or columns keep their sums, because one view can't tell: a node's row may sum
    to 1 by chance.
    """
    known = view.in_neighbors or ()
    gone -= {view.server}
    if gone.isdisjoint(view.out_neighbors) and gone.isdisjoint(known):
        return view
    received, sent = _left(view.in_weights, gone), _left(view.out_weights, gone)
    own = view.self_weight
    if view.role is Role.SERVER and received:
        received = dict.fromkeys(received, 1 / len(received))
    elif keep == "rows":
        own += sum(weight for peer, weight in view.in_weights.items() if peer in gone)
    else:
        total = own + sum(sent.values())
        own, sent = own / total, {peer: weight / total for peer, weight in sent.items()}
    return view._replace(
        out_neighbors=tuple(peer for peer in view.out_neighbors if peer not in gone),
        in_neighbors=None if view.in_neighbors is None else tuple(peer for peer in known if peer not in gone),
        self_weight=own,
        in_weights=received,
        out_weights=sent,
    )


def _left(weights: Mapping[NodeId, float], gone: frozenset[NodeId]) -> dict[NodeId, float]:
    return {peer: weight for peer, weight in weights.items() if peer not in gone}


def _own_edges(num_nodes: int, node: NodeId, chosen: tuple[NodeId, ...]) -> Graph:
    return Graph(num_nodes, [(node, peer) for peer in chosen])


def _check_star(topology: Topology, server: NodeId) -> None:
    clients = tuple(range(topology.num_nodes - 1))
    graph = topology.graph(0)
    alone = all(graph.out_neighbors(client) == graph.in_neighbors(client) == (server,) for client in clients)
    if server != topology.num_nodes - 1 or topology.time_varying or not alone:
        raise ValueError(
            f"the server, node {server}, is not the hub of a star with clients 0 to {topology.num_nodes - 2}; "
            "a server algorithm needs topology kind star, with the default hub"
        )
