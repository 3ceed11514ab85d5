"""The placement of nodes on sites: as written, by group, in order, or by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.links.selectors import Groups, nearest, parse_nodes

Placement: TypeAlias = Literal["in order", "by group", "random"]
"""The ways to place nodes without naming the site of each.

`in order`: one node on each site, then again from the first site. `by group`: a group of nodes goes to the site with
its name. `random`: each node's site is drawn by the scenario's seed.
"""


def place(
    how: Placement | Mapping[str, str], num_nodes: int, sites: Sequence[str], groups: Groups, streams: Streams
) -> dict[NodeId, str]:
    """Return the site of each node.

    `how` is `in order`, `by group`, `random` (see `Placement`), or a mapping from nodes to sites.

    Raises:
        ValueError: A node has no site, or two, or a site is unknown; the text has a remedy.
    """
    if how == "in order":
        return {node: sites[node % len(sites)] for node in range(num_nodes)}
    if how == "random":
        drawn = streams.rng("underlay", "place").integers(len(sites), size=num_nodes)
        return {node: sites[int(site)] for node, site in enumerate(drawn)}
    written = {name: name for name in groups} if how == "by group" else how
    placed: dict[NodeId, str] = {}
    for selector, site in written.items():
        if site not in sites:
            whose = f"the group {selector} is on no site" if how == "by group" else f"there is no site {site!r}"
            raise ValueError(f"{whose}; {nearest(site, sites)}")
        for node in sorted(parse_nodes(selector, groups, num_nodes)):
            if node in placed and placed[node] != site:
                raise ValueError(f"node {node} is on {placed[node]} and on {site}; leave it on one")
            placed[node] = site
    if missing := [node for node in range(num_nodes) if node not in placed]:
        more = f", nor have {len(missing) - 1} more" if missing[1:] else ""
        whole = "put it into a group" if how == "by group" else f"add {missing[0]}: {sites[0]}, say"
        raise ValueError(f"node {missing[0]} has no site{more}; {whole}")
    return placed
