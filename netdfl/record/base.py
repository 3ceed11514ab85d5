"""What is recorded, and through what: one narrow interface for nodes, links and the fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from netdfl.core.outcome import Outcome
from netdfl.core.types import Kind, NodeId, Payload, Scalar


class Ended(StrEnum):
    """How a wait ended."""

    CAME = "came"
    DEADLINE = "deadline"
    GONE = "gone"
    LOST = "lost"


class Waited(NamedTuple):
    """A wait of a node that took time: for messages of `kind`, in a round and step, from `since_ns` to `until_ns`.

    `deadline_ns` is how long it would have lasted at most, None: without end, or as long as those that were asked say.
    It ended because what suffices had `came`, at the `deadline` (or as nobody answered), because who was missing is
    `gone`, or because a later message or an answer told that one was `lost`.
    `last_src` sent what came last, `missing` are those whose messages were awaited and had not come.
    """

    node: NodeId
    round: int
    step: int
    kind: Kind
    since_ns: int
    until_ns: int
    deadline_ns: int | None
    ended: Ended
    last_src: NodeId | None
    missing: tuple[NodeId, ...]


class Recorder(Protocol):
    """Takes rows. Synchronous, buffered, cheap: a call costs about a microsecond and never blocks.

    Times are the clock's nanoseconds; the store holds seconds. `node` is None for the fleet.
    """

    def outcome(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Take the fate of messages, and the contents of each in the order of their edges."""

    def metrics(self, at_ns: int, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        """Numbers of one round by name: `train_loss`, `round_s`, `weight`, `test_accuracy`, ...

        Nobody changes `figures` any more.
        """

    def event(self, at_ns: int, node: NodeId | None, round: int, kind: str, **details: Scalar) -> None:
        """Something that happened: `round_begin`, `crash`, `missing`, `gone`, `refused`, ..."""

    def wait(self, waited: Waited) -> None:
        """A wait that is over."""

    def flush(self) -> None:
        """Make everything taken so far durable and readable by others, in whole rows."""


class Store(Recorder, Protocol):
    """A recorder that keeps what it takes."""

    def close(self) -> None:
        """Nothing more will come. Raises RunError where what came can't be kept."""
