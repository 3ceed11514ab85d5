"""The record of an explored run in memory: the rows of its tables of messages, metrics, events and waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from typing_extensions import override

from netdfl.core.fates import FATE_TEXTS
from netdfl.core.outcome import Outcome
from netdfl.core.types import Kind, NodeId, Payload, Scalar
from netdfl.record.base import Store, WaitRecord


class MessageRow(NamedTuple):
    """A message, with its `fate` (delivered, or why not). Times are ns; `arrived_ns` is None if it never arrived."""

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


class MetricRow(NamedTuple):
    """A metric's value in a round, of one node or, if `node` is None, of the whole fleet."""

    at_ns: int
    node: NodeId | None
    round: int
    name: str
    value: float


class EventRow(NamedTuple):
    """A recorded event, such as a crash, of one node or, if `node` is None, of the whole fleet."""

    at_ns: int
    node: NodeId | None
    round: int
    kind: str
    details: Mapping[str, Scalar]


class MemoryStore(Store):
    """A store that keeps all rows in memory, in order."""

    def __init__(self) -> None:
        """Start with no rows."""
        self.messages: list[MessageRow] = []
        self.measured: list[MetricRow] = []
        self.events: list[EventRow] = []
        self.waits: list[WaitRecord] = []

    def outcome(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Add a row for each message in `outcome`, which is one fate of messages sent to several receivers together."""
        edges, (kind, epoch, (round, step), _, attempt), nbytes, sent_ns, arrived_ns, fate = outcome
        text = FATE_TEXTS[fate]
        self.messages += [
            MessageRow(src, dst, kind, epoch, round, step, attempt, nbytes, sent_ns, arrived_ns, text)
            for src, dst in edges
        ]

    @override
    def metrics(self, at_ns: int, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        self.measured += [MetricRow(at_ns, node, round, name, float(value)) for name, value in figures.items()]

    @override
    def event(self, at_ns: int, node: NodeId | None, round: int, kind: str, **details: Scalar) -> None:
        self.events.append(EventRow(at_ns, node, round, kind, details))

    @override
    def wait(self, waited: WaitRecord) -> None:
        self.waits.append(waited)

    def flush(self) -> None:
        """Do nothing, because rows are in memory already."""

    def close(self) -> None:
        """Do nothing, because the rows stay in memory."""
