"""The meaning of a scenario's `links:` block: the rules of every link, and every node's up- and downlink.

Each entry is a selector and the keys that it sets. An entry replaces only the keys that it names, each whole (a new
`latency` inherits nothing of an older one). For one link, `default` is read first, then the entries that name it from
the least to the most specific (`Selector.rank`), entries of one rank in the order in which they are written: the last
one to set a key wins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, create_model

from netdfl.core.types import Edge, NodeId
from netdfl.links.rules.disorder import corrupt, duplicate, reorder
from netdfl.links.rules.latency import LATENCIES
from netdfl.links.rules.loss import LOSSES
from netdfl.links.rules.mahimahi import RATES, SHARED_RATES
from netdfl.links.selectors import Block, Groups, Selector, is_edges, nearest, parse_edges, parse_nodes


@dataclass(frozen=True, slots=True)
class LinkKey:
    """The definition of one rule that a link can have, such as `loss`, and of how a scenario gives it.

    Attributes:
        table: the functions that build the rule's models, by name.
        key: the scenario's key under which such a name is given, as in `model: bernoulli`.
        default: the name that holds if the scenario gives none.
        short: the parameter that a bare value sets, as in `loss: 5%`.
    """

    table: Mapping[str, Callable[..., object]]
    key: str
    default: str
    short: str


_SHARED = LinkKey(SHARED_RATES, "kind", "serial", "rate")
SLOTS: Mapping[str, LinkKey] = {
    "loss": LinkKey(LOSSES, "model", "bernoulli", "probability"),
    "latency": LinkKey(LATENCIES, "dist", "constant", "delay"),
    "rate": LinkKey(RATES, "kind", "serial", "rate"),
    "duplicate": LinkKey({"keyed": duplicate}, "kind", "keyed", "probability"),
    "corrupt": LinkKey({"keyed": corrupt}, "kind", "keyed", "probability"),
    "reorder": LinkKey({"keyed": reorder}, "kind", "keyed", "probability"),
    "uplink": _SHARED,
    "downlink": _SHARED,
}
NODE_KEYS = ("uplink", "downlink")
CORE_KEYS = ("loss", "latency", "rate")
RELATIVE_KEYS = ("latency", "rate", *NODE_KEYS)
"""The rules that an event can multiply, as in `rate: x0.5`."""
LINK_KEYS = ("state", *(name for name in SLOTS if name not in NODE_KEYS))


@runtime_checkable
class Buildable(Protocol):
    """A part of a link (such as a loss model) as the parsed scenario describes it, which can be built."""

    def maker(self) -> Callable[..., object]:
        """Return a function that builds the part from its parameters; for a loss model, it takes the link's seed."""
        ...


@dataclass(frozen=True, slots=True)
class LinkPart:
    """A part of a link (such as its loss or its latency) with its checked parameters.

    Attributes:
        slot: the rule that the part is for, such as `loss`.
        means: the name of the part's model and its parameters, or a user's object. Parts are equal if these are equal.
        make: builds the part. A loss model has a state of its own for each link, so it is built from the link's seed.
        shared: the built part, which all links share unless it is a loss model.
    """

    slot: str
    means: object
    make: Callable[..., object] = field(compare=False, repr=False)
    shared: object = field(compare=False, repr=False)

    def build(self, *context: object) -> object:
        """Return this part of a link (such as its loss), built; for a loss model, `context` is the link's seed."""
        return self.make(*context) if self.slot == "loss" else self.shared


def choose(slot: str, value: object) -> LinkPart | None:
    """Return the part that `value` describes for the rule `slot`; None for `none` or null.

    `value` is the short form (`5%`, `20ms`, `10Mbit`), a mapping, or a `LinkPart`. Raises ValueError with the key's
    name for a value without a meaning, and for parameters out of range.
    """
    if value is None or value == "none":
        return None
    if isinstance(value, LinkPart):
        return value
    means, make = (value, value.maker()) if isinstance(value, Buildable) else _read_part(slot, value)
    return LinkPart(slot, means, make, make(0) if slot == "loss" else make())


def _read_part(slot: str, value: object) -> tuple[object, Callable[..., object]]:
    table = SLOTS[slot]
    written = dict(value) if isinstance(value, Mapping) else {table.short: value}
    name = str(written.pop(table.key, table.default))
    if name not in table.table:
        raise ValueError(f"{slot} has no {table.key} {name!r}; {nearest(name, list(table.table))}")
    function = table.table[name]
    parameters = read_parameters(function, written)
    return (name, parameters), partial(function, **parameters)


def read_parameters(function: Callable[..., object], written: Mapping[str, object]) -> dict[str, Any]:
    """Read the keyword arguments for `function`, in base units, from a scenario that was checked when it was loaded.

    A quantity is read from its string; a bare number is in base units already. Raises ValueError for an unknown or
    missing key, and for a value of the wrong type or range.
    """
    read = _model_of(function).model_validate(written)
    return {name: getattr(read, name) for name in written}


@cache
def _model_of(function: Callable[..., object]) -> type[BaseModel]:
    """Return a pydantic model of the function's parameters that a scenario can set."""
    written = (p for p in inspect.signature(function, eval_str=True).parameters.values() if p.kind is p.KEYWORD_ONLY)
    fields: dict[str, Any] = {p.name: (p.annotation, ... if p.default is p.empty else p.default) for p in written}
    return create_model(function.__name__, __config__={"extra": "forbid"}, **fields)


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """The rules of one link, by their names; None where the link has no such rule."""

    state: str = "up"
    loss: LinkPart | None = None
    latency: LinkPart | None = None
    rate: LinkPart | None = None
    duplicate: LinkPart | None = None
    corrupt: LinkPart | None = None
    reorder: LinkPart | None = None


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """The rate rules of one node's uplink and downlink, which all its links share."""

    uplink: LinkPart | None = None
    downlink: LinkPart | None = None


class LinksSpec:
    """A parsed `links:` block, with the rules of every link and node."""

    __slots__ = ("_all_entries", "_for_all", "_links", "_nodes", "groups", "num_nodes")

    def __init__(self, block: Mapping[str, Mapping[str, object]], groups: Groups, num_nodes: int) -> None:
        """Parse `block` (`links:`). Raises ValueError with a message that begins with the faulty entry's selector."""
        self.groups = groups
        self.num_nodes = num_nodes
        self._links: list[tuple[Selector, dict[str, object]]] = []
        self._nodes: list[tuple[int, frozenset[NodeId], dict[str, object]]] = []
        for text, entry in block.items():
            try:
                self._read(text, entry)
            except ValueError as exc:
                raise ValueError(f"links {text!r}: {exc}") from exc
        self._links.sort(key=lambda item: item[0].rank)
        self._nodes.sort(key=lambda item: item[0])
        self._for_all = sum(selector.rank == 0 for selector, _ in self._links)
        self._all_entries = tuple(range(self._for_all))

    def _read(self, text: str, entry: Mapping[str, object]) -> None:
        default, edges = text == "default", is_edges(text)
        allowed = LINK_KEYS + NODE_KEYS if default else LINK_KEYS if edges else NODE_KEYS
        for key in entry:
            if key not in allowed:
                whose = "the default" if default else "a link" if edges else "a node"
                raise ValueError(f"{whose} has no key {key!r}; {nearest(key, allowed)}")
        values = {key: _read_key(key, value) for key, value in entry.items()}
        if default or edges:
            selector = parse_edges(text, self.groups, self.num_nodes)
            self._links.append((selector, {k: v for k, v in values.items() if k in LINK_KEYS}))
        if default or not edges:
            rank = 0 if default else 2 if text.strip().isdigit() else 1
            nodes = parse_nodes("*" if default else text, self.groups, self.num_nodes)
            self._nodes.append((rank, nodes, {k: v for k, v in values.items() if k in NODE_KEYS}))

    @property
    def is_uniform(self) -> bool:
        """Whether every entry of the `links:` block applies to all links or to all nodes."""
        return len(self._links) == self._for_all and all(rank == 0 for rank, _, _ in self._nodes)

    @property
    def has_downlinks(self) -> bool:
        """Whether any node has a downlink."""
        return any(entry.get("downlink") is not None for _, _, entry in self._nodes)

    def says(self, key: str, blocks: Sequence[Block], nodes: Collection[NodeId]) -> bool:
        """Return whether any entry has the rule `key`, be it `none`, for some link of `blocks` or some of `nodes`."""
        if key in NODE_KEYS:
            return any(key in entry and not named.isdisjoint(nodes) for _, named, entry in self._nodes)
        return any(
            key in entry and any(own.meets(block) for own in selector.blocks for block in blocks)
            for selector, entry in self._links
        )

    def entries(self, edge: Edge) -> tuple[int, ...]:
        """Return the indices of the entries of `links:` that apply to `edge`; later ones override earlier ones."""
        if len(self._links) == self._for_all:
            return self._all_entries
        return tuple(number for number, (selector, _) in enumerate(self._links) if edge in selector)

    def link(self, edge: Edge) -> LinkSpec:
        """Return the rules of `edge`."""
        values: dict[str, Any] = {}
        for number in self.entries(edge):
            values |= self._links[number][1]
        return LinkSpec(**values)

    def node(self, node: NodeId) -> NodeSpec:
        """Return the up- and downlink of `node`."""
        values: dict[str, Any] = {}
        for _, nodes, entry in self._nodes:
            if node in nodes:
                values |= entry
        return NodeSpec(**values)


def _read_key(key: str, value: object) -> object:
    if key == "state":
        return value
    part = choose(key, value)
    if part is not None and SLOTS[key].short == "rate" and getattr(part.build(), "rate_bps", None) == 0:
        raise ValueError(f"a {key} of 0 never carries anything; give a rate above 0, or state: down_drop")
    return part
