"""A compiled event: a change of links or nodes, with its time and the scenario entry it comes from. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from typing import TypeGuard

from netdfl.core.types import Json, NodeId
from netdfl.links.selectors import Block
from netdfl.links.spec import SLOTS, LinkPart, choose, read_parameters

STANDING = -1


@dataclass(frozen=True, slots=True)
class CompiledEvent:
    """One event of the compiled schedule.

    Actions on links, by `blocks`: `set` makes the changes in `parameters`, `unset` ends the changes that the same
    `cause` set on the same links. A change is a value in a scenario's form, or `{scale: 2}`.
    Actions on messages, by `blocks`: `drop` and `delay` (`by`, in ns) the messages that `kind`, `step`, `attempt`,
    `incarnation` and `number` name, by time up to `until_ns`.
    Actions on nodes, by `nodes`: `crash` (`state`: kept or lost), `restart`, `join`, `pause`, `resume`, `slow_down`
    (`factor` on its computing time, 1 ends it), and `set`/`unset` of `uplink`, `downlink`.

    `at_ns` counts from the common start. With `at_round` instead, an event on links acts on the messages of the rounds
    from `at_round` to before `until_round` (None: all later ones), and one on a node when that node begins the round,
    plus `after_ns`. `cause` is the entry's index, or `STANDING` for a change that lasts until another one replaces it;
    `source` is always the entry's index, and `entry` its action by its name in the scenario: `partition`, `trace`,
    `churn`.

    `core` names the core links that the event is about: with `blocks`, these are the links that cross them; without,
    the event changes the core links, or the routes (`without`: the names of core links that no route may use).
    """

    action: str
    source: int
    at_ns: int | None = None
    at_round: int | None = None
    until_round: int | None = None
    after_ns: int = 0
    cause: int = STANDING
    blocks: tuple[Block, ...] = ()
    nodes: tuple[NodeId, ...] = ()
    parameters: Json = field(default_factory=dict)
    entry: str = ""
    core: str = ""
    _parts: dict[str, LinkPart | None] = field(default_factory=dict, init=False, compare=False, repr=False)

    def part(self, key: str) -> LinkPart | None:
        """Return the link part (loss rule, delay, rate) that the event sets under `key`, parsed once.

        None if the event lacks the key, or if its value takes the link's rule away.
        """
        if key not in self._parts:
            self._parts[key] = choose(key, self.parameters.get(key))
        return self._parts[key]

    @property
    def acts_on_links(self) -> bool:
        """Whether the event sets or ends changes of links, or of a node's uplink or downlink."""
        return self.action in ("set", "unset")

    @property
    def where(self) -> str:
        """The place of the event as a text: the core links by name, or the links or nodes."""
        return self.core or name_place(self.blocks, self.nodes, self.entry)

    @property
    def names_messages(self) -> bool:
        """Whether the event drops or delays single messages, which it names."""
        return self.action in ("drop", "delay")

    def holds_in(self, round: int) -> bool:
        """Return whether an event that is scheduled by rounds acts on the messages of `round`."""
        return (self.at_round or 0) <= round and (self.until_round is None or round < self.until_round)

    @property
    def ends(self) -> bool:
        """Whether the event ends something: a change, an absence, a pause or a slow-down."""
        return self.action in _ENDS or (self.action == "slow_down" and self.parameters["factor"] == 1)

    @property
    def order(self) -> tuple[bool, int, int, bool, int]:
        """The sort key in a schedule: by time, then rounds; at one moment, ends come before beginnings."""
        by_round = self.at_round is not None
        moment = self.at_round if self.at_round is not None else self.at_ns or 0
        return (by_round, moment, self.after_ns, not self.ends, self.source)

    def to_json(self) -> dict[str, object]:
        """Return plain data for JSON, without empty fields; `where` and `change` are texts for people."""
        change = name_change(self.parameters) if self.action == "set" else None
        data = {
            "action": self.action,
            "entry": self.entry or None,
            "source": self.source,
            "at_ns": self.at_ns,
            "at_round": self.at_round,
            "until_round": self.until_round,
            "after_ns": self.after_ns or None,
            "cause": self.cause if self.blocks or self.acts_on_links else None,
            "links": [[sorted(block.src), sorted(block.dst)] for block in self.blocks] or None,
            "nodes": list(self.nodes) or None,
            "core": self.core or None,
            "parameters": dict(self.parameters) or None,
            "where": self.where,
            "change": change,
        }
        return {key: value for key, value in data.items() if value is not None}


_ENDS = ("unset", "restart", "join", "resume")


def is_relative(change: object) -> TypeGuard[Mapping[str, float]]:
    """Return whether a change of a link rule, as a compiled event has it, is a factor: `{scale: 2}`."""
    return isinstance(change, Mapping) and "scale" in change


MOST = 3


def name_nodes(nodes: Collection[NodeId]) -> str:
    """Return a text that names nodes: `0..3`, or `0,2,5`."""
    named = sorted(nodes)
    if len(named) > 1 and named == list(range(named[0], named[-1] + 1)):
        return f"{named[0]}..{named[-1]}"
    return ",".join(map(str, named))


def name_place(blocks: Sequence[Block], nodes: Sequence[NodeId] = (), entry: str = "") -> str:
    """Return a text for an event's place: `0..3 | 4..7` (a `partition`), `0--1` (both directions), `0->1`, `node 3`."""
    if nodes:
        return name_nodes(nodes) if entry == "node" else f"node {name_nodes(nodes)}"
    if entry == "partition" and len(blocks) > 1:
        return " | ".join(name_nodes(block.src) for block in blocks)
    if len(blocks) == 2 and (blocks[0].src, blocks[0].dst) == (blocks[1].dst, blocks[1].src):
        return f"{name_nodes(blocks[0].src)}--{name_nodes(blocks[0].dst)}"
    named = [f"{name_nodes(block.src)}->{name_nodes(block.dst)}" for block in blocks[:MOST]]
    return ", ".join(named) + (f" and {len(blocks) - MOST} more" if len(blocks) > MOST else "")


def name_change(parameters: Mapping[str, object]) -> str:
    """Return a text for changes: `state down_drop`, `latency x2`, `rate 2Mbit`, `loss gilbert_elliott (p 0.02, r 0.3)`.

    What is at its default is left out.
    """
    return ", ".join(f"{name} {_value(name, value)}" for name, value in parameters.items())


def _value(name: str, value: object) -> str:
    if is_relative(value):
        return f"x{value['scale']:g}"
    if not isinstance(value, Mapping):
        return str(value)
    row, written = SLOTS.get(name), dict(value)
    function = None if row is None else row.table.get(str(written.pop(row.key, row.default)))
    if row is None or function is None:
        return " ".join(str(each) for each in value.values() if each is not None)
    usual, read = _defaults(function), read_parameters(function, written)
    said = {key: written[key] for key, now in read.items() if now != usual[key]}
    model = value.get(row.key, row.default)
    first = _figure(row.short, said.pop(row.short)) if model == row.default and row.short in said else str(model)
    more = ", ".join(f"{key} {_figure(key, each)}" for key, each in said.items())
    return f"{first} ({more})" if more else first


@cache
def _defaults(function: Callable[..., object]) -> Mapping[str, object]:
    return {key: parameter.default for key, parameter in signature(function).parameters.items()}


_PREFIXES = {"G": 10**9, "M": 10**6, "k": 10**3, "": 1}


def _figure(key: str, value: object) -> str:
    """Return a parameter of a link rule as a scenario may write it: `2Mbit` for `2000000bit`, `5%` for 0.05."""
    if isinstance(value, list):
        return str(len(value))
    if key == "probability" and isinstance(value, float):
        return f"{100 * value:.6g}%"
    unit = next((unit for unit in ("bit", "B") if str(value).endswith(unit)), "bit" if key == "rate" else "")
    try:
        number = float(str(value).removesuffix(unit)) if unit else None
    except ValueError:
        number = None  # it has a prefix
    if number is None:
        return str(value)
    prefix = next((prefix for prefix, size in _PREFIXES.items() if number >= size), "")
    return f"{number / _PREFIXES[prefix]:.6g}{prefix}{unit}"
