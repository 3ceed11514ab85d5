"""A fleet on a virtual clock whose messages are acknowledged over links that lose what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange, OnMissing, WaitPolicy
from netdfl.core.rng import Streams
from netdfl.core.types import Kind, LogicalId, Message, NodeId, StepId
from netdfl.mixing.payloads import mass, vector
from netdfl.node.delivery import ResendPolicy
from netdfl.node.ledger import NodeLedger
from netdfl.node.mailbox import Mailbox
from netdfl.node.runtime import Node
from netdfl.testing.loopback import InlineWorker, LastState, Loopback, SilentRecorder
from netdfl.topology.network import Network
from netdfl.training.catalog import consensus
from netdfl.transport.base import Sink
from netdfl.worlds.simulated.loop import VirtualClock, VirtualLoop

MS = 1_000_000
Lost = Callable[[Message], bool]


def loses(seed: int, probability: float, *kinds: Kind) -> Lost:
    """Lose messages of `kinds` with this probability, each by a draw of its own."""
    streams = Streams(seed)

    def lost(m: Message) -> bool:
        key = (m.src, m.dst, m.kind.value, m.epoch, m.round, m.step, m.attempt)
        return m.kind in kinds and streams.uniform("lost", *key) < probability

    return lost


class Paced(LastState):
    """Keeps every state; each round takes some time before it begins."""

    def __init__(self, clock: VirtualClock, pause_ns: int) -> None:
        super().__init__()
        self.clock, self.pause_ns = clock, pause_ns

    async def begin_round(self, round: int) -> None:
        await self.clock.sleep_until(self.clock.now_ns() + self.pause_ns)


class Fleet:
    """Nodes that agree on the mean of what they start with, by `algorithm`, and what has become of it."""

    def __init__(
        self,
        network: Network,
        rounds: int,
        lost: Lost,
        *,
        algorithm: str = "sgp",
        resending: ResendPolicy,
        deadline_ns: int,
        on_missing: OnMissing = "self",
        pause_ns: int = 0,
        seed: int = 0,
        dim: int = 1,
    ) -> None:
        """Run to the end."""
        exchange = Exchange(wait=WaitPolicy(deadline_ns=deadline_ns), on_missing=on_missing, delivery="acknowledged")
        self.algorithm = ALGORITHMS[algorithm].build(exchange, lr=0.1)
        self.network, self.rounds, self.lost, self.resending = network, rounds, lost, resending
        self.tasks = [consensus(i, Streams(seed), dim=dim) for i in range(network.num_nodes)]
        self.start = torch.stack([task.start for task in self.tasks])
        self.sinks: dict[NodeId, Sink] = {}
        loop = VirtualLoop(seed)
        self.clock = VirtualClock(loop)
        self.kept = [Paced(self.clock, pause_ns) for _ in self.tasks]
        self.nodes = [self._node(i) for i in range(network.num_nodes)]
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for node in self.nodes:
                group.create_task(node.run())
        await asyncio.sleep(0)
        for node in self.nodes:
            assert node.delivery is not None
            node.delivery.close()

    def _node(self, i: NodeId) -> Node:
        recorder = SilentRecorder()
        return Node(
            id=i,
            algorithm=self.algorithm,
            task=self.tasks[i],
            view_of=lambda round, gone: self.network.view(i, round),
            num_rounds=self.rounds,
            transport=Loopback(self.sinks, i, self.lost),
            clock=self.clock,
            worker=InlineWorker(),
            recorder=recorder,
            ledger=NodeLedger(i, self.clock, recorder),
            mailbox=Mailbox(keep_late=self.algorithm.mixing.push, bound=2**31),
            hooks=self.kept[i],
            resending=self.resending,
        )

    def errors(self) -> list[float]:
        """The mean distance of z = x / w from the mean of the start, after each round."""
        mean = self.start.mean(0)
        return [
            sum(float((k.states[t].x / k.weights[t] - mean).abs().mean()) for k in self.kept) / len(self.kept)
            for t in range(self.rounds)
        ]

    def unacknowledged(self) -> list[Message]:
        """What belongs to nobody at the end: sent and not taken, or taken and not yet mixed."""
        under_way = [m for node in self.nodes for m in self._deliveries(node) if not self._taken(m)]
        unmixed = [m for node in self.nodes for m in node.mailbox.late]
        refused = [
            a.message for node in self.nodes if node.delivery for a in node.delivery.take_acknowledged() if not a.taken
        ]
        return [*under_way, *unmixed, *refused]

    @staticmethod
    def _deliveries(node: Node) -> Sequence[Message]:
        assert node.delivery is not None
        return node.delivery.unacknowledged()

    def _taken(self, m: Message) -> bool:
        return self.nodes[m.dst].mailbox.has_seen(m.src, (m.round, m.step))

    def matched(self) -> Tensor:
        """The sum of x over all nodes, without what exchanges changed at one end alone, at the end."""
        total = torch.stack([k.states[-1].x for k in self.kept]).sum(0)
        for i, k in enumerate(self.kept):
            for key, change in k.states[-1].mixing.open.items():
                peer, round, step = map(int, key.split())
                other = self.nodes[peer]
                assert other.delivery is not None
                refused = (i, LogicalId(Kind.DATA, StepId(round, step))) in other.delivery.refused
                if refused or not other.mailbox.has_seen(i, (round, step)):
                    total = total - change
        return total

    def mass(self) -> tuple[Tensor, float]:
        """The sums of x and of w over all nodes and what is unacknowledged, at the end."""
        open, like = self.unacknowledged(), self.start[0]
        x = torch.stack([k.states[-1].x for k in self.kept]).sum(0)
        x = x + sum((vector(m, like) for m in open), torch.zeros_like(like))
        return x, sum(k.weights[-1] for k in self.kept) + sum(mass(m, "w") for m in open)
