"""Links, nodes and changes in words: `0..3 | 4..7`, `0--1`, `latency x2`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from netdfl.core.types import NodeId
from netdfl.links.selectors import Block

MOST = 3


def name_nodes(nodes: Collection[NodeId]) -> str:
    """`0..3`, or `0,2,5`."""
    named = sorted(nodes)
    if len(named) > 1 and named == list(range(named[0], named[-1] + 1)):
        return f"{named[0]}..{named[-1]}"
    return ",".join(map(str, named))


def name_place(blocks: Sequence[Block], nodes: Sequence[NodeId] = (), entry: str = "") -> str:
    """What a `partition` parts: `0..3 | 4..7`; links both ways: `0--1`, one way: `0->1`; `node 3`."""
    if nodes:
        return name_nodes(nodes) if entry == "node" else f"node {name_nodes(nodes)}"
    if entry == "partition" and len(blocks) > 1:
        return " | ".join(name_nodes(block.src) for block in blocks)
    if len(blocks) == 2 and (blocks[0].src, blocks[0].dst) == (blocks[1].dst, blocks[1].src):
        return f"{name_nodes(blocks[0].src)}--{name_nodes(blocks[0].dst)}"
    named = [f"{name_nodes(block.src)}->{name_nodes(block.dst)}" for block in blocks[:MOST]]
    return ", ".join(named) + (f" and {len(blocks) - MOST} more" if len(blocks) > MOST else "")


def name_change(parameters: Mapping[str, object]) -> str:
    """`state down_drop`, `latency x2`."""
    return ", ".join(f"{name} {_value(value)}" for name, value in parameters.items())


def _value(value: object) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return f"x{value['scale']:g}" if "scale" in value else " ".join(map(str, value.values()))
