"""The copies of references that receivers keep, and the differences that wait at a receiver for a missing message.

A difference that follows the copy's version is added at once. Any other difference waits: for the message before it, or
for a later one that brings the reference in full. From a full reference the copy walks back through the waiting
differences, and settles their shares. Where another message is missing, the walk stops and leaves a hole (`Hole`),
which that message or a later full reference may close.

    versions   1   2   3   [4 lost]   5   6   7 in full
    copy       followed 1..3          5 and 6 wait
    at 7                              <- 6 <- 5 settled; a hole remains at 4 until it arrives

Relies on: marks (`references.py`): a waiting difference belongs to the walk only if its mark is that of the reference
at hand.

Why: Push-sum shares are mass, so a difference that can't be added yet may not be thrown away, and a jump over a gap
must keep the reference on both sides of it. What waits is bounded in number and in age, because a sender that is gone
for good never closes its gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torch import Tensor

from netdfl.core.types import NodeId


class Reference(NamedTuple):
    """A sender's reference vector, by which its differences are encoded.

    Attributes:
        vector: the vector h, shape (d,).
        version: the number of differences that it contains.
        mark: a hash of all these differences, which tells apart references with equal versions.
    """

    vector: Tensor
    version: int = 0
    mark: int = 0


class PushShare(NamedTuple):
    """The push-sum mass in a message: the factor `x` of the sender's reference vector, and the weight `w`."""

    x: float = 1.0
    w: float = 0.0


class DecodedReference(NamedTuple):
    """A sender's reference vector at the version of one of its messages, with the share in that message."""

    vector: Tensor
    share: PushShare


class Pending(NamedTuple):
    """A difference that waits at a receiver for an earlier message.

    Attributes:
        version: the version of the reference after the difference.
        after: the mark of the reference before it.
        mark: the mark of the reference after it.
        difference: the difference, shape (d,).
        share: the push-sum share that its message brought.
    """

    version: int
    after: int
    mark: int
    difference: Tensor
    share: PushShare


class Hole(NamedTuple):
    """A gap in the versions of a copy, which a full reference skipped.

    The first three fields are of the reference after it.

    `floor` is the version of the copy before the full reference.
    """

    vector: Tensor
    version: int
    mark: int
    floor: int


class Copy(NamedTuple):
    """The receiver's copy of a sender's reference.

    Attributes:
        vector: the reference vector h, shape (d,).
        version: the version of the reference.
        mark: the hash that tells apart references with equal versions.
        epoch: the number of the sender's restarts; differences of one epoch do not fit references of another.
        pending: the differences that wait for an earlier message.
        asked: the version at which the full reference was last requested; 0: it was not.
        holes: the gaps in the versions.
    """

    vector: Tensor
    version: int = 0
    mark: int = 0
    epoch: int = 0
    pending: tuple[Pending, ...] = ()
    asked: int = 0
    holes: tuple[Hole, ...] = ()


class Tally(NamedTuple):
    """The counts of references that went out of step because messages were lost.

    `gaps` counts differences that could not be decoded on arrival, `lost_w` is the weight of those differences that are
    lost for good, `resyncs` the full references sent and `resync_bytes` their bytes.
    """

    gaps: int = 0
    lost_w: float = 0.0
    resyncs: int = 0
    resync_bytes: int = 0

    def figures(self) -> dict[str, float]:
        """Return the counts as metrics, by their names in the record."""
        return {"reference_" + name: float(count) for name, count in self._asdict().items()}


class Heard(NamedTuple):
    """A node's copies of other nodes' references, and its requests for full references.

    `start` is the common first reference. `asks` are the nodes to ask in the next message, `owed` the nodes that asked
    this node.
    """

    start: Reference
    copies: Mapping[NodeId, Copy]
    asks: tuple[NodeId, ...] = ()
    owed: tuple[NodeId, ...] = ()
    tally: Tally = Tally()


class CopyStep(NamedTuple):
    """The result of applying one message to a copy of a reference.

    Attributes:
        copy: the new copy.
        came: the references that are now known, with the shares of their messages.
        lost_w: the push-sum weight that was lost for good.
        ask: whether the full reference must be requested.
    """

    copy: Copy
    came: tuple[DecodedReference, ...] = ()
    lost_w: float = 0.0
    ask: bool = False


def holding(copy: Copy, waiting: Pending) -> Copy:
    """Return the copy with one more waiting difference."""
    return copy._replace(pending=tuple(sorted((*copy.pending, waiting), key=lambda each: each.version)))


def catch_up(copy: Copy, kept: int) -> CopyStep:
    """Apply waiting differences up to the next missing one, and discard gaps that are too old.

    A waiting difference for the same version of an earlier life is lost.
    """
    came: list[DecodedReference] = []
    lost = 0.0
    waiting = [each for each in copy.pending if each.version > copy.version]
    behind = tuple(each for each in copy.pending if each.version <= copy.version)
    while waiting and waiting[0].version == copy.version + 1:
        first = waiting.pop(0)
        if not follows(copy, first.version, first.after):
            lost += first.share.w
            continue
        copy = copy._replace(vector=copy.vector + first.difference, version=first.version, mark=first.mark)
        came.append(DecodedReference(copy.vector, first.share))
    holes = tuple(hole for hole in copy.holes if copy.version <= hole.version + kept)
    lowest = min((hole.floor for hole in holes), default=copy.version)
    lost += weight_of(each for each in behind if each.version <= lowest)
    behind, copy = tuple(each for each in behind if each.version > lowest), copy._replace(holes=holes)
    return CopyStep(copy._replace(pending=(*behind, *waiting), asked=copy.asked if waiting else 0), tuple(came), lost)


def split(holes: Iterable[Hole], below: Hole) -> tuple[Hole, ...]:
    """Return the gaps of versions, with the gap that contains `below` split into the parts above and below it."""
    found: list[Hole] = []
    for hole in holes:
        spans = hole.floor <= below.version < hole.version
        found += [below._replace(floor=hole.floor), hole._replace(floor=below.version + 1)] if spans else [hole]
    return tuple(found)


def settle(copy: Copy) -> CopyStep:
    """Reconstruct skipped versions backward from gaps, h_(v-1) = h_v - C_v, until a difference is missing."""
    came: list[DecodedReference] = []
    waiting, holes = [*copy.pending], list[Hole]()
    for hole in copy.holes:
        at = hole
        while (last := next((each for each in waiting if (each.version, each.mark) == at[1:3]), None)) is not None:
            waiting = [each for each in waiting if each is not last]
            came.append(DecodedReference(at.vector, last.share))
            at = Hole(at.vector - last.difference, at.version - 1, last.after, at.floor)
        holes += [at] * (at.version > at.floor)
    return CopyStep(copy._replace(pending=tuple(waiting), holes=tuple(holes)), tuple(came))


def follows(copy: Copy, version: int, after: int) -> bool:
    """Return whether a difference from mark `after` to `version` starts at the copy's version and content."""
    return (version, after) == (copy.version + 1, copy.mark)


def weight_of(waiting: Iterable[Pending]) -> float:
    """Return the total push-sum weight in waiting differences."""
    return sum(each.share.w for each in waiting)
