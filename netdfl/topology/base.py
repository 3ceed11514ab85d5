"""The class of all topologies: a function from each round to the graph of links that the fleet may use in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from netdfl.core.errors import OwnPartError
from netdfl.core.whose import defined_at
from netdfl.topology.graph import Graph
from netdfl.topology.weights import Weights, auto

_KEPT = 16  # graphs of past and coming rounds: nodes may be rounds apart


class Topology:
    """A graph for every round, drawn anew every `redraw_every` rounds.

    Every node can draw the whole graph, because it depends only on the seed and the round. A topology that a user
    writes is a function that returns a `Topology`.

    Attributes:
        num_nodes: Nodes of every graph, including the server if there is one.
        directed: Whether some link may work one way only.
        time_varying: Whether two rounds may have different graphs.
        receivers_know: Whether every node can compute which nodes send to it, because no sender chooses by itself.
        weights: The mixing weights that suit the topology, used if the scenario names none.
        base: The graph from which the graphs of all rounds are drawn, if there is one.
        notes: Remarks on the file from which the topology was read.
    """

    def __init__(
        self,
        num_nodes: int,
        draw: Callable[[int], Graph],
        *,
        directed: bool,
        redraw_every: int = 0,
        receivers_know: bool = True,
        weights: Weights = auto,
        base: Graph | None = None,
        notes: Sequence[str] = (),
        connected: bool = True,
    ) -> None:
        """Make a topology from `draw`, a function that draws a graph for each block of `redraw_every` rounds.

        Args:
            num_nodes: Nodes of every graph.
            draw: Gets a block's number, from 0, and returns its `Graph`. Drawn twice it must be the same graph, so
                random numbers must come from `streams.rng("topology", NAME, block)`.
            directed: Whether some link may work one way only.
            redraw_every: Rounds in a block; 0 puts all rounds in one block, so the graph is static.
            receivers_know: Whether every node can compute which nodes send to it.
            weights: The mixing weights for scenarios that name none.
            base: The graph from which the graphs of all rounds are drawn, if there is one.
            notes: Remarks for the user.
            connected: Whether a static graph must be strongly connected.

        Raises:
            ValueError: If round 0 can't be drawn, or a static topology is not strongly connected.
        """
        self.num_nodes = num_nodes
        self.directed = directed
        self.redraw_every = redraw_every
        self.receivers_know = receivers_know
        self.weights = weights
        self.base = base
        self.notes = notes
        self._draw = lru_cache(_KEPT)(partial(_drawn, draw, num_nodes))
        first = self.graph(0)
        if connected and not self.time_varying:
            check_connected(first, "the graph")

    @property
    def time_varying(self) -> bool:
        """Whether two rounds may have different graphs."""
        return self.redraw_every > 0

    def graph(self, round: int) -> Graph:
        """Return the graph of `round`; the graphs drawn last are cached."""
        return self._draw(round // self.redraw_every if self.redraw_every else 0)


def _drawn(draw: Callable[[int], Graph], num_nodes: int, block: int) -> Graph:
    """Return the graph that `draw` draws for a block of rounds. Raises OwnPartError if it is none of `num_nodes`."""
    graph: object = draw(block)
    if isinstance(graph, Graph) and graph.num_nodes == num_nodes:
        return graph
    drew = f"a graph of {graph.num_nodes} nodes for {num_nodes}" if isinstance(graph, Graph) else repr(graph)[:80]
    place = f" ({where})" if (where := defined_at(draw)) else ""
    raise OwnPartError(f"the topology drew {drew} as block {block}{place}", f"return a Graph of {num_nodes} nodes")


def static(graph: Graph, notes: Sequence[str] = ()) -> Topology:
    """Return a topology with one graph for all rounds. Raises ValueError if it is not strongly connected."""
    return Topology(graph.num_nodes, lambda _: graph, directed=not graph.is_symmetric, notes=notes)


def check_connected(graph: Graph, what: str) -> None:
    """Raise ValueError unless every node reaches every other; the text names the graph (`what`) and nodes cut off."""
    if graph.cut_off:
        some = ", ".join(map(str, graph.cut_off[:5])) + (", ..." if len(graph.cut_off) > 5 else "")
        raise ValueError(
            f"{what} is not connected: {len(graph.cut_off)} of {graph.num_nodes} nodes (node {some}) "
            "can't reach node 0 or be reached from it; add links or neighbors"
        )


def draw_connected(draw: Callable[[], Graph], what: str, remedy: str, *, tries: int = 100) -> Graph:
    """Draw graphs by `draw` until one is strongly connected.

    Raises ValueError with `what`, the graph's name, and the advice `remedy` after `tries` draws.
    """
    for _ in range(tries):
        graph = draw()
        if graph.is_strongly_connected:
            return graph
    raise ValueError(f"{what} gave no connected graph in {tries} draws; {remedy}")
