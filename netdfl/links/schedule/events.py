"""A compiled event: what happens to which links or nodes, when, and which entry said so. Flat data, with its words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from netdfl.core.types import Json, NodeId
from netdfl.links.selectors import Block
from netdfl.links.spec import Chosen, choose

STANDING = -1


@dataclass(frozen=True, slots=True)
class CompiledEvent:
    """One event of the compiled schedule.

    Actions on links, by `blocks`: `set` makes the changes in `parameters`, `unset` ends those that the
    same `cause` set on the same links. A change is a value as a scenario writes it, or `{scale: 2}`.
    Actions on messages, by `blocks`: `drop` and `delay` (`by`, in ns) those that `kind`, `step` and `attempt` name,
    by time up to `until_ns`.
    Actions on nodes, by `nodes`: `crash` (`state`: kept or lost), `restart`, `pause`, `resume`,
    `slow_down` (`factor` on its computing time, 1 ends it), and `set`/`unset` of `uplink`, `downlink`.

    `at_ns` counts from the common start. With `at_round` instead, an event on links acts on the
    messages of the rounds from `at_round` to before `until_round` (None: all later ones), and one on
    a node when that node begins the round, plus `after_ns`. `cause` is the entry's index, or
    `STANDING` for what lasts until something else is said; `source` is always the entry's index, and
    `entry` its action as the scenario names it: `partition`, `trace`, `churn`.
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
    _parts: dict[str, Chosen | None] = field(default_factory=dict, init=False, compare=False, repr=False)

    def part(self, key: str) -> Chosen | None:
        """What its parameter `key` means, read once; None for no rule, or where it changes nothing by that key."""
        if key not in self._parts:
            self._parts[key] = choose(key, self.parameters.get(key))
        return self._parts[key]

    @property
    def acts_on_links(self) -> bool:
        """Whether it changes links; else it acts on nodes."""
        return self.action in ("set", "unset")

    @property
    def names_messages(self) -> bool:
        """Whether it is about messages by name."""
        return self.action in ("drop", "delay")

    def holds_in(self, round: int) -> bool:
        """Whether an event by rounds acts on the messages of `round`."""
        return (self.at_round or 0) <= round and (self.until_round is None or round < self.until_round)

    @property
    def order(self) -> tuple[bool, int, int, bool, int]:
        """The place in a schedule: by time, then rounds; at one moment, what ends before what begins."""
        by_round = self.at_round is not None
        moment = self.at_round if self.at_round is not None else self.at_ns or 0
        ends = self.action in _ENDS or (self.action == "slow_down" and self.parameters["factor"] == 1)
        return (by_round, moment, self.after_ns, not ends, self.source)

    def to_json(self) -> dict[str, object]:
        """Plain data that JSON can hold, without the fields that say nothing; `where` and `change` are words."""
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
            "parameters": dict(self.parameters) or None,
            "where": name_place(self.blocks, self.nodes, self.entry),
            "change": change,
        }
        return {key: value for key, value in data.items() if value is not None}


_ENDS = ("unset", "restart", "resume")

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
