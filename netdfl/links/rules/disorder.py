"""Disorder: duplicates, reordering, corruption. Each random draw is keyed by the message or packet, without state.

Relies on: `keyed_random.py`: a copy has a number of its own, so the stages after the one that made it draw for it
independently of the original.

Why: Without state, a link that rests can be dropped and made anew, and two algorithms meet the same disorder.
Corruption marks a message here and drops it only at the receiver, because a damaged one takes its time on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Literal, TypeVar

from xxhash import xxh3_64_intdigest

from netdfl.core.fates import CORRUPT, FateReason
from netdfl.core.types import Array, Message, Payload
from netdfl.core.units import Probability, TimeNs, format_time
from netdfl.links.rules.base import DROPPED, DelayStage, Departure, LinkEvent, Stage, StageOutcome, Transit
from netdfl.links.rules.keyed_random import unit_uniform

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Duplication:
    """The parameter of duplication: the probability that a message or packet arrives twice."""

    probability: float


def duplicate(*, probability: Probability) -> Duplication:
    """Send a copy right behind a unit with this probability; the copy meets the later rules by itself.

    A unit is a message, or a packet where links act on packets.
    """
    return Duplication(probability)


@dataclass(frozen=True, slots=True)
class Corruption:
    """The parameters of corruption: the probability of damage, and whether the receiver detects it."""

    probability: float
    detected: bool


def corrupt(*, probability: Probability, mode: Literal["detect", "deliver"] = "detect") -> Corruption:
    """Damage units: found by a checksum and dropped at the receiver (`detect`), or delivered damaged.

    A unit is a message, or a packet where links act on packets.
    """
    return Corruption(probability, mode == "detect")


@dataclass(frozen=True, slots=True)
class Reordering:
    """The parameters of reordering: the probability that a message or packet is held back, and for how long."""

    probability: float
    delay_ns: int


def reorder(*, probability: Probability, delay: TimeNs = 10_000_000) -> Reordering:
    """Hold a unit back by `delay` with this probability, so that later ones overtake it.

    A unit is a message, or a packet where links act on packets.
    """
    if delay <= 0:
        raise ValueError(f"reorder delay = {format_time(delay)} must be above 0; give a time like 10ms")
    return Reordering(probability, delay)


class Disorder(Stage, Generic[C]):
    """The base of the link stages that duplicate or damage messages or packets at random, without delaying them.

    `config` has the parameters, such as the probability; a change applies to messages or packets that enter later.
    """

    __slots__ = ("config", "seed")
    key: ClassVar[str]

    def __init__(self, seed: int, config: C) -> None:
        """Store the edge's random `seed` and the parameters."""
        self.seed = seed
        self.config = config

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Replace the parameters by the new ones in `event`, if it has any for this stage."""
        self.config = event.get(self.key, self.config)
        return ()


class Duplicate(Disorder[Duplication]):
    """The stage that duplicates messages or packets."""

    __slots__ = ()
    key: ClassVar[str] = "duplicate"

    def copies(self, unit: Transit) -> Sequence[Transit]:
        """Return the message or packet `unit` alone, or followed by its copy if it is duplicated."""
        if unit_uniform(self.seed, unit) >= self.config.probability:
            return (unit,)
        return (unit, replace(unit, copy=unit.copy + 1))

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Pass the message or packet `unit` and, with the rule's probability, a copy right behind it."""
        return [Departure(each, now_ns) for each in self.copies(unit)]


class Corrupt(Disorder[Corruption]):
    """The stage that damages messages or packets: it marks them as corrupted."""

    __slots__ = ()
    key: ClassVar[str] = "corrupt"

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Mark the message or packet `unit` as damaged with the rule's probability; it leaves at once."""
        if unit_uniform(self.seed, unit) < self.config.probability:
            unit.corrupted = True
        return now_ns


class Checksum(Stage):
    """The last stage of a path whose corruption is detected; it drops damaged messages or packets."""

    __slots__ = ("corrupt",)
    reason: ClassVar[FateReason] = CORRUPT

    def __init__(self, corrupt: Corrupt) -> None:
        """Store `corrupt`, the stage whose damaged messages or packets this one drops."""
        self.corrupt = corrupt

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Drop the message or packet `unit` if it is damaged and the rule detects damage."""
        return DROPPED if unit.corrupted and self.corrupt.config.detected else now_ns


class Reorder(DelayStage):
    """The stage that holds back messages or packets. A changed rule does not affect ones already held back."""

    __slots__ = ("config", "seed")

    def __init__(self, seed: int, config: Reordering) -> None:
        """Store the edge's random `seed` and the parameters."""
        super().__init__()
        self.seed, self.config = seed, config

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Return when the message or packet `unit` leaves: now or, with the rule's probability, after its delay."""
        config = self.config
        return now_ns + config.delay_ns if unit_uniform(self.seed, unit) < config.probability else now_ns

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Replace the rule's parameters; at a reset of the link, drop the messages or packets that are held back."""
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
