"""The status of a running fleet, shown on the terminal and written to `fleet.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from netdfl.core.fates import MessageCounts
from netdfl.core.types import NodeId
from netdfl.record.plain_json import dump_json

_quote = lru_cache(maxsize=1024)(dump_json)


class Phase(StrEnum):
    """The state of a node's process; `ABSENT`: the node has yet to join."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    CRASHED = "crashed"
    DIED = "died"


AWAY = (Phase.ABSENT, Phase.CRASHED, Phase.DIED)
ENDED = (Phase.FINISHED, *AWAY)


@dataclass(slots=True)
class NodeStatus:
    """The status of one node. `round` is the last round that it began, `loss` its last training loss.

    `returns` is true while the node is down and scheduled to return.
    """

    node: NodeId
    pid: int | None = None
    address: str = ""
    round: int = 0
    phase: Phase = Phase.STARTING
    loss: float | None = None
    returns: bool = False

    def to_text(self) -> str:
        """Return the fields as a JSON object."""
        pid, loss = self.pid or "null", self.loss
        return (
            f'{{"node":{self.node},"pid":{pid},"address":{_quote(self.address)},"round":{self.round},'
            f'"phase":"{self.phase._value_}","loss":{"null" if loss is None or loss - loss else repr(float(loss))}}}'
        )


@dataclass(frozen=True, slots=True)
class EvaluationStatus:
    """The most recent evaluation of the average model.

    Attributes:
        round: the evaluated round.
        test_accuracy: the average model's share of correct answers on the test set; None: not measured.
        test_loss: the average model's loss on the test set.
        mean_local_accuracy: the mean of the test accuracies of the nodes' own models.
        consensus_distance: the distance of the nodes' models from their average.
    """

    round: int
    test_accuracy: float | None = None
    test_loss: float | None = None
    mean_local_accuracy: float | None = None
    consensus_distance: float | None = None


@dataclass(frozen=True, slots=True)
class WaitingStatus:
    """A node that has waited in `round`, since `since_s` seconds of the run, for messages of the nodes `awaited`.

    `awaited` is empty if these nodes are unknown.
    """

    node: NodeId
    round: int
    awaited: tuple[NodeId, ...]
    since_s: float


@dataclass(slots=True)
class FleetStatus:
    """The status of the whole fleet. The supervisor updates it; displays and `fleet.json` read it.

    Attributes:
        scenario: the scenario's name.
        world: the kind of environment in which the fleet runs, such as simulated.
        algorithm: the algorithm's name.
        rounds: the number of rounds of the run.
        nodes: the status of each node.
        elapsed_s: the seconds since the fleet's start; virtual time in a simulated fleet.
        evaluation: the last evaluation of the average model; None: there was none yet.
        bytes_sent: the bytes that all nodes have sent.
        messages: the counts of messages by how they ended.
        waiting: the few nodes known to have waited longest.
        wall_s: the seconds of the wall clock, which differ from `elapsed_s` where time is virtual.
    """

    scenario: str
    world: str
    algorithm: str
    rounds: int
    nodes: dict[NodeId, NodeStatus] = field(default_factory=dict)
    elapsed_s: float = 0.0
    evaluation: EvaluationStatus | None = None
    bytes_sent: int = 0
    messages: MessageCounts = field(default_factory=MessageCounts)
    waiting: list[WaitingStatus] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def running(self) -> list[NodeStatus]:
        """The nodes that have not ended: they still have rounds to run."""
        return [node for node in self.nodes.values() if node.phase not in ENDED]

    @property
    def slowest(self) -> NodeStatus | None:
        """The running node in the lowest round, with the lowest id among several; None if all have ended."""
        return min(self.running, key=lambda node: (node.round, node.node), default=None)

    @property
    def rounds_done(self) -> int:
        """The number of rounds that all remaining nodes have finished, including nodes that are due to return."""
        if self.slowest is not None:
            return min(node.round for node in self.nodes.values() if node.phase not in ENDED or node.returns)
        finished = any(node.phase is Phase.FINISHED for node in self.nodes.values())
        return self.rounds if finished else max((node.round for node in self.nodes.values()), default=0)

    @property
    def left_s(self) -> float | None:
        """The estimated seconds of real time to the end, at the pace so far; None before the first round."""
        done = self.rounds_done
        return self.wall_s / done * (self.rounds - done) if done else None

    def to_text(self) -> str:
        """Return the contents of `fleet.json`: the fields, numbers derived from them, and one line per node."""
        head = dump_json(self._head(), indent=1).removesuffix("\n}")
        rows = ",\n  ".join([self.nodes[node].to_text() for node in sorted(self.nodes)])
        return f'{head},\n "nodes": [\n  {rows}\n ]\n}}\n'

    def _head(self) -> dict[str, object]:
        """Return all entries of `fleet.json` except the nodes."""
        slowest, evaluation = self.slowest, self.evaluation
        return {
            "scenario": self.scenario,
            "world": self.world,
            "algorithm": self.algorithm,
            "rounds": self.rounds,
            "elapsed_s": self.elapsed_s,
            "evaluation": None if evaluation is None else asdict(evaluation),
            "bytes_sent": self.bytes_sent,
            "messages": asdict(self.messages),
            "rounds_done": self.rounds_done,
            "slowest": None if slowest is None else slowest.node,
            "left_s": self.left_s,
            "waiting": [asdict(each) for each in self.waiting],
        }


class Display(Protocol):
    """A view of a fleet while it runs, such as the terminal's."""

    def update(self, status: FleetStatus) -> None:
        """Show the current status. The call must be fast, and may come after every change."""

    def note(self, text: str) -> None:
        """Show a message once, above the status: a node died, a default was chosen."""
