"""Disorder: duplicates, reordering, corruption. Each random draw is keyed by the unit, and needs no state.

Relies on: `keyed_random.py`: a copy has a number of its own, so it draws its own luck behind the stage that made it.

Why: Without state, a link that rests can be dropped and made anew, and two algorithms meet the same disorder.
Corruption marks a unit here and drops it only at the receiver, because a damaged unit takes its time on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Literal, TypeVar

from xxhash import xxh3_64_intdigest

from netdfl.core.fates import CORRUPT, FateReason
from netdfl.core.types import Array, Message, Payload
from netdfl.core.units import Probability, TimeNs
from netdfl.links.rules.base import DROPPED, DelayStage, Departure, LinkEvent, Stage, StageOutcome, Transit
from netdfl.links.rules.keyed_random import unit_uniform

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Duplication:
    """The parameter of duplication: the probability that a unit arrives twice."""

    probability: float


def duplicate(*, probability: Probability) -> Duplication:
    """Send a copy right behind a unit with this probability; the copy meets the later rules by itself."""
    return Duplication(probability)


@dataclass(frozen=True, slots=True)
class Corruption:
    """The parameters of corruption: the probability of damage, and whether the receiver detects it."""

    probability: float
    detected: bool


def corrupt(*, probability: Probability, mode: Literal["detect", "deliver"] = "detect") -> Corruption:
    """Damage units: found by a checksum and dropped at the receiver (`detect`), or delivered damaged."""
    return Corruption(probability, mode == "detect")


@dataclass(frozen=True, slots=True)
class Reordering:
    """The parameters of reordering: the probability that a unit is held back, and for how long."""

    probability: float
    delay_ns: int


def reorder(*, probability: Probability, delay: TimeNs = 10_000_000) -> Reordering:
    """Hold a unit back by `delay` with this probability, so that later ones overtake it."""
    if delay <= 0:
        raise ValueError(f"reorder delay = {delay} ns must be above 0; give a time like 10ms")
    return Reordering(probability, delay)


class Disorder(Stage, Generic[C]):
    """A stage that holds no units and acts by its parameters, `config`; new ones act on units that enter later."""

    __slots__ = ("config", "seed")
    key: ClassVar[str]

    def __init__(self, seed: int, config: C) -> None:
        """Store the edge's random `seed` and the parameters."""
        self.seed = seed
        self.config = config

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Replace the parameters by new ones, if the event has any for this stage."""
        self.config = event.get(self.key, self.config)
        return ()


class Duplicate(Disorder[Duplication]):
    """The stage that duplicates units."""

    __slots__ = ()
    key: ClassVar[str] = "duplicate"

    def copies(self, unit: Transit) -> Sequence[Transit]:
        """Return `unit` alone, or followed by its copy if the unit is duplicated."""
        if unit_uniform(self.seed, unit) >= self.config.probability:
            return (unit,)
        return (unit, replace(unit, copy=unit.copy + 1))

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Pass `unit` and, with the rule's probability, a copy right behind it."""
        return [Departure(each, now_ns) for each in self.copies(unit)]


class Corrupt(Disorder[Corruption]):
    """The stage that damages units by marking them as corrupt."""

    __slots__ = ()
    key: ClassVar[str] = "corrupt"

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Mark `unit` as damaged with the rule's probability."""
        if unit_uniform(self.seed, unit) < self.config.probability:
            unit.corrupted = True
        return now_ns


class Checksum(Stage):
    """The last stage of a path whose corruption is detected; it drops damaged units."""

    __slots__ = ("corrupt",)
    reason: ClassVar[FateReason] = CORRUPT

    def __init__(self, corrupt: Corrupt) -> None:
        """Drop the units that the stage `corrupt` marked."""
        self.corrupt = corrupt

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Drop `unit` if it is damaged and the rule detects damage."""
        return DROPPED if unit.corrupted and self.corrupt.config.detected else now_ns


class Reorder(DelayStage):
    """The stage that holds back units. A changed rule does not affect units that are already held back."""

    __slots__ = ("config", "seed")

    def __init__(self, seed: int, config: Reordering) -> None:
        """Store the edge's random `seed` and the parameters."""
        super().__init__()
        self.seed, self.config = seed, config

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Return `now_ns`, or with the rule's probability `now_ns` plus the rule's delay."""
        config = self.config
        return now_ns + config.delay_ns if unit_uniform(self.seed, unit) < config.probability else now_ns

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Replace the rule's parameters; at a reset, drop the units that are held back."""
        self.config = event.get("reorder", self.config)
        return super().changed(event, now_ns)


def with_bit_flipped(message: Message, seed: int) -> Message:
    """Return `message` with one bit of its arrays flipped; `seed` and the message's identity choose the bit."""
    arrays = dict(message.payload.arrays)
    total = sum(array.nbytes for array in arrays.values())
    if total == 0:
        return message
    key = repr((message.src, message.dst, message.kind.value, message.round, message.step, message.attempt))
    at, bit = divmod(xxh3_64_intdigest(key.encode(), seed) % (8 * total), 8)
    for name, array in arrays.items():
        if at < array.nbytes:
            data = bytearray(array.data)
            data[at] ^= 1 << bit
            arrays[name] = Array(array.dtype, array.shape, memoryview(bytes(data)))
            break
        at -= array.nbytes
    return message._replace(payload=Payload(arrays, message.payload.meta))
