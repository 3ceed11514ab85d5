"""The outcome of messages (how and when they ended): one value for the nodes' counters, the event log and the store.

Relies on: the rule in a large fleet: messages of one multicast mostly end alike, at few instants, and differ only in
their edges.

Why: If each layer kept outcomes in a form of its own, each would have to find the batch of equal outcomes and undo it
for the next layer. With one value a batch stays a batch from the network to the file. It has no contents, because rows
are kept long after payloads should be freed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from netdfl.core.fates import Fate
from netdfl.core.types import Edge, Message, MessageId, as_message_id, as_step


class Outcome(NamedTuple):
    """How and when messages on several `edges` ended, with the same times and `fate` (such as delivered) for all.

    Times are the clock's nanoseconds; `arrived_ns` is None for messages that never arrived. The contents are left out,
    so that they need not stay in memory for a row.
    """

    edges: Sequence[Edge]
    id: MessageId
    nbytes: int
    sent_ns: int
    arrived_ns: int | None
    fate: Fate


as_outcome: Callable[[tuple[Sequence[Edge], MessageId, int, int, int | None, Fate]], Outcome] = partial(
    tuple.__new__, Outcome
)
"""Create an `Outcome` from its fields, faster than by the Python call of a named tuple."""


def outcome_of(message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: Fate) -> Outcome:
    """Return the outcome of a single message: its size, times, and how it ended (`fate`)."""
    src, dst, kind, incarnation, round, step, attempt, _ = message
    id = as_message_id((kind, incarnation, as_step((round, step)), 0, attempt))
    return as_outcome((((src, dst),), id, nbytes, sent_ns, arrived_ns, fate))
