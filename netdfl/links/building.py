"""The construction of one link's stages (loss, rate, delay ...) with their random streams, and of changes to them.

A rule as a scenario gives it (`spec.LinkPart`) becomes the value that a stage works with: a loss model with its seed, a
delay, a rate. `channel.py` decides which rules a link has; this module only builds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netdfl.core.rng import Streams
from netdfl.core.types import Edge, Kind
from netdfl.links.rules.base import LinkEvent, RoundValues, Stage
from netdfl.links.rules.disorder import Corrupt, Corruption, Duplicate, Duplication, Reorder, Reordering
from netdfl.links.rules.latency import Latency, constant
from netdfl.links.rules.loss import Bernoulli, Loss
from netdfl.links.rules.mahimahi import rate_stage
from netdfl.links.rules.named import MessageNumbers, NamedDelay, NamedLoss, NamedMessages
from netdfl.links.rules.rate import Rate, Shape
from netdfl.links.rules.state import LinkState
from netdfl.links.rules.tcp import Tcp, TcpTable
from netdfl.links.schedule.active_changes import UNSAID, EffectiveValue, Piece
from netdfl.links.schedule.events import CompiledEvent

_NO_RULE: Mapping[str, object] = {
    "loss": None,
    "latency": constant(delay=0),
    "rate": Shape(None),
    "duplicate": Duplication(0.0),
    "corrupt": Corruption(0.0, True),
    "reorder": Reordering(0.0, 0),
}


@dataclass(frozen=True, slots=True)
class Maker:
    """A builder of the link stages of one edge; it derives the random seeds from the edge and the rule."""

    streams: Streams
    edge: Edge

    def seed(self, rule: str) -> int:
        """Return the random seed for the rule called `rule` on this edge."""
        return self.streams.integer("link", *self.edge, rule)

    def value(self, key: str, part: Any) -> Any:
        """Return the link rule `part` of the scenario, built for its stage; for None, return a rule without effect.

        `key` is the rule's name, such as `loss`; a link state (`up`, `down_drop` ...) is returned as it is.
        """
        if key == "state":
            return part
        if part is None:
            return _NO_RULE[key]
        return part.build(self.seed("loss")) if key == "loss" else part.build()

    def event(self, old: Mapping[str, EffectiveValue], new: Mapping[str, EffectiveValue]) -> LinkEvent:
        """Return the event that changes a link's rules from the values `old` to `new`, both given by rule name.

        The event leaves out rules whose value stays the same, so that their stages keep their state.
        """
        changes = {key: self.value(key, now.value) for key, now in new.items() if now.value != old[key].value}
        return changes | {f"{key}_scale": now.scale for key, now in new.items() if now.scale != old[key].scale}

    def stages(
        self, base: Mapping[str, EffectiveValue], used: Collection[str], pieces: Sequence[Piece]
    ) -> Iterator[Stage]:
        """Yield the link's own stages (loss, rate, latency ...), in the order in which messages or packets pass them.

        Args:
            base: the value of each rule, by the rule's name.
            used: the names of the rules that get a stage.
            pieces: other values of the rules, for messages of some rounds.
        """
        for key in ("state", "loss", "duplicate", "corrupt", "rate", "latency", "reorder"):
            if key in used:
                yield self._stage(key, self.value(key, base[key].value), pieces)

    def tcp(self, base: Mapping[str, EffectiveValue], used: Collection[str], table: TcpTable) -> Iterator[Stage]:
        """Yield the stages of a link that carries whole messages over TCP.

        Args:
            base: the value of each rule, by the rule's name.
            used: the names of the rules that the link has; if empty, there are no stages.
            table: measured delays of messages over TCP.
        """
        if "state" in used:
            yield self._stage("state", self.value("state", base["state"].value), ())
        if used:
            loss, rate, latency = (self.value(key, base[key].value) for key in ("loss", "rate", "latency"))
            yield Tcp(self.seed("tcp"), table, loss, rate, latency)

    def _stage(self, key: str, value: Any, pieces: Sequence[Piece]) -> Stage:
        if key == "state":
            return LinkState(value, _table(pieces, key, lambda now: None if now.value == "up" else now.value))
        if key == "loss":
            lossless = Bernoulli(0, probability=0.0)
            return Loss(value, _table(pieces, key, lambda now: self.value(key, now.value) or lossless))
        if key == "duplicate":
            return Duplicate(self.seed(key), value)
        if key == "corrupt":
            return Corrupt(self.seed(key), value)
        if key == "rate":
            return _rate(value, pieces)
        if key == "latency":
            return Latency(self.seed(key), value, rounds=_table(pieces, key, self._delay))
        return Reorder(self.seed(key), value)

    def _delay(self, now: EffectiveValue) -> tuple[object, float]:
        return (None if now.value is UNSAID else self.value("latency", now.value), now.scale)


def around(own: Sequence[Stage], events: Sequence[CompiledEvent]) -> Iterator[Stage]:
    """Yield a link's stages `own`; before and after them, stages that drop or delay the messages named by `events`.

    The stage that drops comes first, the stage that delays comes last; each is left out if no event needs it.
    """
    ordered = sorted(events, key=lambda event: event.order)
    lost, late = ([named_by(event) for event in ordered if event.action == action] for action in ("drop", "delay"))
    if any(each.number is not None for each in (*lost, *late)):
        yield MessageNumbers([*lost, *late])
    if lost:
        yield NamedLoss(lost)
    yield from own
    if late:
        yield NamedDelay(late)


def named_by(event: CompiledEvent) -> NamedMessages:
    """Return which messages a `drop` or `delay` event names, and the added delay."""
    said = event.parameters
    return NamedMessages(
        at_ns=event.at_ns,
        until_ns=said.get("until_ns"),
        at_round=event.at_round,
        until_round=event.until_round,
        kind=Kind(said["kind"]) if "kind" in said else None,
        step=said.get("step"),
        attempt=said.get("attempt"),
        by_ns=said.get("by"),
        incarnation=said.get("incarnation"),
        number=said.get("number"),
    )


def same_for_all(base: Mapping[str, EffectiveValue], used: Collection[str]) -> tuple[Stage, ...] | None:
    """Return stages that all links with these rules can share; None if each link needs stages of its own.

    Links without rules share an empty path, and links whose only rule is a constant latency share its stage. `base` has
    the value of each rule, `used` the names of the rules that the links have. Valid only if no event changes the rules.
    """
    if not used:
        return ()
    delay = base["latency"].value.build() if set(used) == {"latency"} else None
    if delay is None or delay.quantile is not None:
        return None
    return (Latency(0, replace(delay, fifo=False)),)  # a constant delay keeps the order by itself, without state


def _rate(value: Any, pieces: Sequence[Piece]) -> Stage:
    rounds = _table(pieces, "rate", _speed)
    if rounds is None:
        return rate_stage(value)
    if not isinstance(value, Shape):
        raise ValueError("a rate from a trace can't be changed by an event; give the link a plain rate instead")
    return Rate(value, rounds)


def _speed(now: EffectiveValue) -> tuple[float | None, float]:
    return (None if now.value is UNSAID else now.value.build().rate_bps, now.scale)


def _table(pieces: Sequence[Piece], key: str, read: Callable[[EffectiveValue], object]) -> RoundValues[Any] | None:
    if not any(key in piece.values for piece in pieces):
        return None
    return RoundValues([(piece.start, read(piece.values[key]) if key in piece.values else None) for piece in pieces])
