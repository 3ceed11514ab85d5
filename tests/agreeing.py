"""Scenarios of simulated fleets that train nothing: their nodes agree."""

from __future__ import annotations


def agreeing_fleet(nodes: int, rounds: int, neighbors: int, redraw_every: int = 0) -> dict[str, object]:
    """A fleet of any size, each node with some neighbors; links take 20 ms."""
    return {
        "schema": "netdfl/1",
        "name": f"agreeing-{nodes}",
        "nodes": nodes,
        "rounds": rounds,
        "topology": {"kind": "random_sym", "neighbors": neighbors, "redraw_every": redraw_every},
        "algorithm": {"name": "dpsgd"},
        "task": {"kind": "consensus", "dim": 4},
        "links": {"default": {"latency": "20ms"}},
        "world": {"kind": "simulated"},
    }


def agreeing(name: str, nodes: int, rounds: int, more: str = "", *, compute: str = "0s", topology: str = "ring") -> str:
    """The text of a small one, with `more` lines."""
    return f"""
schema: netdfl/1
name: {name}
nodes: {nodes}
rounds: {rounds}
world: {{kind: simulated, compute: {compute}}}
task: {{kind: consensus, dim: 2}}
algorithm: dpsgd
topology: {topology}
{more.strip()}
"""
