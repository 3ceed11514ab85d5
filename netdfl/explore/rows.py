"""What an explored run records: the rows of the store's four tables, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from netdfl.core.fates import FATE_TEXTS, Fate
from netdfl.core.types import Kind, Message, NodeId, Scalar
from netdfl.record.base import Alike, MessageRow, Waited


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

    def message(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: Fate) -> None:
        """See `Recorder`."""
        self.messages.append(Sent(*message[:7], nbytes, sent_ns, arrived_ns, FATE_TEXTS[fate]))

    def row(self, row: MessageRow) -> None:
        """See `Store`."""
        self.messages.append(Sent(*row[0], *row[1:4], FATE_TEXTS[row[4]]))

    def alike(self, messages: Alike) -> None:
        """See `Store`."""
        of, ends = messages.of, (*messages[2:5], messages.fate.text)
        self.messages += [Sent(src, dst, *of, *ends) for src, dst in messages.edges]

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
