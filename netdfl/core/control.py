"""The messages between a fleet's supervisor and its nodes: orders go down, reports come up.

Plain typed values, matched with `match`. Only `netdfl.transport.control.codec` knows their form on a wire, where a
class and its protobuf message have the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from netdfl.core.fates import MessageCounts
from netdfl.core.types import Kind, LogicalId, NodeId, PeerMessage, Scalar, StepId

EVALUATOR = -1
"""The number that stands for the evaluator, a process that evaluates models, where a node's number is expected."""


# orders


@dataclass(frozen=True, slots=True)
class Peers:
    """The order with which the supervisor gives a node the network addresses of other nodes."""

    addresses: Mapping[NodeId, str]


@dataclass(frozen=True, slots=True)
class Start:
    """The order to begin round 0 at a reading of the machine's monotonic clock, which becomes the fleet's time 0.

    A node that returns with its state first repeats the round in which it crashed, then continues in round `catch_up`;
    with 0, in the next round. `without` gives, for some nodes, the last round that they began without this node, and so
    sent it nothing.
    """

    start_ns: int
    catch_up: int = 0
    without: Mapping[NodeId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gone:
    """The order to stop waiting for a node that is gone, after a crash, say, until it returns."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Returned:
    """The order to expect messages of a returned node again; `epoch` is the number of its restarts.

    A node that joins late sends no messages of rounds before `first`.
    """

    node: NodeId
    address: str
    epoch: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class Evaluate:
    """The order to evaluate the models that these nodes saved in one round."""

    round: int
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The order to a node to stop in good order within `grace_s` seconds."""

    reason: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class Probe:
    """The order to report the node's current waits and message counts."""

    id: int


@dataclass(frozen=True, slots=True)
class Again:
    """One message that a node should repeat: its receiver, and its round, step and kind."""

    dst: NodeId
    round: int
    step: int
    kind: Kind

    @property
    def sent(self) -> PeerMessage:
        """The message to repeat, as its sender stores it: its receiver and its identity (kind, round, step)."""
        return self.dst, LogicalId(self.kind, StepId(self.round, self.step))


@dataclass(frozen=True, slots=True)
class Recover:
    """The order to continue after a stall.

    The node stops waiting for the nodes of `skip` in its present wait, and sends the messages of `again` once more.
    """

    skip: tuple[NodeId, ...] = ()
    again: tuple[Again, ...] = ()


# lives


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """The way in which a node starts after a crash: with its state from the end of a round, or without a state.

    Its first round is `at_least` or later. Without a state it has the push-sum weight `weight`.
    """

    keep_state: bool
    round: int
    at_least: int = 0
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Life:
    """One run of a node's process, from its start to its end: the number of restarts before, and how it rejoins.

    `rejoin` is None in the first run.
    """

    epoch: int = 0
    rejoin: Rejoin | None = None


LOST = -1
"""The exit code that stands for a node that was lost although its process did not end, as with its machine."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a node's process without an order to end: its exit code or signal, and its last output (`words`).

    `epoch` counts the node's restarts before. `lost` names a cause other than the end of the process, such as a lost
    machine; code (`LOST`) and signal mean nothing then. A program outside may restart the node within `within_ns` ns.
    """

    epoch: int
    code: int
    signal: str | None = None
    words: str = ""
    lost: str = ""
    within_ns: int | None = None

    @property
    def reason(self) -> str:
        """The reason for the end: a cause outside the node, else the signal or the exit code."""
        return self.lost or self.signal or f"exit code {self.code}"


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The answer to a node's request `number` for the supervisor's clock, which showed `at_ns` (monotonic, in ns)."""

    number: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class CoreRate:
    """A rate of a node's messages to one receiver over core links (shared links of the emulated network).

    Attributes:
        dst: the receiver.
        rate_bps: the rate in bit/s; -1: there is no message.
        since_ns: the fleet's time since when this holds.
    """

    dst: NodeId
    rate_bps: int
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class CoreRates:
    """The order to a node to limit its messages over core links (shared links of the emulated network) to these rates.

    Attributes:
        rates: the largest rates, for receivers whose rates have changed; of several rates of one receiver, each holds
            until the next.
        answers: whether this answers the node's last report of its messages on core links (`CoreFlows`).
    """

    rates: tuple[CoreRate, ...] = ()
    answers: bool = False


Order: TypeAlias = Peers | Start | Gone | Returned | Evaluate | Stop | Probe | Recover | ClockReading | CoreRates


# reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The introduction of a node or of the evaluator, which is always its first report.

    Attributes:
        node: the node's number; -1 is the evaluator.
        role: `client`, `server` or `evaluator`.
        pid: the id of its process.
        address: the address at which it listens, `host:port`.
        scenario_hash: the hash of its scenario.
        protocol_version: the version of the protocol that it speaks.
        epoch: the number of the node's restarts; 0 at its first start.
        versions: the versions of its software where they may differ from the supervisor's.
    """

    node: NodeId
    role: str
    pid: int = 0
    address: str = ""
    scenario_hash: str = ""
    protocol_version: int = 0
    epoch: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Progress:
    """The report of a node's current round; `ended` after its last one. Counters count from the node's start.

    Treat it as immutable. It is not frozen because each node makes one every round, and a frozen one takes seven times
    as long to make.
    """

    round: int
    ended: bool = False
    train_loss: float | None = None
    at_ns: int = 0
    bytes_sent: int = 0
    messages: MessageCounts = field(default_factory=MessageCounts)


@dataclass(frozen=True, slots=True)
class ModelSaved:
    """A node's report that its model of a round has reached the evaluator, the process that measures accuracy."""

    round: int


ENDINGS = frozenset({"training_error", "failed"})
"""The kinds of events that a node reports to the supervisor; the node keeps all others only in its own record."""


@dataclass(frozen=True, slots=True)
class Happened:
    """The report of an event that ends a node, one of `ENDINGS`, with the fields of the run's record.

    `details` has the event's `reason`.
    """

    at_ns: int
    round: int
    kind: str
    details: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broke:
    """The report that a node failed for a reason outside the scenario, such as a full disk; it ends the run."""

    at_ns: int
    round: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """The report that a node crashes now, as entry `source` of the scenario's events demands.

    `at_round` is the entry's round, None for an entry at a time. `state` tells whether the node's state is kept or lost
    when it restarts; `weight` is the push-sum weight that is lost with it.
    """

    at_ns: int
    round: int
    source: int
    at_round: int | None
    state: str
    weight: float | None = None

    def details(self) -> dict[str, Scalar]:
        """Return the details of the crash for the record."""
        weight = {} if self.weight is None else {"weight": self.weight}
        return {"state": self.state, "source": self.source, "at_round": self.at_round, **weight}


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The evaluator's report of one round's metrics; the key `test_accuracy@3` is for the model of node 3 only."""

    round: int
    figures: Mapping[str, float]


def of_node(name: str, node: NodeId) -> str:
    """Return the key for the metric `name` of one node's model among a round's metrics, such as `test_accuracy@3`."""
    return f"{name}@{node}"


def split_figure(name: str) -> tuple[str, NodeId | None]:
    """Split the key of a metric, such as `test_accuracy@3`, into its name and the node (None: the whole fleet)."""
    plain, at, node = name.partition("@")
    return plain, int(node) if at and node.isdecimal() else None


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """A node's answer to the order to report its waits and messages, with the fields of `netdfl.diagnosis.account`."""

    id: int
    account: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Bye:
    """A node's last report before its process ends: `done`, or the reason for ending early."""

    reason: str


@dataclass(frozen=True, slots=True)
class AskClock:
    """A node's request for the reading of the supervisor's clock, because the node's machine has a different clock."""

    number: int


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file from a node that shares no disk with the supervisor: `data` starts at byte `offset`.

    `path` is relative to the run directory. A file that `grows` may be read at any time; any other appears whole, after
    its `last` part.
    """

    path: str
    offset: int
    data: bytes
    grows: bool
    last: bool = False


@dataclass(frozen=True, slots=True)
class CoreFlows:
    """The report of a node's messages that cross core links (shared links of the emulated network) now.

    Nodes send it where each one emulates its own links.

    Attributes:
        offers: for each receiver with a change, the rate that the message would get if no core link limited it. A rate
            of -1 (no message) may hold from a later time on, if the node crashed while its message is under way.
    """

    offers: tuple[CoreRate, ...]


Report: TypeAlias = (
    Hello
    | Progress
    | ModelSaved
    | Happened
    | Broke
    | Crashed
    | Evaluated
    | ProbeReply
    | Bye
    | AskClock
    | FilePart
    | CoreFlows
)
