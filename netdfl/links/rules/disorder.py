"""Disorder: duplicates, reordering, corruption. Each is keyed by the unit and holds no state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Literal, TypeVar

from xxhash import xxh3_64_intdigest

from netdfl.core.fates import CORRUPT, FateReason
from netdfl.core.types import Array, Message, Payload
from netdfl.core.units import Probability, TimeNs
from netdfl.links.rules.base import DROPPED, Delaying, Departure, LinkEvent, Stage, StageOutcome, Transit
from netdfl.links.rules.keyed_random import unit_uniform

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Duplication:
    """How often a unit arrives twice."""

    probability: float


def duplicate(*, probability: Probability) -> Duplication:
    """Send a copy right behind a unit with this probability; the copy meets the later rules by itself."""
    return Duplication(probability)


@dataclass(frozen=True, slots=True)
class Corruption:
    """How often a unit is damaged, and whether the receiver sees it."""

    probability: float
    detected: bool


def corrupt(*, probability: Probability, mode: Literal["detect", "deliver"] = "detect") -> Corruption:
    """Damage units: found by a checksum and dropped at the receiver (`detect`), or delivered damaged."""
    return Corruption(probability, mode == "detect")


@dataclass(frozen=True, slots=True)
class Reordering:
    """How often a unit is held back, and for how long."""

    probability: float
    delay_ns: int


def reorder(*, probability: Probability, delay: TimeNs = 10_000_000) -> Reordering:
    """Hold a unit back by `delay` with this probability, so that later ones overtake it."""
    if delay <= 0:
        raise ValueError(f"reorder delay = {delay} ns must be above 0; give a time like 10ms")
    return Reordering(probability, delay)


class Disorder(Stage, Generic[C]):
    """A stage that holds nothing, by its `config`; a change acts on what enters after it."""

    __slots__ = ("config", "seed")
    key: ClassVar[str]

    def __init__(self, seed: int, config: C) -> None:
        """`seed` is the edge's."""
        self.seed = seed
        self.config = config

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Take a new `config`, by the stage's `key`."""
        self.config = event.get(self.key, self.config)
        return ()


class Duplicate(Disorder[Duplication]):
    """The stage of `duplicate`."""

    __slots__ = ()
    key: ClassVar[str] = "duplicate"

    def copies(self, unit: Transit) -> Sequence[Transit]:
        """`unit`, and its copy where it is duplicated."""
        if unit_uniform(self.seed, unit) >= self.config.probability:
            return (unit,)
        return (unit, replace(unit, copy=unit.copy + 1))

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Pass `unit`, and a copy behind it with the probability."""
        return [Departure(each, now_ns) for each in self.copies(unit)]


class Corrupt(Disorder[Corruption]):
    """The stage of `corrupt`: marks units."""

    __slots__ = ()
    key: ClassVar[str] = "corrupt"

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Mark `unit` with the probability."""
        if unit_uniform(self.seed, unit) < self.config.probability:
            unit.corrupted = True
        return now_ns


class Checksum(Stage):
    """The last stage of a path whose corruption is detected: damaged units end here (`corrupt`)."""

    __slots__ = ("corrupt",)
    reason: ClassVar[FateReason] = CORRUPT

    def __init__(self, corrupt: Corrupt) -> None:
        """Check what `corrupt` marks."""
        self.corrupt = corrupt

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Drop `unit` where it is damaged and the rule says that this is found out."""
        return DROPPED if unit.corrupted and self.corrupt.config.detected else now_ns


class Reorder(Delaying):
    """The stage of `reorder`. What it holds back keeps its time at a change."""

    __slots__ = ("config", "seed")

    def __init__(self, seed: int, config: Reordering) -> None:
        """`seed` is the edge's."""
        super().__init__()
        self.seed, self.config = seed, config

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Now, or later by the delay."""
        config = self.config
        return now_ns + config.delay_ns if unit_uniform(self.seed, unit) < config.probability else now_ns

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Take a new `reorder`; drop what is held back at a reset."""
        self.config = event.get("reorder", self.config)
        return super().changed(event, now_ns)


def with_bit_flipped(message: Message, seed: int) -> Message:
    """`message` with one bit of its arrays flipped, which one depends on `seed` and the message's key."""
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
