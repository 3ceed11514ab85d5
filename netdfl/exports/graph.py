"""A run's graph as GraphML, with what its nodes did and what its links carried."""

from __future__ import annotations

from netdfl.core.errors import InputError
from netdfl.record.messages import count_by_link
from netdfl.record.run import Run


def graphml(run: Run) -> str:
    """The graph of round 0 and every link that carried something. Raises InputError where there is no graph."""
    import networkx as nx

    written = run.graph
    if written is None:
        raise InputError(f"{run.path} has no graph.json, so there is no graph to export")
    graph: nx.DiGraph[int] = nx.DiGraph(name=run.path.name)
    server = written.get("server")
    graph.add_nodes_from(range(written["num_nodes"]), role="client")
    if server is not None:
        graph.nodes[server]["role"] = "server"
    graph.add_edges_from(((src, dst) for src, dst in written["edges"] if src != dst), planned=True)
    ended = run.rows("SELECT node, count(*) FROM metrics WHERE name = 'round_s' AND node >= 0 GROUP BY node")
    for node, rounds in ended:
        graph.nodes[node]["rounds"] = rounds
    for link in count_by_link(run):
        carried = {"messages": link.counts.sent, "delivered": link.counts.delivered, "lost": link.counts.lost}
        graph.add_edge(*link.edge, **carried, bytes=link.nbytes)
        if link.delay_s is not None:
            graph.edges[link.edge]["delay_s"] = float(link.delay_s)
    for _, _, known in graph.edges(data=True):
        known.setdefault("planned", False)
    return "\n".join(nx.generate_graphml(graph)) + "\n"
