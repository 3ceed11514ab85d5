"""Scheduled events on links: changes, partitions, heals, flapping, random outages."""

from __future__ import annotations

from collections.abc import Sequence

from netdfl.core.units import TimeNs
from netdfl.links.schedule.compiling import (
    Compiled,
    DownMode,
    check_positive,
    end_of,
    named_nodes,
    outages,
    read_changes,
    set_links,
    single,
)
from netdfl.links.schedule.events import STANDING, CompiledEvent
from netdfl.links.schedule.when import Facts, Span
from netdfl.links.selectors import Block, NodesText, parse_edges, parse_nodes
from netdfl.links.spec import LINK_KEYS, NODE_KEYS


def link(facts: Facts, source: int, when: Sequence[Span], /, *, link: str, **changes: object) -> Compiled:
    """Change links: state, loss, latency, rate, duplicate, corrupt, reorder; `x2` is relative."""
    blocks = parse_edges(link, facts.groups, facts.num_nodes).blocks
    read = read_changes(changes, LINK_KEYS)
    for span in when:
        yield from set_links(span, source, blocks, read)


def node(facts: Facts, source: int, when: Sequence[Span], /, *, node: NodesText, **changes: object) -> Compiled:
    """Change the uplink or downlink of nodes; `x0.5` is relative."""
    nodes = named_nodes(facts, node)
    read = read_changes(changes, NODE_KEYS)
    for span in when:
        if span.by_round:
            raise ValueError("an uplink or downlink serves messages of many rounds; use at: 20s")
        cause = STANDING if span.end is None else source
        yield CompiledEvent("set", source, at_ns=span.start, cause=cause, nodes=nodes, parameters=read)
        if span.end is not None:
            yield CompiledEvent("unset", source, at_ns=span.end, cause=cause, nodes=nodes)


def partition_blocks(facts: Facts, groups: Sequence[NodesText], one_way: bool) -> tuple[Block, ...]:
    """The links that a partition cuts."""
    parts = [parse_nodes(group, facts.groups, facts.num_nodes) for group in groups]
    if len(parts) < 2 or not all(parts):
        raise ValueError("a partition needs two groups or more, none empty; write [[0..3], [4..7]]")
    if one_way and len(parts) != 2:
        raise ValueError("one_way cuts from the first group to the second; give two groups")
    for place, part in enumerate(parts):
        for other in parts[:place]:
            if part & other:
                raise ValueError(f"node {min(part & other)} is in two groups of the partition; leave it in one")
    if one_way:
        return (Block(parts[0], parts[1]),)
    return tuple(Block(part, frozenset().union(*parts) - part) for part in parts)


def partition(
    facts: Facts,
    source: int,
    when: Sequence[Span],
    /,
    *,
    partition: list[NodesText],
    mode: DownMode = "down_drop",
    one_way: bool = False,
) -> Compiled:
    """Cut every link between groups of nodes (one way: from the first to the second). Others stay as they are."""
    blocks = partition_blocks(facts, partition, one_way)
    for span in when:
        yield from set_links(span, source, blocks, {"state": mode})


def heal(facts: Facts, source: int, when: Sequence[Span], /, *, heal: str = "all") -> Compiled:
    """End whatever holds these links down for good: a state, or a partition, that was given no end."""
    blocks = parse_edges(heal, facts.groups, facts.num_nodes).blocks
    for span in when:
        if span.end is not None or span.for_ns is not None:
            raise ValueError("heal is a moment and has no end; drop for and to")
        yield from set_links(span, source, blocks, {"state": "up"})


def flap(
    facts: Facts,
    source: int,
    when: Sequence[Span],
    /,
    *,
    flap: str,
    up: TimeNs,
    down: TimeNs,
    mode: DownMode = "down_drop",
) -> Compiled:
    """Take links down for `down`, up for `up`, and again, all in step, beginning with down."""
    blocks = parse_edges(flap, facts.groups, facts.num_nodes).blocks
    check_positive(up=up, down=down)
    for span in when:
        stop = end_of(facts, span)
        for start in range(span.start, stop, up + down):
            yield from set_links(Span(start, min(start + down, stop)), source, blocks, {"state": mode})


def random(
    facts: Facts,
    source: int,
    when: Sequence[Span],
    /,
    *,
    random: str,
    up: TimeNs,
    down: TimeNs,
    mode: DownMode = "down_drop",
) -> Compiled:
    """Take each link down and up at random times, exponential with means `down` and `up`; it begins up."""
    check_positive(up=up, down=down)
    for edge in parse_edges(random, facts.groups, facts.num_nodes):
        blocks = (single(edge),)
        for start, end in outages(facts, source, edge, when, up, down):
            yield from set_links(Span(start, end), source, blocks, {"state": mode})
