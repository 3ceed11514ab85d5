"""The interfaces through which nodes, links and the fleet record a run.

Relies on: nothing: nodes, transports and the counters of a node's messages know these protocols, and not the files
behind them.

Why: The same node records into files of its own, or into files and event log of a simulated fleet. Messages come as
`Outcome` objects, each for many messages at once, because a call for each message was much of its cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from netdfl.core.outcome import Outcome
from netdfl.core.types import Kind, NodeId, Payload, Scalar


class WaitEnd(StrEnum):
    """How a wait for messages ended. The values are stored in the record."""

    CAME = "came"
    DEADLINE = "deadline"
    GONE = "gone"
    LOST = "lost"
    SKIPPED = "skipped"


class WaitRecord(NamedTuple):
    """A wait of a node that took time, for messages of `kind` in one round and step.

    Attributes:
        node: the waiting node.
        round: the round.
        step: the step.
        kind: the kind of the awaited messages.
        since_ns: when the wait began.
        until_ns: when the wait ended.
        deadline_ns: the most time that the wait could take; None: no limit, or the awaited nodes' answers set one.
        ended: `came`: enough messages arrived; `deadline`: time ran out or nobody answered; `gone`: every missing node
            counts as gone; `lost`: a later message or an answer showed that a message was lost; `skipped`: the
            scenario's `wait.on_stall: skip` ended a stall.
        last_src: the sender of the last message that arrived; None: no message did.
        missing: the awaited nodes whose message did not arrive.
    """

    node: NodeId
    round: int
    step: int
    kind: Kind
    since_ns: int
    until_ns: int
    deadline_ns: int | None
    ended: WaitEnd
    last_src: NodeId | None
    missing: tuple[NodeId, ...]


class Recorder(Protocol):
    """The interface for recording a run's rows. Calls are synchronous, buffered and fast: about a microsecond.

    Times are the clock's nanoseconds; the store holds seconds. `node` is None for the fleet.
    """

    def outcome(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Record how messages ended, such as delivered or lost.

        `payloads` has their contents, in the order of `outcome.edges`.
        """

    def metrics(self, at_ns: int, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        """Record metrics of one round by name, in `figures`: `train_loss`, `round_s`, `weight`, `test_accuracy`, ...

        The caller must not change `figures` afterwards.
        """

    def event(self, at_ns: int, node: NodeId | None, round: int, kind: str, **details: Scalar) -> None:
        """Record an event: `round_begin`, `crash`, `missing`, `gone`, `refused`, ..."""

    def wait(self, waited: WaitRecord) -> None:
        """Record a node's wait, which has ended."""

    def flush(self) -> None:
        """Make all rows so far durable and readable by other processes. Each row is written whole."""


class Store(Recorder, Protocol):
    """A recorder that keeps its rows in files until it is closed."""

    def close(self) -> None:
        """Write the last rows and close the files. Raises RunError if they can't be written."""
