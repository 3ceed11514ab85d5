"""Scheduled events on links: changes, partitions, heals, flapping, random outages, named messages lost or late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from netdfl.core.types import Kind
from netdfl.core.units import NonNegativeInt, TimeNs
from netdfl.links.schedule.compiling import (
    Compiled,
    DownMode,
    Entry,
    check_positive,
    follows_trace,
    is_plain_latency,
    is_zero_rate,
    read_changes,
)
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts, Span
from netdfl.links.selectors import Block, NodesText, parse_nodes
from netdfl.links.spec import CORE_KEYS, LINK_KEYS, NODE_KEYS


def link(entry: Entry, /, *, link: str, **changes: object) -> Compiled:
    """Change links: state, loss, latency, rate, duplicate, corrupt, reorder; `x2` is relative."""
    blocks, read = entry.links(link).blocks, read_changes(changes, LINK_KEYS)
    for span in entry.when:
        yield from entry.set_links(span, blocks, read)


def node(entry: Entry, /, *, node: NodesText, **changes: object) -> Compiled:
    """Change the uplink or downlink of nodes; `x0.5` is relative."""
    nodes, read = entry.nodes(node), read_changes(changes, NODE_KEYS)
    for key, change in read.items():
        if follows_trace(change, key):
            raise ValueError(f"{key} can't begin to follow a trace; give a rate, or write the trace under links")
    for span in entry.when:
        if span.by_round:
            raise ValueError("an uplink or downlink serves messages of many rounds; use at: 20s")
        yield from entry.change(span, read, nodes=nodes)


def partition_blocks(facts: Facts, groups: Sequence[NodesText], one_way: bool) -> tuple[Block, ...]:
    """Return the links that a partition cuts: all between groups, or if `one_way` from the first to the second.

    Raises ValueError for groups that overlap or are empty.
    """
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
    entry: Entry, /, *, partition: list[NodesText], mode: DownMode = "down_drop", one_way: bool = False
) -> Compiled:
    """Cut every link between groups of nodes (one way: from the first to the second). Other links stay unchanged."""
    blocks = partition_blocks(entry.facts, partition, one_way)
    for span in entry.when:
        yield from entry.set_links(span, blocks, {"state": mode})


def cut(entry: Entry, /, *, cut: str, mode: DownMode = "down_drop") -> Compiled:
    """Cut a core link of the underlay (`paris->zurich` in one direction), and with it all links that cross it."""
    blocks = entry.core_links(cut)
    if not blocks:
        raise ValueError(f"no messages cross the core link {cut!r}, so its cut changes nothing; name another one")
    for span in entry.when:
        yield from (replace(event, core=cut) for event in entry.set_links(span, blocks, {"state": mode}))


def core(entry: Entry, /, *, core: str, **changes: object) -> Compiled:
    """Change a core link of the underlay, both ways or one: loss, latency, rate; `x2` is relative."""
    entry.core_links(core)
    read = read_changes(changes, CORE_KEYS)
    if is_zero_rate(read.get("rate")):
        raise ValueError("a core link with a rate of 0 holds all messages; use cut with mode: down_hold")
    if follows_trace(read.get("rate"), "rate"):
        raise ValueError("a core link can't follow a trace; give it a plain rate, like 1Mbit or x0.5")
    if not is_plain_latency(read.get("latency")):
        raise ValueError("the latency of a core link is a plain time; write one like 80ms, or x2")
    for span in entry.when:
        if span.by_round:
            raise ValueError("a core link carries messages of many rounds; use at: 20s")
        yield from entry.change(span, read, core=core)


def heal(entry: Entry, /, *, heal: str = "all") -> Compiled:
    """End the outages of these links that have no scheduled end: a down state or a partition."""
    blocks = entry.links(heal).blocks
    for span in entry.when:
        if span.end is not None or span.for_ns is not None:
            raise ValueError("heal is a moment and has no end; drop for and to")
        yield from entry.set_links(span, blocks, {"state": "up"})


def flap(entry: Entry, /, *, flap: str, up: TimeNs, down: TimeNs, mode: DownMode = "down_drop") -> Compiled:
    """Take links down for `down`, then up for `up`, repeatedly and all in step."""
    blocks = entry.links(flap).blocks
    check_positive(up=up, down=down)
    for span in entry.when:
        stop = entry.end_of(span)
        for start in range(span.start, stop, up + down):
            yield from entry.set_links(Span(start, min(start + down, stop)), blocks, {"state": mode})


def random(entry: Entry, /, *, random: str, up: TimeNs, down: TimeNs, mode: DownMode = "down_drop") -> Compiled:
    """Take each link down and up at random times, exponential with means `down` and `up`; each link starts up."""
    check_positive(up=up, down=down)
    for src, dst in entry.links(random):
        block = Block(frozenset((src,)), frozenset((dst,)))
        for start, end in entry.outages((src, dst), up, down):
            yield from entry.set_links(Span(start, end), (block,), {"state": mode})


def drop(
    entry: Entry,
    /,
    *,
    drop: str,
    kind: Kind | None = None,
    step: NonNegativeInt | None = None,
    attempt: NonNegativeInt | None = None,
    incarnation: NonNegativeInt | None = None,
    number: NonNegativeInt | None = None,
) -> Compiled:
    """Lose messages of links by name: all of one round (or of `for_rounds`), or all sent in a span of time.

    `kind` (`data`, `ack`, `request`, ...), `step`, `attempt` (0: no message that is sent again), `incarnation` (the
    sender's restarts so far; 0: none) and `number` (0: the first that agrees in all of that) narrow them down.
    """
    names = {"kind": kind, "step": step, "attempt": attempt, "incarnation": incarnation, "number": number}
    return _on_messages(entry, "drop", drop, **names)


def delay(
    entry: Entry,
    /,
    *,
    delay: str,
    by: TimeNs,
    kind: Kind | None = None,
    step: NonNegativeInt | None = None,
    attempt: NonNegativeInt | None = None,
    incarnation: NonNegativeInt | None = None,
    number: NonNegativeInt | None = None,
) -> Compiled:
    """Delay messages of links `by` a time, named in the same way as for `drop`; no later one overtakes them."""
    check_positive(by=by)
    names = {"kind": kind, "step": step, "attempt": attempt, "incarnation": incarnation, "number": number}
    return _on_messages(entry, "delay", delay, by=by, **names)


def _on_messages(entry: Entry, action: str, links: str, **names: object) -> Compiled:
    said = {
        name: str(value) if isinstance(value, Kind) else value for name, value in names.items() if value is not None
    }
    event = CompiledEvent(action, entry.source, cause=entry.source, blocks=entry.links(links).blocks, parameters=said)
    for span in entry.when:
        if span.for_ns is not None:
            raise ValueError(f"{action} with at_round is about the messages of rounds, not of a time; give for_rounds")
        if span.by_round:
            yield replace(event, at_round=span.start, until_round=span.start + 1 if span.end is None else span.end)
        else:
            until = {} if span.end is None else {"until_ns": span.end}
            yield replace(event, at_ns=span.start, parameters=said | until)
