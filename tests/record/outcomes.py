"""Outcomes of single messages, for tests that write records by hand."""

from __future__ import annotations

from netdfl.core.fates import Fate
from netdfl.core.outcome import Outcome
from netdfl.core.types import Message


def outcome_of(message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: Fate) -> Outcome:
    """Say what became of one message."""
    return Outcome(((message.src, message.dst),), message.id, nbytes, sent_ns, arrived_ns, fate)
