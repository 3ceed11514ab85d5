"""What an explored run records: the rows of the store's four tables, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netdfl.core.fates import FATE_TEXTS
from netdfl.core.outcome import Outcome
from netdfl.core.types import Kind, NodeId, Payload, Scalar
from netdfl.record.base import Waited


class Sent(NamedTuple):
    """A message and the text of its fate; times in nanoseconds, `arrived_ns` is None where it never arrived."""

    src: NodeId
    dst: NodeId
    kind: Kind
    epoch: int
    round: int
    step: int
    attempt: int
    nbytes: int
    sent_ns: int
    arrived_ns: int | None
    fate: str


class Measured(NamedTuple):
    """A number of a round; no `node` is the fleet."""

    at_ns: int
    node: NodeId | None
    round: int
    name: str
    value: float


class Noted(NamedTuple):
    """Something that happened to a node, or to the fleet."""

    at_ns: int
    node: NodeId | None
    round: int
    kind: str
    details: Mapping[str, Scalar]


class Rows:
    """A `Store` that keeps all rows as they come."""

    def __init__(self) -> None:
        """Begin with none."""
        self.messages: list[Sent] = []
        self.measured: list[Measured] = []
        self.events: list[Noted] = []
        self.waits: list[Waited] = []

    def outcome(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Keep a row for each message."""
        edges, (kind, epoch, (round, step), _, attempt), nbytes, sent_ns, arrived_ns, fate = outcome
        text = FATE_TEXTS[fate]
        self.messages += [
            Sent(src, dst, kind, epoch, round, step, attempt, nbytes, sent_ns, arrived_ns, text) for src, dst in edges
        ]

    def metrics(self, at_ns: int, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        """See `Recorder`."""
        self.measured += [Measured(at_ns, node, round, name, float(value)) for name, value in figures.items()]

    def event(self, at_ns: int, node: NodeId | None, round: int, kind: str, **details: Scalar) -> None:
        """See `Recorder`."""
        self.events.append(Noted(at_ns, node, round, kind, details))

    def wait(self, waited: Waited) -> None:
        """See `Recorder`."""
        self.waits.append(waited)

    def flush(self) -> None:
        """Rows are kept as they come."""

    def close(self) -> None:
        """Rows stay."""
