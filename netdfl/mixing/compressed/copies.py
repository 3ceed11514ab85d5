"""The copies of senders' references (vectors known at both ends) at receivers, and differences that wait for others.

Each difference turns version v of a reference into version v + 1. A difference that follows the copy's version is added
at once. Any other difference waits: for the message before it, or for a later message that brings the reference in
full. From a full reference the receiver walks back through the waiting differences, version by version, and so their
push-sum shares can be added. Where another message is missing, the walk stops and leaves a hole (`Hole`), which that
message or a later full reference may close.

    versions   1   2   3   [4 lost]   5   6   7 in full
    copy       followed 1..3          5 and 6 wait
    at 7                              <- 6 <- 5 settled; a hole remains at 4 until it arrives

Relies on: marks (`references.py`), which are hashes of all differences in a version: a waiting difference belongs to
the walk only if its mark is the mark of the reference that the walk has reached.

Why: Push-sum shares are mass, so a difference that can't be added yet may not be thrown away, and a jump over a gap
must keep the reference on both sides of it. Waiting differences are bounded in number and in age, because a sender that
is gone for good never closes its gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torch import Tensor

from netdfl.core.types import NodeId


class Reference(NamedTuple):
    """A sender's reference vector, to which it sends compressed differences (x-hat of CHOCO-SGD).

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
    """A sender's reference vector at the time of one of its messages, and the push-sum share in that message."""

    vector: Tensor
    share: PushShare


class Pending(NamedTuple):
    """A compressed difference to a reference, which waits at its receiver until an earlier message can be decoded.

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
    """A gap of versions in a receiver's copy of a reference: messages lost before the reference was sent in full.

    Attributes:
        vector: the reference at the upper end of the gap, shape (d,).
        version: its version, the highest one whose push-sum share could not be added yet.
        mark: its mark.
        floor: the version that the copy had before the full reference, below the gap.
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
    """Counts of differences that a receiver could not decode at once, and of references sent in full to repair copies.

    Attributes:
        gaps: the differences that could not be decoded on arrival, as earlier ones were lost or late.
        lost_w: the push-sum weight in differences that are lost for good.
        resyncs: the references sent in full to repair a copy.
        resync_bytes: the bytes of these references.
    """

    gaps: int = 0
    lost_w: float = 0.0
    resyncs: int = 0
    resync_bytes: int = 0

    def figures(self) -> dict[str, float]:
        """Return the counts as metrics, by their names in the record."""
        return {"reference_" + name: float(count) for name, count in self._asdict().items()}


class Heard(NamedTuple):
    """A node's copies of other nodes' reference vectors (x-hat of CHOCO-SGD), and open requests for full references.

    Attributes:
        start: the reference vector from which all nodes begin.
        copies: this node's copy of each sender's reference.
        asks: the nodes that this node asks for their full reference in its next message.
        owed: the nodes that asked this node for its full reference.
        tally: the counts of differences that could not be decoded, and of references sent in full.
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
        came: the references that became known by this message, with their push-sum shares.
        lost_w: the push-sum weight that was lost for good.
        ask: whether the full reference must be requested.
    """

    copy: Copy
    came: tuple[DecodedReference, ...] = ()
    lost_w: float = 0.0
    ask: bool = False


def holding(copy: Copy, waiting: Pending) -> Copy:
    """Return the copy with one more difference, `waiting`, that waits for earlier ones, in the order of versions."""
    return copy._replace(pending=tuple(sorted((*copy.pending, waiting), key=lambda each: each.version)))


def catch_up(copy: Copy, kept: int) -> CopyStep:
    """Add to the copy the differences that waited, up to the next missing one; drop gaps more than `kept` versions old.

    A waiting difference of the next version is lost if its mark does not fit, because the sender has restarted.
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
    """Return the gaps of versions `holes`, of which the gap around the version of `below` is split in two.

    `below` is a reference within this gap that has become known.
    """
    found: list[Hole] = []
    for hole in holes:
        spans = hole.floor <= below.version < hole.version
        found += [below._replace(floor=hole.floor), hole._replace(floor=below.version + 1)] if spans else [hole]
    return tuple(found)


def settle(copy: Copy) -> CopyStep:
    """Decode waiting differences backward from each gap's upper end, h_(v-1) = h_v - C_v, until one is missing.

    Each reference that is found in this way makes the push-sum share of its difference usable.
    """
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
    """Return whether a difference from the reference with mark `after` to `version` can be added to the copy."""
    return (version, after) == (copy.version + 1, copy.mark)


def weight_of(waiting: Iterable[Pending]) -> float:
    """Return the total push-sum weight in differences that wait for earlier messages."""
    return sum(each.share.w for each in waiting)
