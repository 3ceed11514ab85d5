"""What the one who looks after a fleet and its nodes say to each other: orders go down, reports come up.

Plain typed values, matched with `match`. How they cross a wire is `netdfl.transport.control.codec`'s affair alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from netdfl.core.fates import MessageCounts
from netdfl.core.types import Kind, LogicalId, NodeId, PeerMessage, Scalar, StepId

EVALUATOR = -1
"""The number under which the evaluator attends: it judges models, and is no node."""


# orders


@dataclass(frozen=True, slots=True)
class Peers:
    """Where the data plane of each node listens."""

    addresses: Mapping[NodeId, str]


@dataclass(frozen=True, slots=True)
class Start:
    """Begin round 0 at this reading of the machine's monotonic clock, from which the fleet's time counts.

    A node that returns with its state goes on in round `catch_up` once it has made anew the one in which it crashed;
    0: in the next. Each node in `without` began its rounds up to that one without it, and sends it nothing for them.
    """

    start_ns: int
    catch_up: int = 0
    without: Mapping[NodeId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gone:
    """A node will not answer any more."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A node that was gone answers again, in life `epoch`."""

    node: NodeId
    address: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Judge the models of one round that these nodes handed over."""

    round: int
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End in good order within the grace."""

    reason: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class Probe:
    """Say what the node waits for, and its message counts."""

    id: int


@dataclass(frozen=True, slots=True)
class Again:
    """One message that the node has sent before."""

    dst: NodeId
    round: int
    step: int
    kind: Kind

    @property
    def sent(self) -> PeerMessage:
        """The message, as the node knows it."""
        return self.dst, LogicalId(self.kind, StepId(self.round, self.step))


@dataclass(frozen=True, slots=True)
class Recover:
    """Go on after a stall: wait no more for the nodes of `skip` in the present wait, send these messages once more."""

    skip: tuple[NodeId, ...] = ()
    again: tuple[Again, ...] = ()


# lives


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """How a later life of a node begins: with the state of its last round's end, or without any in `round`.

    It begins in no round before `at_least`. Without its state it has the push-sum weight `weight`.
    """

    keep_state: bool
    round: int
    at_least: int = 0
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a node: how often it was started again, and how it rejoins; None in its first."""

    epoch: int = 0
    rejoin: Rejoin | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How life `epoch` of a node ended, other than by an order: its exit code or its signal, and its last words.

    `lost` says what took it along, its machine for one; then there is neither, and who started it may give it another
    life `within_ns`.
    """

    epoch: int
    code: int
    signal: str | None = None
    words: str = ""
    lost: str = ""
    within_ns: int | None = None

    @property
    def reason(self) -> str:
        """What took it along, the signal, or the exit code."""
        return self.lost or self.signal or f"exit code {self.code}"


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The supervisor's monotonic clock stood at `at_ns` when it was asked for the time `number`."""

    number: int
    at_ns: int


Order: TypeAlias = Peers | Start | Gone | Returned | Evaluate | Stop | Probe | Recover | ClockReading


# reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Who attends: always the first report. `role` is `client`, `server` or `evaluator`.

    `versions` are what it runs on, where that may be something else than the supervisor does.
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
    """Where a node stands; `ended` once it has no round before it. Counters count from its start.

    Nobody changes it. It is not frozen, as each node makes one every round, and that takes seven times as long.
    """

    round: int
    ended: bool = False
    train_loss: float | None = None
    at_ns: int = 0
    bytes_sent: int = 0
    messages: MessageCounts = field(default_factory=MessageCounts)


@dataclass(frozen=True, slots=True)
class ModelSaved:
    """The model of a round is where the evaluator finds it."""

    round: int


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that happened to a node, as it is recorded."""

    at_ns: int
    round: int
    kind: str
    details: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broke:
    """A node can't go on for a reason outside the scenario, and the run with it: a full disk, say."""

    at_ns: int
    round: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """A node crashes now, by entry `source` of the scenario's events, of round `at_round` where it goes by rounds.

    `state` is what it finds when it lives again, `weight` the push-sum weight that is lost where it finds none.
    """

    at_ns: int
    round: int
    source: int
    at_round: int | None
    state: str
    weight: float | None = None

    def details(self) -> dict[str, Scalar]:
        """What the record says of it."""
        weight = {} if self.weight is None else {"weight": self.weight}
        return {"state": self.state, "source": self.source, "at_round": self.at_round, **weight}


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The figures of one round; `test_accuracy@3` is what the model of node 3 alone came to."""

    round: int
    figures: Mapping[str, float]


def of_node(name: str, node: NodeId) -> str:
    """How a figure of the model of `node` alone is called among those of a round."""
    return f"{name}@{node}"


def split_figure(name: str) -> tuple[str, NodeId | None]:
    """The name of a figure of a round, and whose it is: None for the fleet's."""
    plain, at, node = name.partition("@")
    return plain, int(node) if at and node.isdecimal() else None


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """The answer to a probe: an account of the node, as `netdfl.diagnosis.account` writes it."""

    id: int
    account: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Bye:
    """The last report of one that leaves by itself: `done`, or why it could not go on."""

    reason: str


@dataclass(frozen=True, slots=True)
class AskClock:
    """What does the supervisor's clock say? For a node whose machine has a clock of its own."""

    number: int


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file of a node that shares no disk with the supervisor: `data` from byte `offset` on.

    `path` is relative to the run directory. A file that `grows` may be read at any time; any other appears whole, when
    its `last` part has come.
    """

    path: str
    offset: int
    data: bytes
    grows: bool
    last: bool = False


Report: TypeAlias = (
    Hello | Progress | ModelSaved | Happened | Broke | Crashed | Evaluated | ProbeReply | Bye | AskClock | FilePart
)
