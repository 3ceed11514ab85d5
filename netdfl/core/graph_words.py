"""A graph counted in words, the same wherever people read it.

An edge joins two nodes; a link carries messages one way. So an edge that works both ways is two links.
"""

from __future__ import annotations


def count_words(num_nodes: int, num_links: int, *, directed: bool) -> str:
    """`8 nodes, 8 edges, each both ways (16 links)`, or `8 nodes, 24 one-way links`."""
    nodes = f"{num_nodes:,} node{'s' * (num_nodes != 1)}"
    if directed:
        return f"{nodes}, {num_links:,} one-way link{'s' * (num_links != 1)}"
    edges = num_links // 2
    each = ", each both ways" if edges > 1 else " both ways" if edges else ""
    return f"{nodes}, {edges:,} edge{'s' * (edges != 1)}{each} ({num_links:,} links)"


def redrawn_words(every: int, *, chosen: bool = False, server: bool = False) -> str:
    """How often a graph is drawn anew (0: never), or what of it is `chosen` in each round."""
    if chosen and not every:
        return "the server draws clients anew every round" if server else "nodes choose among neighbors every round"
    return "static" if not every else "redrawn every round" if every == 1 else f"redrawn every {every} rounds"
