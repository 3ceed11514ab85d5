"""What is recorded, and through what: one narrow interface for nodes, links and the fleet."""

from __future__ import annotations

from typing import Protocol

from netdfl.core.types import Message, NodeId, Scalar


class Recorder(Protocol):
    """Takes rows. Synchronous, buffered, cheap: a call costs about a microsecond and never blocks.

    Times are the clock's nanoseconds; the store holds seconds. `node` is None for the fleet.
    """

    def message(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: str) -> None:
        """One message and its fate (`delivered`, `late`, `dropped:loss`, `failed:unavailable`, ...)."""
        ...

    def metric(self, at_ns: int, node: NodeId | None, round: int, name: str, value: float) -> None:
        """One number of one round: `train_loss`, `round_s`, `weight`, `test_accuracy`, ..."""
        ...

    def event(self, at_ns: int, node: NodeId | None, round: int, kind: str, **details: Scalar) -> None:
        """Something that happened: `round_begin`, `crash`, `missing`, `gone`, `refused`, ..."""
        ...

    def flush(self) -> None:
        """Make everything taken so far durable and readable by others, in whole rows."""
        ...
