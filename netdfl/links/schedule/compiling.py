"""Functions that a schedule's actions have in common: reading changes, and making the events of a time span."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from netdfl.core.types import Edge, Json, NodeId
from netdfl.core.units import format_time
from netdfl.links.rules.rate import Shape
from netdfl.links.schedule.events import STANDING, CompiledEvent, is_relative
from netdfl.links.schedule.when import Facts, Span
from netdfl.links.selectors import Block, NodesText, Selector, parse_edges, parse_nodes
from netdfl.links.spec import RELATIVE_KEYS, choose

Compiled: TypeAlias = Iterator[CompiledEvent]
DownMode: TypeAlias = Literal["down_drop", "down_hold", "down_reset"]

_RELATIVE = re.compile(r"^\s*[x×]\s*(\d+\.?\d*|\.\d+)\s*$")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the scenario's `events`, as the functions that compile its action get it.

    Attributes:
        facts: facts about the fleet, such as the number of nodes and the run's end.
        source: the entry's index.
        when: the spans of time or rounds in which it acts.
    """

    facts: Facts
    source: int
    when: Sequence[Span]

    def links(self, text: str) -> Selector:
        """Return the links that `text` names. Raises ValueError for an unknown name."""
        return parse_edges(text, self.facts.groups, self.facts.num_nodes)

    def core_links(self, text: str) -> tuple[Block, ...]:
        """Return the links that cross the core link `text`. Raises ValueError for an unknown name, or no underlay."""
        if self.facts.core is None:
            raise ValueError("there are no core links without an underlay; add one, or name links of nodes")
        return self.facts.core.crossing(text)

    def nodes(self, written: NodesText) -> tuple[NodeId, ...]:
        """Return the nodes that `written` names, in ascending order. Raises ValueError if it names none."""
        nodes = tuple(sorted(parse_nodes(written, self.facts.groups, self.facts.num_nodes)))
        if not nodes:
            raise ValueError(f"{written!r} names no node; name one or more, like 3 or 0..2, or remove the event")
        return nodes

    def end_of(self, span: Span) -> int:
        """Return the end of a time span, limited by the run's end. Raises ValueError if neither end is known."""
        stop = span.end if span.end is not None else self.facts.end_ns
        if span.by_round or stop is None:
            raise ValueError("it needs a time to begin and one to end; give from: 0s and to: 60s")
        return stop

    def outages(self, place: Edge, up_ns: int, down_ns: int) -> Iterator[tuple[int, int]]:
        """Yield random outages as (begin, end) in ns; each link or node has its own, and is up at first.

        Args:
            place: the link, or the pair of a node with itself; together with the entry it keys the draws.
            up_ns: the mean time between outages.
            down_ns: the mean length of an outage.
        """
        rng = self.facts.streams.rng("events", self.source, *place)
        for span in self.when:
            stop = self.end_of(span)
            now = span.start + 1 + int(rng.exponential(up_ns))
            while now < stop:
                end = now + 1 + int(rng.exponential(down_ns))
                yield now, min(end, stop)
                now = end + 1 + int(rng.exponential(up_ns))

    def change(
        self,
        span: Span,
        changes: Json,
        *,
        blocks: tuple[Block, ...] = (),
        nodes: tuple[NodeId, ...] = (),
        core: str = "",
    ) -> Compiled:
        """Yield the events that make `changes` on links (`blocks`), `nodes` or the core link `core` for a span."""
        cause = STANDING if span.end is None else self.source
        event = CompiledEvent("set", self.source, cause=cause, blocks=blocks, nodes=nodes, core=core)
        if span.by_round:
            yield replace(event, at_round=span.start, until_round=span.end, parameters=changes)
            return
        yield replace(event, at_ns=span.start, parameters=changes)
        if span.end is not None:
            yield replace(event, action="unset", at_ns=span.end)

    def set_links(self, span: Span, blocks: Sequence[Block], changes: Json) -> Compiled:
        """Return the events that make `changes` on the links of `blocks` for a span of time or rounds.

        Raises ValueError for a change that can't depend on rounds, or that has no effect.
        """
        if span.end is not None and changes.get("state") == "up":
            raise ValueError(
                "state: up for a time changes nothing, as the most severe state in force counts; "
                "give the times at which it is down, or drop the end"
            )
        if span.for_ns is not None:
            raise ValueError("at_round on a link acts on the messages of rounds, not for a time; give for_rounds")
        if span.by_round:
            _refuse_by_round(changes)
        return self.change(span, changes, blocks=tuple(blocks))


def _refuse_by_round(changes: Mapping[str, object]) -> None:
    if changes.get("state") in ("down_hold", "down_reset"):
        raise ValueError(f"{changes['state']} needs a clock and can't go by rounds; use down_drop, or at: 20s")
    for key in ("duplicate", "corrupt", "reorder"):
        if key in changes:
            raise ValueError(f"{key} can't change by rounds; use at: 20s")
    rate = changes.get("rate")
    if "rate" in changes and not is_relative(rate) and not isinstance(_new_value(rate, "rate"), Shape):
        raise ValueError("a rate by rounds is a plain one, like 1Mbit or x0.5; use at: 20s for any other")
    if is_zero_rate(rate):
        raise ValueError("a rate of 0 by rounds would hold their messages for ever; use state: down_drop")


def _new_value(change: object, key: str) -> object:
    """Return what `change` sets the rule `key` to; None if it is relative, or takes the rule away."""
    part = None if is_relative(change) else choose(key, change)
    return None if part is None else part.build()


def follows_trace(change: object, key: str) -> bool:
    """Return whether `change` replaces the rate of the rule `key` by a rate that follows a trace."""
    return not isinstance(_new_value(change, key), Shape | None)


def is_plain_latency(change: object) -> bool:
    """Whether a change of a latency gives every message the same delay."""
    return getattr(_new_value(change, "latency"), "quantile", None) is None


def is_zero_rate(change: object, key: str = "rate") -> bool:
    """Return whether a compiled change sets the rate of the rule `key` to zero, which stops the link."""
    if is_relative(change):
        return change["scale"] == 0
    return bool(getattr(_new_value(change, key), "rate_bps", None) == 0)


def read_changes(written: Mapping[str, object], allowed: Sequence[str]) -> dict[str, object]:
    """Check the changes that a schedule entry makes, whose keys must be `allowed`; return them.

    A relative change such as `x2` becomes `{scale: 2.0}`.
    """
    changes: dict[str, object] = {}
    for key, value in written.items():
        changes[key] = value
        if match := _RELATIVE.match(str(value)):
            if key not in RELATIVE_KEYS:
                raise ValueError(f"{key}: {value} is relative; only latency and rates can be, so give the value itself")
            changes[key] = {"scale": float(match[1])}
        elif key != "state":
            choose(key, value)
    if not changes:
        raise ValueError(f"it changes nothing; add one of {', '.join(allowed)}")
    return changes


def check_positive(**times_ns: int) -> None:
    """Raise ValueError for a time that is not above 0."""
    for name, value in times_ns.items():
        if value <= 0:
            raise ValueError(f"{name} = {format_time(value)} must be above 0; give a time like 5s")
