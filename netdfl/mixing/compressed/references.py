"""References: vectors that sender and receiver both keep (x-hat of CHOCO-SGD), so only compressed differences travel.

The sender of a stream of vectors x keeps a reference h, every receiver a copy of it. Version v is

    h_v = h_(v-1) + C(x_v - h_(v-1))

computed on both ends from the same bytes in the same order, so the copies agree bit for bit.

A mark, a hash over the start and all differences since, distinguishes a version from the same version by a sender that
restarted, from the beginning or from an older state. A difference carries the mark of the version that it follows, so a
lost difference is detected, by a gap in the versions or by another mark. The receiver then asks in its next message,
and the sender's next message carries h_(v-1) in full beside the difference. Until then, differences that can't be
decoded are kept if they are mass (push-sum), and settled backwards from the full reference, h_(v-2) = h_(v-1) -
C_(v-1), until another message is missing. If that message still arrives, late, the settling continues.

    in step ──a difference is lost──▶ apart ──asked for in the next message──▶ sent in full ──▶ in step

A lossless compressor needs no reference: the vector itself is sent.

A difference may be sent in several passes, C(d) + C(d - C(d)) + ..., where one pass would leave too large an error.

Relies on: arithmetic that is the same on both ends: each operation is rounded by itself, never fused with the next, and
each message is used once.

Why: Compressed vectors lose too much, compressed differences less and less. But both ends must hold the same reference
for ever, over lost messages, crashes and old states; a mark detects every way in which they can become different, while
a version number alone does not show that a sender has restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np
from torch import Tensor
from xxhash import xxh3_64

from netdfl.compression.arrays import as_vector, from_numpy, snapshot
from netdfl.compression.base import Compressor
from netdfl.core.errors import TrainingError
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Message, NodeId, Outbox, Payload, Scalar, View
from netdfl.core.whose import own_place
from netdfl.mixing.compressed.copies import (
    Copy,
    CopyStep,
    DecodedReference,
    Heard,
    Hole,
    Pending,
    PushShare,
    Reference,
    catch_up,
    follows,
    holding,
    settle,
    split,
    weight_of,
)
from netdfl.mixing.payloads import (
    CODE,
    MOST_PASSES,
    add_encoded,
    encoded_vector,
    followed,
    join_passes,
    mass,
    most_mass,
    natural,
    pack_encoded,
    some_nodes,
    unpack_encoded,
    vector,
)

FULL = "full"
KEPT, KEPT_SURE = 8, 64
UNKNOWN = -1


@dataclass(frozen=True, kw_only=True)
class Differences:
    """The encoding of vectors as compressed differences to references (vectors that both sender and receiver keep).

    With `common_start` all nodes start from the same vector, and references start there, too; otherwise they start from
    0. With `mass` a difference carries push-sum mass, so it is kept while it can't be decoded: at most `kept`
    differences of a sender, each until `kept` later differences have arrived. `KEPT_SURE` suits delivery in which every
    message arrives in the end, so that a late difference is never given up.
    """

    compressor: Compressor
    streams: Streams = field(default_factory=lambda: Streams(0))
    common_start: bool = False
    mass: bool = False
    kept: int = KEPT

    def first(self, x: Tensor) -> Heard:
        """Return a node's copies of other nodes' reference vectors before any message, given its first vector `x`."""
        start = x if self.common_start else x.new_zeros(x.shape)
        return Heard(Reference(start, 0, _mark(0, Payload({FULL: from_numpy(as_vector(start))}))), {})

    def lossless(self, dim: int) -> bool:
        """Return whether the compressor reproduces every vector of `dim` numbers exactly."""
        return self.compressor.variance(dim) == 0.0

    def send(
        self, reference: Reference, x: Tensor, view: View, step: int, to: NodeId | None = None, within: float = inf
    ) -> tuple[Reference, Payload]:
        """Move the reference toward `x`; return the new reference, and the compressed difference for the receivers.

        Where one pass of the compressor leaves the reference further than `within` from `x`, the remaining difference
        is compressed, too, as long as each pass at least halves it: at most `MOST_PASSES` passes.
        """
        version: dict[str, Scalar] = {"version": reference.version + 1}
        if self.lossless(x.numel()):
            return Reference(x.clone(), reference.version + 1), Payload({FULL: snapshot(x)}, version)
        code, moved = self._passes(reference.vector, x, within, view, step, () if to is None else (to,))
        mark = _mark(reference.mark, code)
        meta = {**code.meta, **version, "after": reference.mark, "mark": mark}
        return Reference(moved, reference.version + 1, mark), Payload(code.arrays, meta)

    def _passes(
        self, start: Tensor, x: Tensor, within: float, view: View, step: int, to: tuple[NodeId, ...]
    ) -> tuple[Payload, Tensor]:
        """Compress x - start, repeatedly until the rest is at most `within`, or a pass no longer halves it.

        Return the codes, and the vector that a receiver reaches from `start` by decoding them.
        """
        missing = x - start
        code = compress(self.compressor, missing, self.streams, view, step, *to)
        if within == inf:
            return code, add_encoded(code, self.compressor, start)
        said = unpack_encoded(code, self.compressor, missing)
        if (left := length(missing - said)) > length(missing) / 2:
            return code, start + said
        for nth in range(2, MOST_PASSES + 1):
            if left <= within:
                break
            more = compress(self.compressor, missing - said, self.streams, view, step, *to, number=nth)
            closer = said + unpack_encoded(more, self.compressor, missing, nth)
            before, left = left, length(missing - closer)
            if left > before / 2:
                break
            code, said = join_passes(code, more, nth), closer
        return code, start + said

    def receive(
        self, heard: Heard, inbox: Inbox, view: View
    ) -> tuple[Heard, dict[NodeId, tuple[DecodedReference, ...]]]:
        """Update the copies of senders' reference vectors, in `heard`, by the messages in `inbox`.

        Returns, for each sender, its reference at every message that can be decoded now, including earlier messages
        that had to wait.
        """
        copies, came = dict(heard.copies), dict[NodeId, tuple[DecodedReference, ...]]()
        asks, owed, tally = list(heard.asks), list(heard.owed), heard.tally
        for message in inbox:
            if view.node in some_nodes(message, "ask"):
                owed.append(message.src)
            if "version" not in message.payload.meta:
                continue
            known = copies.get(message.src) or Copy(*heard.start, message.epoch)
            step = self._follow(known, message, heard.start.vector, view)
            copies[message.src] = step.copy
            came[message.src] = (*came.get(message.src, ()), *step.came)
            tally = tally._replace(gaps=tally.gaps + (not step.came), lost_w=tally.lost_w + step.lost_w)
            asks += [message.src] * step.ask
        return Heard(heard.start, copies, _unique(asks), _unique(owed), tally), came

    def _follow(self, copy: Copy, message: Message, like: Tensor, view: View) -> CopyStep:
        version, share = natural(message, "version"), share_of(message, view)
        if FULL in message.payload.arrays:
            return self._full(copy, message, version, share, like)
        if message.epoch < copy.epoch:
            return CopyStep(copy, lost_w=share.w)
        after, mark = natural(message, "after"), natural(message, "mark")
        if follows(copy, version, after):
            moved = followed(message, self.compressor, copy.vector)
            step = catch_up(copy._replace(vector=moved, version=version, mark=mark, epoch=message.epoch), self.kept)
            return step._replace(came=(DecodedReference(moved, share), *step.came))
        waiting = Pending(version, after, mark, encoded_vector(message, self.compressor, like), share)
        if message.epoch == copy.epoch and version <= copy.version:
            return settle(holding(copy, waiting)) if copy.holes else CopyStep(copy, lost_w=share.w)
        return self._wait(copy, message.epoch, waiting)

    def _wait(self, copy: Copy, epoch: int, waiting: Pending) -> CopyStep:
        """Store a difference that can't be added to the copy yet; request the full reference, or repeat the request."""
        gone = 0.0
        if epoch != copy.epoch:
            gone = weight_of(copy.pending)
            copy = Copy(copy.vector, UNKNOWN, epoch=epoch)
        ask = not copy.asked or waiting.version >= copy.asked + 2
        copy = copy._replace(asked=waiting.version if ask else copy.asked)
        if not self.mass:
            return CopyStep(copy, ask=ask)
        kept = holding(copy, waiting)
        dropped = max(0, len(kept.pending) - self.kept)
        gone += weight_of(kept.pending[:dropped])
        return CopyStep(kept._replace(pending=kept.pending[dropped:]), lost_w=gone, ask=ask)

    def _full(self, copy: Copy, message: Message, version: int, share: PushShare, like: Tensor) -> CopyStep:
        base = vector(message, like, FULL)
        newer = (message.epoch, version) > (copy.epoch, copy.version)
        if self.lossless(like.numel()):
            return CopyStep(
                Copy(base.clone(), version, epoch=message.epoch) if newer else copy, (DecodedReference(base, share),)
            )
        now = followed(message, self.compressor, base)
        same = message.epoch == copy.epoch
        below = Hole(base, version - 1, natural(message, "after"), max(copy.version, 0) if same else 0)
        if not newer:
            late = settle(copy._replace(holes=split(copy.holes, below))) if same else CopyStep(copy)
            return late._replace(came=(DecodedReference(now, share), *late.came))
        pending, holes = (copy.pending, copy.holes) if same else ((), ())
        holes = (*holes, *(below,) * self.mass)
        back = settle(Copy(now, version, natural(message, "mark"), message.epoch, pending, holes=holes))
        after = catch_up(back.copy, self.kept)
        lost = weight_of(copy.pending) - weight_of(pending) + after.lost_w
        return CopyStep(after.copy, (*back.came, DecodedReference(now, share), *after.came), lost)


def _mark(after: int, said: Payload) -> int:
    """Return the mark of the next version: a hash of the mark before it, `after`, and of its difference, `said`."""
    digest = xxh3_64(seed=after)
    for name, array in sorted(said.arrays.items()):
        digest.update(name.encode())
        digest.update(array.data)
    digest.update(repr(sorted(said.meta.items())).encode())
    return 1 + (digest.intdigest() >> 1)


def compress(
    compressor: Compressor,
    x: Tensor,
    streams: Streams,
    view: View,
    step: int,
    *to: NodeId,
    number: int = 1,
    of: str = CODE,
) -> Payload:
    """Return C(x), with random numbers that depend on node, round, step, pass `number` and the receiver `to`, if any.

    Raises TrainingError where a number is NaN or infinite. What else a user's compressor raises passes.
    """
    key = (view.node, view.round, step, *to, *((number,) if number > 1 else ()))
    try:
        return pack_encoded(compressor.compress(x, streams.rng("compress", *key)), number, of)
    except ValueError as error:
        if own_place(error) and np.isfinite(as_vector(x)).all():
            raise
        raise TrainingError(f"can't compress: {error}") from error


def length(x: Tensor) -> float:
    """Return the norm |x|, bit for bit the same on any number of threads."""
    vector = as_vector(x)
    return float(np.sqrt(np.einsum("i,i->", vector, vector)))


def address(
    heard: Heard, before: Reference, code: Payload, meta: Mapping[str, Scalar], to: Iterable[NodeId]
) -> tuple[Heard, Outbox]:
    """Send the compressed difference `code` with `meta` to each node in `to`, with `before` in full if it asked.

    `before` is the reference vector before the difference. Equal messages are one payload. All list the nodes that this
    node asks for a full reference; `ask_others` sends to asked nodes that are not in `to`.
    """
    to = tuple(to)
    meta = {**code.meta, **meta, **({"ask": list(heard.asks)} if heard.asks else {})}
    outbox = dict.fromkeys(to, Payload(code.arrays, meta))
    wanting = [j for j in to if j in heard.owed and FULL not in code.arrays]
    if wanting:
        whole = Payload({FULL: snapshot(before.vector), **code.arrays}, meta)
        outbox |= dict.fromkeys(wanting, whole)
    tally = heard.tally
    cost = tally.resync_bytes + len(wanting) * before.vector.nbytes
    tally = tally._replace(resyncs=tally.resyncs + len(wanting), resync_bytes=cost)
    return heard._replace(owed=tuple(j for j in heard.owed if j not in to), tally=tally), outbox


def ask_others(heard: Heard, outbox: Outbox) -> tuple[Heard, Outbox]:
    """Add a message to every node that must be asked for its full reference vector and gets no other message."""
    others = {j: Payload(meta={"ask": [j]}) for j in heard.asks if j not in outbox}
    return heard._replace(asks=()), {**outbox, **others}


def share_of(message: Message, view: View) -> PushShare:
    """Return the push-sum share in a message. Raises MalformedMessage."""
    meta, most = message.payload.meta, most_mass(view)
    x = mass(message, "share", most) if "share" in meta else 1.0
    return PushShare(x, mass(message, "w", most) if "w" in meta else 0.0)


def _unique(nodes: Iterable[NodeId]) -> tuple[NodeId, ...]:
    return tuple(sorted(set(nodes)))
