"""The rules of a link at a moment: the scenario's, overridden by the scheduled changes that are in force.

Changes override one another in the order in which they begin. A value replaces the value before, relative changes
included; a relative change multiplies. A change that ends (`unset`) is taken out as if it had never been. Where several
changes hold a link down, the most severe state counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from netdfl.core.types import Edge, NodeId
from netdfl.links.rules.state import STATES
from netdfl.links.schedule.events import STANDING, CompiledEvent, is_relative
from netdfl.links.selectors import Block
from netdfl.links.spec import LINK_KEYS, LinksSpec

T = TypeVar("T")
Where: TypeAlias = tuple[tuple[Block, ...], tuple[NodeId, ...]]


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """The current value of one link rule, and a factor on it.

    `value` is a built-in state's name or a part (such as a loss model); None: the link has no such rule.
    """

    value: Any
    scale: float = 1.0


class OwnRules(NamedTuple):
    """The values of a link's rules before any event, and the names of the rules that it has."""

    values: Mapping[str, EffectiveValue]
    used: frozenset[str]


def own_rules(spec: LinksSpec, edge: Edge) -> OwnRules:
    """Return the rules of `edge` as the scenario's links give them, without any scheduled event."""
    link = spec.link(edge)
    values = {key: EffectiveValue(getattr(link, key)) for key in LINK_KEYS}
    return OwnRules(values, frozenset(key for key, now in values.items() if now.value not in (None, "up")))


class TargetIndex(Generic[T]):
    """An index that finds the items (such as events) that concern a link; `T` is the type of an item.

    It is a table for items that concern one link, and a list for items that concern several.
    """

    __slots__ = ("_single", "_wide")

    def __init__(self) -> None:
        self._single: dict[Edge, list[T]] = {}
        self._wide: list[tuple[tuple[Block, ...], T]] = []

    def __bool__(self) -> bool:
        return bool(self._single or self._wide)

    def add(self, blocks: tuple[Block, ...], item: T) -> None:
        """Add an item that concerns all links of `blocks`, which are sets of links."""
        edges = few_edges(blocks, 1)
        if edges is None:
            self._wide.append((blocks, item))
        for edge in edges or ():
            self._single.setdefault(edge, []).append(item)

    def remove(self, blocks: tuple[Block, ...], item: T) -> None:
        """Remove an item that was added with the same `blocks`, sets of links."""
        edges = few_edges(blocks, 1)
        if edges is None:
            self._wide.remove((blocks, item))
        for edge in edges or ():
            self._single[edge].remove(item)

    def of(self, edge: Edge) -> Iterator[T]:
        """Yield the items (such as events) that concern `edge`, in no order."""
        yield from self._single.get(edge, ())
        for blocks, item in self._wide:
            if any(edge in block for block in blocks):
                yield item


def few_edges(blocks: Sequence[Block], most: int) -> list[Edge] | None:
    """Return the links of `blocks`, which are sets of links, as a list if they are at most `most`, else None."""
    if sum(len(block.src) * len(block.dst) for block in blocks) > most:
        return None
    return [edge for block in blocks for edge in block.edges()]


class Overlays:
    """The scheduled changes of links and nodes that are in force now.

    A change ends with the `unset` event of the same schedule entry; one without an end (`STANDING`) stays until another
    replaces its values.
    """

    __slots__ = ("_count", "_links", "_nodes", "_windows")

    def __init__(self) -> None:
        self._count = 0
        self._links: TargetIndex[tuple[int, CompiledEvent]] = TargetIndex()
        self._nodes: list[tuple[int, CompiledEvent]] = []
        self._windows: dict[tuple[int, Where], tuple[int, CompiledEvent]] = {}

    def apply(self, event: CompiledEvent) -> None:
        """Add the change of a `set` event, or remove the change that an `unset` event ends."""
        place = (event.cause, (event.blocks, event.nodes))
        before = self._windows.pop(place, None)
        if before is not None:
            self._links.remove(event.blocks, before) if event.blocks else self._nodes.remove(before)
        if event.action != "set":
            return
        self._count += 1
        layer = (self._count, event)
        if event.cause != STANDING:
            self._windows[place] = layer
        if event.blocks:
            self._links.add(event.blocks, layer)
        else:
            self._nodes.append(layer)

    def on_link(self, edge: Edge) -> Sequence[CompiledEvent]:
        """Return the changes in force on `edge`, in the order in which they began."""
        return [event for _, event in sorted(self._links.of(edge), key=lambda layer: layer[0])] if self._links else ()

    def on_node(self, node: NodeId) -> Sequence[CompiledEvent]:
        """Return the changes in force on the uplink and downlink of `node`, in the order in which they began."""
        return [event for _, event in self._nodes if node in event.nodes]


def effective(base: Mapping[str, EffectiveValue], events: Sequence[CompiledEvent]) -> dict[str, EffectiveValue]:
    """Return the effective value of each rule: the values `base`, changed by `events` in their order.

    `base` has a value for each rule that one of `events` multiplies; see `effective_state` for the state alone.
    """
    values = dict(base)
    for event in events:
        for key, change in event.parameters.items():
            if is_relative(change):
                values[key] = replace(values[key], scale=values[key].scale * change["scale"])
            elif key != "state":
                values[key] = EffectiveValue(event.part(key))
    if "state" in base:
        values["state"] = EffectiveValue(effective_state(base["state"].value, events))
    return values


def effective_state(base: str, events: Iterable[CompiledEvent]) -> str:
    """Return the effective state of a link (up or down, by name), which is `base` before `events`."""
    standing, windows = base, list[str]()
    for event in events:
        if "state" in event.parameters and event.cause == STANDING:
            standing = event.parameters["state"]
        elif "state" in event.parameters:
            windows.append(event.parameters["state"])
    return max((standing, *windows), key=STATES.index)


@dataclass(frozen=True, slots=True)
class Piece:
    """The rule values for messages of the rounds from `start` to before the start of the next piece."""

    start: int
    values: Mapping[str, EffectiveValue]


UNSAID = object()


def by_rounds(events: Sequence[CompiledEvent]) -> list[Piece]:
    """Return the rule values that `at_round` events give one link, as consecutive ranges of rounds with equal values.

    A rule that no event changes in a range, but one changes in another, has the value `UNSAID`: the usual value
    applies.
    """
    ordered = sorted(events, key=lambda event: event.order)
    starts = {event.at_round for event in ordered} | {event.until_round for event in ordered}
    pieces = []
    for start in sorted(round for round in starts if round is not None):
        active = [event for event in ordered if event.holds_in(start)]
        named = {key for event in active for key in event.parameters}
        base = {key: EffectiveValue(UNSAID) for key in named if key != "state"}
        if "state" in named:
            base["state"] = EffectiveValue("up")
        pieces.append(Piece(start, effective(base, active)))
    return pieces
