"""Selectors: the nodes or links that a line of a scenario names.

Nodes: `3`, `0..7` (both ends), a group's name, `*` (all), and lists of these, `[0..3, core]`. Links: nodes `->` nodes
(directed), nodes `--` nodes (both directions, each with its own random draws).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias

from netdfl.core.types import Edge, NodeId

Groups: TypeAlias = Mapping[str, Sequence[NodeId]]
NodesText: TypeAlias = int | str | list[int | str]
"""A selector of nodes as a scenario writes it."""

_RANGE = re.compile(r"^(\d+)(?:\s*\.\.\s*(\d+))?$")


@dataclass(frozen=True, slots=True)
class Block:
    """A set of links: all links from a node in `src` to another node in `dst`."""

    src: frozenset[NodeId]
    dst: frozenset[NodeId]

    def __contains__(self, edge: object) -> bool:
        return isinstance(edge, tuple) and edge[0] in self.src and edge[1] in self.dst and edge[0] != edge[1]

    def meets(self, other: Block) -> bool:
        """Return whether both sets may have a link in common: they have a source and a target in common."""
        return not self.src.isdisjoint(other.src) and not self.dst.isdisjoint(other.dst)

    def edges(self) -> Iterator[Edge]:
        """Yield the links, in ascending order."""
        targets = sorted(self.dst)
        return ((src, dst) for src in sorted(self.src) for dst in targets if src != dst)


@dataclass(frozen=True, slots=True)
class Selector:
    """The links that a selector in a scenario names: one block of links, or two for both directions.

    `rank` is how specific the selector is: 0 for `default`, 1 for sets on both sides, 2 where one side is a single
    node, 3 for one link (or one pair). A node's number is a single node; groups, ranges and lists are sets of any size.
    """

    blocks: tuple[Block, ...]
    rank: int

    def __contains__(self, edge: object) -> bool:
        return any(edge in block for block in self.blocks)

    def __iter__(self) -> Iterator[Edge]:
        return iter(sorted({edge for block in self.blocks for edge in block.edges()}))


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a remedy for an unknown name: `did you mean X?` if one of `names` is similar, else the list of names."""
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"choose one of {', '.join(sorted(names)) or '(none is defined)'}"


def parse_nodes(written: int | str | Sequence[int | str], groups: Groups, num_nodes: int) -> frozenset[NodeId]:
    """Return the nodes that `written` names. Raises ValueError for an unknown node or group."""
    if isinstance(written, Sequence) and not isinstance(written, str):
        return frozenset().union(*(parse_nodes(item, groups, num_nodes) for item in written))
    text = str(written).strip()
    if text.startswith("[") and text.endswith("]"):
        return parse_nodes([part for part in text[1:-1].split(",") if part.strip()], groups, num_nodes)
    if "," in text:
        return parse_nodes(text.split(","), groups, num_nodes)
    if text in ("*", "all"):
        return frozenset(range(num_nodes))
    if text in groups:
        return _checked(groups[text], num_nodes, text)
    match = _RANGE.match(text)
    if match is None:
        raise ValueError(f"there is no group {text!r}; {nearest(text, list(groups))}")
    first, last = int(match[1]), int(match[2] or text)
    if last < first:
        raise ValueError(f"the range {text} is empty; write the smaller node first, like {last}..{first}")
    return _checked(range(first, last + 1), num_nodes, text)


def _checked(nodes: Sequence[NodeId], num_nodes: int, text: str) -> frozenset[NodeId]:
    for node in nodes:
        if not 0 <= node < num_nodes:
            raise ValueError(f"there is no node {node} (in {text!r}); nodes are 0 to {num_nodes - 1}")
    return frozenset(nodes)


def is_edges(text: object) -> bool:
    """Return whether a selector names links, not nodes."""
    return isinstance(text, str) and ("->" in text or "--" in text)


def parse_edges(text: str, groups: Groups, num_nodes: int) -> Selector:
    """Return the links that `text` names. Raises ValueError for an unknown name, and for a link of a node to itself."""
    if text.strip() in ("default", "all", "*"):
        everyone = frozenset(range(num_nodes))
        return Selector((Block(everyone, everyone),), 0)
    arrow = "->" if "->" in text else "--"
    parts = text.split(arrow)
    if len(parts) != 2 or not all(part.strip() for part in parts):
        raise ValueError(f"{text!r} names no links; write 3->5, 0--1, or edge->core")
    src, dst = (parse_nodes(part, groups, num_nodes) for part in parts)
    if not src or not dst:
        raise ValueError(f"{text!r} names no links, as one side has no node; name one or more")
    if len(src) == 1 and src == dst:
        raise ValueError(f"{text!r} is a link from a node to itself; name two nodes")
    rank = 1 + sum(part.strip().isdigit() for part in parts)
    return Selector((Block(src, dst),) if arrow == "->" else (Block(src, dst), Block(dst, src)), rank)
