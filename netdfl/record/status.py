"""What the supervisor knows of a fleet while it runs: shown on the terminal and written to `fleet.json`."""

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
    """How far a node's process is."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    CRASHED = "crashed"
    DIED = "died"


ENDED = (Phase.FINISHED, Phase.CRASHED, Phase.DIED)


@dataclass(slots=True)
class NodeStatus:
    """One node: `round` is the last that it began, `loss` its last train loss; `returns`: it is down and due back."""

    node: NodeId
    pid: int | None = None
    address: str = ""
    round: int = 0
    phase: Phase = Phase.STARTING
    loss: float | None = None
    returns: bool = False

    def to_text(self) -> str:
        """The fields as an object of JSON."""
        pid, loss = self.pid or "null", self.loss
        return (
            f'{{"node":{self.node},"pid":{pid},"address":{_quote(self.address)},"round":{self.round},'
            f'"phase":"{self.phase._value_}","loss":{"null" if loss is None or loss - loss else repr(float(loss))}}}'
        )


@dataclass(frozen=True, slots=True)
class EvaluationStatus:
    """The last evaluation of the average model."""

    round: int
    test_accuracy: float | None = None
    test_loss: float | None = None
    mean_local_accuracy: float | None = None
    consensus_distance: float | None = None


@dataclass(frozen=True, slots=True)
class WaitingStatus:
    """A node that waits in `round` since `since_s` for those `awaited`; they are none where it can't know who sends."""

    node: NodeId
    round: int
    awaited: tuple[NodeId, ...]
    since_s: float


@dataclass(slots=True)
class FleetStatus:
    """The whole fleet. The supervisor keeps it up to date; views and `fleet.json` read it.

    `waiting` are the few nodes that have waited longest, as far as that is known. `elapsed_s` is the fleet's time,
    `wall_s` the seconds that a person has waited for it: other ones where time is virtual.
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
        """Nodes that still have rounds before them."""
        return [node for node in self.nodes.values() if node.phase not in ENDED]

    @property
    def slowest(self) -> NodeStatus | None:
        """The running node that is furthest back, the lowest id of several; None where all ended."""
        return min(self.running, key=lambda node: (node.round, node.node), default=None)

    @property
    def rounds_done(self) -> int:
        """Rounds that every node still in the run has behind it, those included that are down and due back."""
        if self.slowest is not None:
            return min(node.round for node in self.nodes.values() if node.phase not in ENDED or node.returns)
        finished = any(node.phase is Phase.FINISHED for node in self.nodes.values())
        return self.rounds if finished else max((node.round for node in self.nodes.values()), default=0)

    @property
    def left_s(self) -> float | None:
        """Seconds of the wall clock to the end at the pace so far; None before the first round."""
        done = self.rounds_done
        return self.wall_s / done * (self.rounds - done) if done else None

    def to_text(self) -> str:
        """The contents of `fleet.json`: the fields, what follows from them, and the nodes as a list, a node a line."""
        head = dump_json(self._head(), indent=1).removesuffix("\n}")
        rows = ",\n  ".join([self.nodes[node].to_text() for node in sorted(self.nodes)])
        return f'{head},\n "nodes": [\n  {rows}\n ]\n}}\n'

    def _head(self) -> dict[str, object]:
        """All but the nodes."""
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
    """Something that shows a fleet while it runs."""

    def update(self, status: FleetStatus) -> None:
        """Show the fleet as it is now. Cheap; call it as often as something changed."""

    def note(self, text: str) -> None:
        """Say something once, above the rest: a node died, a default was chosen."""
