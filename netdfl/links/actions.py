"""What a scheduled event can do, an action a function: it turns an entry into compiled events.

The key that names an action is also its first parameter: `{at: 20s, crash: 4, restart_after: 5s}`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from netdfl.core.types import Edge, NodeId
from netdfl.core.units import PositiveFloat, TimeNs, parse_time_ns
from netdfl.links.events import STANDING, CompiledEvent
from netdfl.links.mahimahi import OPPORTUNITY_BYTES, read_mahimahi
from netdfl.links.rate import Shape
from netdfl.links.selectors import Block, NodesText, parse_edges, parse_nodes
from netdfl.links.spec import LINK_KEYS, NODE_KEYS, choose
from netdfl.links.state import STATES
from netdfl.links.when import Facts, Span

DownMode: TypeAlias = Literal["down_drop", "down_hold", "down_reset"]
NodeState: TypeAlias = Literal["kept", "lost"]
Compiled: TypeAlias = Iterator[CompiledEvent]

_RELATIVE = re.compile(r"^\s*[x×]\s*(\d+\.?\d*|\.\d+)\s*$")


def _on_links(span: Span, source: int, blocks: Sequence[Block], changes: Mapping[str, Any]) -> Compiled:
    places = tuple(blocks)
    if span.by_round:
        if span.for_ns is not None:
            raise ValueError("at_round on a link acts on the messages of rounds, not for a time; give for_rounds")
        _refuse_by_round(changes)
        cause = STANDING if span.end is None else source
        yield CompiledEvent(
            "set", source, at_round=span.start, until_round=span.end, cause=cause, blocks=places, parameters=changes
        )
        return
    cause = STANDING if span.end is None else source
    yield CompiledEvent("set", source, at_ns=span.start, cause=cause, blocks=places, parameters=changes)
    if span.end is not None:
        yield CompiledEvent("unset", source, at_ns=span.end, cause=cause, blocks=places)


def _refuse_by_round(changes: Mapping[str, Any]) -> None:
    if changes.get("state") in ("down_hold", "down_reset"):
        raise ValueError(f"{changes['state']} needs a clock and can't go by rounds; use down_drop, or at: 20s")
    for key in ("duplicate", "corrupt", "reorder"):
        if key in changes:
            raise ValueError(f"{key} can't change by rounds; use at: 20s")
    if "rate" in changes and not _plain_rate(changes["rate"]):
        raise ValueError("a rate by rounds is a plain one, like 1Mbit or x0.5; use at: 20s for any other")
    if is_zero_rate(changes.get("rate")):
        raise ValueError("a rate of 0 by rounds would hold their messages for ever; use state: down_drop")


def _plain_rate(change: Any) -> bool:
    if isinstance(change, Mapping) and "scale" in change:
        return True
    part = choose("rate", change)
    return part is not None and isinstance(part.build(), Shape)


def is_zero_rate(change: Any) -> bool:
    """True where a compiled change of `rate` stops the link."""
    if change is None:
        return False
    if isinstance(change, Mapping) and "scale" in change:
        return bool(change["scale"] == 0)
    part = choose("rate", change)
    return part is not None and getattr(part.build(), "rate_bps", None) == 0


def read_changes(written: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, Any]:
    """Check the changes of an entry; relative ones (`x2`) become `{scale: 2.0}`."""
    changes: dict[str, Any] = {}
    for key, value in written.items():
        if key not in allowed:
            raise ValueError(f"there is nothing to change by the key {key!r}; choose one of {', '.join(allowed)}")
        match = _RELATIVE.match(value) if isinstance(value, str) else None
        if match is not None:
            if key not in ("latency", "rate", *NODE_KEYS):
                raise ValueError(f"{key}: {value} is relative; only latency and rates can be, so give the value itself")
            changes[key] = {"scale": float(match[1])}
            continue
        if key == "state":
            if value not in STATES:
                raise ValueError(f"state {value!r} is unknown; choose one of {', '.join(STATES)}")
        else:
            choose(key, value)
        changes[key] = value
    if not changes:
        raise ValueError(f"it changes nothing; add one of {', '.join(allowed)}")
    return changes


def link(facts: Facts, source: int, when: Sequence[Span], /, *, link: str, **changes: Any) -> Compiled:
    """Change links: state, loss, latency, rate, duplicate, corrupt, reorder; `x2` is relative."""
    blocks = parse_edges(link, facts.groups, facts.num_nodes).blocks
    read = read_changes(changes, LINK_KEYS)
    for span in when:
        yield from _on_links(span, source, blocks, read)


def node(facts: Facts, source: int, when: Sequence[Span], /, *, node: NodesText, **changes: Any) -> Compiled:
    """Change the uplink or downlink of nodes; `x0.5` is relative."""
    nodes = _nodes(facts, node)
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
        yield from _on_links(span, source, blocks, {"state": mode})


def heal(facts: Facts, source: int, when: Sequence[Span], /, *, heal: str = "all") -> Compiled:
    """End whatever holds these links down for good: a state, or a partition, that was given no end."""
    blocks = parse_edges(heal, facts.groups, facts.num_nodes).blocks
    for span in when:
        if span.end is not None or span.for_ns is not None:
            raise ValueError("heal is a moment and has no end; drop for and to")
        yield from _on_links(span, source, blocks, {"state": "up"})


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
    _positive(up=up, down=down)
    for span in when:
        stop = _stop(facts, span)
        for start in range(span.start, stop, up + down):
            yield from _on_links(Span(start, min(start + down, stop)), source, blocks, {"state": mode})


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
    _positive(up=up, down=down)
    for edge in parse_edges(random, facts.groups, facts.num_nodes):
        blocks = (_block(edge),)
        for start, end in _outages(facts, source, edge, when, up, down):
            yield from _on_links(Span(start, end), source, blocks, {"state": mode})


def churn(
    facts: Facts,
    source: int,
    when: Sequence[Span],
    /,
    *,
    churn: NodesText,
    up: TimeNs,
    down: TimeNs,
    state: NodeState = "kept",
) -> Compiled:
    """Let nodes crash and restart at random times, exponential with means `up` and `down`; they begin up."""
    _positive(up=up, down=down)
    for each in _nodes(facts, churn):
        for start, end in _outages(facts, source, (each, each), when, up, down):
            yield CompiledEvent("crash", source, at_ns=start, nodes=(each,), parameters={"state": state})
            yield CompiledEvent("restart", source, at_ns=end, nodes=(each,), parameters={"state": state})


def crash(
    facts: Facts,
    source: int,
    when: Sequence[Span],
    /,
    *,
    crash: NodesText,
    restart_after: TimeNs | None = None,
    state: NodeState = "kept",
) -> Compiled:
    """Kill nodes; restart them after a time, with the state of their last round end kept or lost."""
    nodes = _nodes(facts, crash)
    if restart_after is not None:
        _positive(restart_after=restart_after)
    yield from _on_nodes("crash", "restart", source, when, nodes, {"state": state}, {"state": state}, restart_after)


def restart(
    facts: Facts, source: int, when: Sequence[Span], /, *, restart: NodesText, state: NodeState = "kept"
) -> Compiled:
    """Restart nodes that crashed, with the state of their last round end kept or lost."""
    nodes = _nodes(facts, restart)
    for span in _moments(when, "restart"):
        yield CompiledEvent("restart", source, at_ns=span.start, nodes=nodes, parameters={"state": state})


def pause(facts: Facts, source: int, when: Sequence[Span], /, *, pause: NodesText) -> Compiled:
    """Stop nodes as a busy machine would: they neither compute nor read, and lose nothing."""
    yield from _on_nodes("pause", "resume", source, when, _nodes(facts, pause), {}, {}, None)


def resume(facts: Facts, source: int, when: Sequence[Span], /, *, resume: NodesText) -> Compiled:
    """Let paused nodes go on."""
    for span in _moments(when, "resume"):
        yield CompiledEvent("resume", source, at_ns=span.start, nodes=_nodes(facts, resume))


def slow_down(
    facts: Facts, source: int, when: Sequence[Span], /, *, slow_down: NodesText, factor: PositiveFloat
) -> Compiled:
    """Make the computing of nodes take `factor` times as long."""
    nodes = _nodes(facts, slow_down)
    yield from _on_nodes("slow_down", "slow_down", source, when, nodes, {"factor": factor}, {"factor": 1.0}, None)


def contact_plan(
    facts: Facts,
    source: int,
    when: Sequence[Span],
    /,
    *,
    contact_plan: str,
    file: str,
    directed: bool = False,
    mode: DownMode = "down_drop",
) -> Compiled:
    """Keep links down but for the contacts that a CSV file lists; one without a contact stays down.

    Columns `start`, `end`, `src`, `dst`; times with a unit, or headed `start_s`, `end_s`, counted
    from when the event begins. Both directions unless `directed`.
    """
    selected = parse_edges(contact_plan, facts.groups, facts.num_nodes)
    contacts = _read_contacts(file, facts, directed)
    for edge in contacts:
        if edge not in selected:
            raise ValueError(f"{file} has contacts of {edge[0]}->{edge[1]}, which is not in {contact_plan}; widen that")
    for span in when:
        if span.by_round:
            raise ValueError("a contact plan is in time and can't go by rounds; use at: 0s")
        together: dict[tuple[tuple[int, int | None], ...], dict[NodeId, set[NodeId]]] = {}
        for src, dst in selected:
            gaps = tuple(_gaps(sorted(contacts.get((src, dst), ())), span))
            together.setdefault(gaps, {}).setdefault(src, set()).add(dst)
        for gaps, links in together.items():
            blocks = [Block(frozenset((src,)), frozenset(dst)) for src, dst in links.items()]
            for start, end in gaps:
                yield from _on_links(Span(start, end), source, blocks, {"state": mode})


def _gaps(contacts: Sequence[tuple[int, int]], span: Span) -> Iterator[tuple[int, int | None]]:
    """When none of `contacts`, counted from the span's start, holds."""
    down = span.start
    for start, end in contacts:
        begin = span.start + start if span.end is None else min(span.start + start, span.end)
        if begin > down:
            yield down, begin
        down = max(down, span.start + end)
    if span.end is None or down < span.end:
        yield down, span.end


def trace(
    facts: Facts,
    source: int,
    when: Sequence[Span],
    /,
    *,
    trace: str,
    file: str,
    interval: TimeNs = 100_000_000,
) -> Compiled:
    """Let the rate of links follow a Mahimahi trace, as its mean over each interval, over and over.

    For every single opportunity of the trace give the link `rate: {kind: mahimahi}` instead.
    """
    blocks = parse_edges(trace, facts.groups, facts.num_nodes).blocks
    _positive(interval=interval)
    times = read_mahimahi(file)
    if not times or times[-1] <= 0:
        raise ValueError(f"the trace {file} is empty; expected at least one line with a time in ms above 0")
    num_intervals = -(-times[-1] // interval)
    bits = [0] * num_intervals
    for at_ns in times:
        bits[min(at_ns // interval, num_intervals - 1)] += 8 * OPPORTUNITY_BYTES
    for span in when:
        stop = _stop(facts, span)
        for place, start in enumerate(range(span.start, stop, interval)):
            rate_bps = bits[place % num_intervals] * 1e9 / interval
            changes = {"rate": {"kind": "serial", "rate": rate_bps}}
            yield CompiledEvent("set", source, at_ns=start, cause=source, blocks=blocks, parameters=changes)
        yield CompiledEvent("unset", source, at_ns=stop, cause=source, blocks=blocks)


def _on_nodes(
    begin: str,
    end: str,
    source: int,
    when: Sequence[Span],
    nodes: tuple[NodeId, ...],
    first: Mapping[str, Any],
    last: Mapping[str, Any],
    after_ns: int | None,
) -> Compiled:
    for span in when:
        if span.by_round:
            length = after_ns if after_ns is not None else span.for_ns
            yield CompiledEvent(begin, source, at_round=span.start, nodes=nodes, parameters=first)
            if length is not None:
                yield CompiledEvent(end, source, at_round=span.start, after_ns=length, nodes=nodes, parameters=last)
            elif span.end is not None:
                if begin != "slow_down":
                    raise ValueError(f"{begin} for rounds would never end, as the node begins none; give for: 5s")
                yield CompiledEvent(end, source, at_round=span.end, nodes=nodes, parameters=last)
            continue
        stop = span.end if after_ns is None else span.start + after_ns
        yield CompiledEvent(begin, source, at_ns=span.start, nodes=nodes, parameters=first)
        if stop is not None:
            yield CompiledEvent(end, source, at_ns=stop, nodes=nodes, parameters=last)


def _moments(when: Sequence[Span], what: str) -> Iterator[Span]:
    for span in when:
        if span.by_round or span.end is not None:
            raise ValueError(f"{what} is a moment of time; give at: 20s alone")
        yield span


def _nodes(facts: Facts, written: NodesText) -> tuple[NodeId, ...]:
    return tuple(sorted(parse_nodes(written, facts.groups, facts.num_nodes)))


def _block(edge: Edge) -> Block:
    return Block(frozenset((edge[0],)), frozenset((edge[1],)))


def _positive(**times_ns: int) -> None:
    for name, value in times_ns.items():
        if value <= 0:
            raise ValueError(f"{name} = {value} ns must be above 0; give a time like 5s")


def _stop(facts: Facts, span: Span) -> int:
    stop = span.end if span.end is not None else facts.end_ns
    if span.by_round or stop is None:
        raise ValueError("it needs a time to begin and one to end; give from: 0s and to: 60s")
    return stop


def _outages(
    facts: Facts, source: int, place: Edge, when: Sequence[Span], up_ns: int, down_ns: int
) -> Iterator[tuple[int, int]]:
    rng = facts.streams.rng("events", source, *place)
    for span in when:
        stop = _stop(facts, span)
        now = span.start + 1 + int(rng.exponential(up_ns))
        while now < stop:
            end = now + 1 + int(rng.exponential(down_ns))
            yield now, min(end, stop)
            now = end + 1 + int(rng.exponential(up_ns))


def _read_contacts(file: str, facts: Facts, directed: bool) -> dict[Edge, list[tuple[int, int]]]:
    contacts: dict[Edge, list[tuple[int, int]]] = {}
    with Path(file).open(newline="", encoding="utf-8") as stream:
        for number, row in enumerate(csv.DictReader(stream, skipinitialspace=True), start=2):
            try:
                start, end = (_contact_time(row, name) for name in ("start", "end"))
                edge = (int(row["src"]), int(row["dst"]))
            except (KeyError, TypeError, ValueError) as exc:
                raise ValueError(f"{file}:{number}: {exc}; expected the columns start_s, end_s, src, dst") from exc
            if not 0 <= start < end or edge[0] == edge[1] or not all(0 <= n < facts.num_nodes for n in edge):
                last = facts.num_nodes - 1
                raise ValueError(f"{file}:{number}: expected 0 <= start < end and two nodes of 0 to {last}")
            for each in (edge,) if directed else (edge, edge[::-1]):
                contacts.setdefault(each, []).append((start, end))
    if not contacts:
        raise ValueError(f"the contact plan {file} is empty; expected a row for each contact")
    return contacts


def _contact_time(row: Mapping[str, str], name: str) -> int:
    return parse_time_ns(row[name]) if name in row else parse_time_ns(row[f"{name}_s"] + "s")


ACTIONS: Mapping[str, Callable[..., Compiled]] = {
    "link": link,
    "node": node,
    "partition": partition,
    "heal": heal,
    "flap": flap,
    "random": random,
    "contact_plan": contact_plan,
    "trace": trace,
    "crash": crash,
    "restart": restart,
    "pause": pause,
    "resume": resume,
    "slow_down": slow_down,
    "churn": churn,
}
