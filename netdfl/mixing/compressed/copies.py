"""What nodes keep of references; at a receiver, what waits for a missing message and what is settled when it comes.

Versions that can be decoded in order are followed at once. A difference that can't waits, for the message before it or
for one after it that brings the reference in full: from there the copy walks back through what waited, and where
another message is missing it leaves a hole, which that message or a later one may close.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torch import Tensor

from netdfl.core.types import NodeId


class Reference(NamedTuple):
    """The sender's end: h, shape (d,), its version, and the mark of how it came to be."""

    vector: Tensor
    version: int = 0
    mark: int = 0


class PushShare(NamedTuple):
    """What a message of push-sum moves: `x` times the sender's reference, and `w` of weight."""

    x: float = 1.0
    w: float = 0.0


class Came(NamedTuple):
    """A sender's reference at the moment of one of its messages, and the share that goes with it."""

    vector: Tensor
    share: PushShare


class Pending(NamedTuple):
    """A difference from the version of mark `after` to that of `mark`, which waits, with the share that came along."""

    version: int
    after: int
    mark: int
    difference: Tensor
    share: PushShare


class Hole(NamedTuple):
    """The reference after a message that a resynchronisation jumped over; `floor` is the version before the jump."""

    vector: Tensor
    version: int
    mark: int
    floor: int


class Copy(NamedTuple):
    """The receiver's end: h at `version` and `mark`, what waits for another one, and the version last asked about.

    `epoch` counts the sender's restarts: what it sent before one says nothing of what comes after.
    """

    vector: Tensor
    version: int = 0
    mark: int = 0
    epoch: int = 0
    pending: tuple[Pending, ...] = ()
    asked: int = 0
    holes: tuple[Hole, ...] = ()


class Tally(NamedTuple):
    """What desynchronised references have cost so far.

    `gaps` counts differences that could not be decoded when they came, `lost_w` is the weight of those
    of them that are gone for good, `resyncs` the full references sent and `resync_bytes` their bytes.
    """

    gaps: int = 0
    lost_w: float = 0.0
    resyncs: int = 0
    resync_bytes: int = 0

    def figures(self) -> dict[str, float]:
        """The counts by the names of the record's metrics."""
        return {"reference_" + name: float(count) for name, count in self._asdict().items()}


class Heard(NamedTuple):
    """What a node knows of the others' references, and who wants its own in full.

    `start` is where references begin. `asks` are the nodes to ask in the next message, `owed` those
    that asked this node.
    """

    start: Reference
    copies: Mapping[NodeId, Copy]
    asks: tuple[NodeId, ...] = ()
    owed: tuple[NodeId, ...] = ()
    tally: Tally = Tally()


class CopyStep(NamedTuple):
    """What one message does to a copy."""

    copy: Copy
    came: tuple[Came, ...] = ()
    lost_w: float = 0.0
    ask: bool = False


def holding(copy: Copy, waiting: Pending) -> Copy:
    """The copy with one more difference that waits."""
    return copy._replace(pending=tuple(sorted((*copy.pending, waiting), key=lambda each: each.version)))


def catch_up(copy: Copy, kept: int) -> CopyStep:
    """Decode what waited for the copy's version, as far as none is missing; forget holes that are long past.

    What waited for the same version of an earlier life is lost.
    """
    came: list[Came] = []
    lost = 0.0
    waiting = [each for each in copy.pending if each.version > copy.version]
    behind = tuple(each for each in copy.pending if each.version <= copy.version)
    while waiting and waiting[0].version == copy.version + 1:
        first = waiting.pop(0)
        if not follows(copy, first.version, first.after):
            lost += first.share.w
            continue
        copy = copy._replace(vector=copy.vector + first.difference, version=first.version, mark=first.mark)
        came.append(Came(copy.vector, first.share))
    holes = tuple(hole for hole in copy.holes if copy.version <= hole.version + kept)
    lowest = min((hole.floor for hole in holes), default=copy.version)
    lost += weight_of(each for each in behind if each.version <= lowest)
    behind, copy = tuple(each for each in behind if each.version > lowest), copy._replace(holes=holes)
    return CopyStep(copy._replace(pending=(*behind, *waiting), asked=copy.asked if waiting else 0), tuple(came), lost)


def split(holes: Iterable[Hole], below: Hole) -> tuple[Hole, ...]:
    """The holes, and of the one that spans the version after `below` what is above it and what is under it."""
    found: list[Hole] = []
    for hole in holes:
        spans = hole.floor <= below.version < hole.version
        found += [below._replace(floor=hole.floor), hole._replace(floor=below.version + 1)] if spans else [hole]
    return tuple(found)


def settle(copy: Copy) -> CopyStep:
    """Walk back from holes through the differences that waited, h_(v-1) = h_v - C_v, to the next missing one."""
    came: list[Came] = []
    waiting, holes = [*copy.pending], list[Hole]()
    for hole in copy.holes:
        at = hole
        while (last := next((each for each in waiting if (each.version, each.mark) == at[1:3]), None)) is not None:
            waiting = [each for each in waiting if each is not last]
            came.append(Came(at.vector, last.share))
            at = Hole(at.vector - last.difference, at.version - 1, last.after, at.floor)
        holes += [at] * (at.version > at.floor)
    return CopyStep(copy._replace(pending=tuple(waiting), holes=tuple(holes)), tuple(came))


def follows(copy: Copy, version: int, after: int) -> bool:
    """Whether the difference to `version` from that of mark `after` starts where the copy is, in number and content."""
    return (version, after) == (copy.version + 1, copy.mark)


def weight_of(waiting: Iterable[Pending]) -> float:
    """The weight w that waits along."""
    return sum(each.share.w for each in waiting)
