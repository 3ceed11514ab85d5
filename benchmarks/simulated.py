"""The simulated world's speed on one core: messages, vectors, a thousand nodes, and how cost grows.

    python benchmarks/simulated.py [--repeats 3]

Prints a JSON list of rows: name, value, unit, reference, reference_value, ratio. The messages per second
count everything from a node's send to the end of its wait: transport, links, mailbox, ledger. The
vectors' reference is the memory traffic that a round can't avoid (each message read once, each sum written
once), at the speed at which this core reads and writes large arrays.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, cast

import torch
from figures import Row, show
from torch import Tensor

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.rng import Streams
from netdfl.core.types import Kind, MessageId, Multicast, NodeId, Payload, StepId, View
from netdfl.links.channel import Links
from netdfl.links.spec import LinksSpec
from netdfl.mixing.push_sum import PushSum
from netdfl.node.mailbox import Mailbox
from netdfl.node.runtime import Node
from netdfl.node.waits import Waits
from netdfl.record.event_log import EventLog, LoggingRecorder
from netdfl.testing.loopback import InlineWorker, SilentRecorder
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.training.base import Update
from netdfl.training.sgd import PlainStart
from netdfl.transport.simulated.fabric import Fabric
from netdfl.transport.simulated.transport import SimulatedTransport
from netdfl.worlds.simulated.arithmetic import rare_collections
from netdfl.worlds.simulated.ledger import FleetLedger
from netdfl.worlds.simulated.loop import VirtualClock, VirtualLoop

DIM = 199_210
DELAY = {"latency": "20ms"}
FULL = {
    "loss": "5%",
    "latency": {"dist": "uniform", "low": "10ms", "high": "30ms"},
    "rate": {"rate": "10Mbit", "queue": "1MB"},
}


class World:
    """A loop, a clock and a fabric."""

    def __init__(self, nodes: int, rules: dict[str, Any], log: bool = False) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        links = Links(LinksSpec({"default": rules} if rules else {}, {}, nodes), Streams(0))
        silent = SilentRecorder()
        self.recorder = LoggingRecorder(silent, EventLog(self.clock, 0)) if log else cast(LoggingRecorder, silent)
        self.ledger = FleetLedger(self.clock, self.recorder)
        self.fabric = self.loop.source = Fabric(self.clock, 0, self.ledger, links)

    def run(self, main: Any) -> float:
        """Seconds of this process that `main` takes."""
        with rare_collections(self), asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            began = time.process_time()
            runner.run(main)
            return time.process_time() - began


def messages_per_second(nodes: int, neighbors: int, rounds: int, rules: dict[str, Any], *, log: bool = False) -> float:
    """Empty messages a second, without what the first round costs once: links are made when first used."""
    first, all_rounds = (exchange_seconds(nodes, neighbors, count, rules, log) for count in (1, 1 + rounds))
    return nodes * neighbors * rounds / (all_rounds - first)


def exchange_seconds(nodes: int, neighbors: int, rounds: int, rules: dict[str, Any], log: bool) -> float:
    """Seconds in which every node sends to its neighbors and waits for theirs (or 200 ms), `rounds` times."""
    world = World(nodes, rules, log)
    policy = WaitPolicy(need="all", deadline_ns=200_000_000)
    shifts = [s for i in range(1, neighbors // 2 + 1) for s in (i, -i)]

    async def node(i: NodeId) -> None:
        mailbox = Mailbox(keep_late=False)
        world.ledger.of(i)
        transport = SimulatedTransport(world.fabric, i)
        transport.attach(mailbox)
        waits = Waits(i, mailbox, world.clock)
        peers, payload = tuple((i + shift) % nodes for shift in shifts), Payload()
        sources = frozenset(peers)
        await asyncio.sleep(0)
        for round in range(rounds):
            id = MessageId(Kind.DATA, 0, StepId(round, 0), 0, 0)
            await transport.send([Multicast(i, peers, id, (payload,) * len(peers))])
            await waits.messages(round, 0, sources, policy)

    async def main() -> None:
        await asyncio.gather(*(node(i) for i in range(nodes)))

    return world.run(main())


def bare_messages_per_second(nodes: int, neighbors: int, rounds: int) -> float:
    """The same exchange with nothing but a timer and a queue for each message: what asyncio alone takes."""
    loop = VirtualLoop()
    queues: list[asyncio.Queue[int]] = []

    async def node(i: NodeId) -> None:
        for _ in range(rounds):
            for shift in range(1, neighbors + 1):
                loop.call_later(0.02, queues[(i + shift) % nodes].put_nowait, i)
            for _ in range(neighbors):
                await queues[i].get()

    async def main() -> None:
        queues.extend(asyncio.Queue() for _ in range(nodes))
        await asyncio.gather(*(node(i) for i in range(nodes)))

    with rare_collections(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
        began = time.process_time()
        runner.run(main())
        return nodes * neighbors * rounds / (time.process_time() - began)


class Standing:
    """A local solver that leaves the vector as it is: communication alone."""

    def init(self, x: Tensor, view: View) -> None: ...

    def train(self, state: None, y: Tensor, *rest: Any) -> tuple[None, Update]:
        return None, Update(y, y)

    def after_mix(self, *rest: Any) -> None: ...


class Vector:
    """A task that is a vector and nothing to train."""

    num_samples, last_loss, dim = 0, 0.0, DIM
    objective: Any = None

    def __init__(self, node: NodeId) -> None:
        self.start = torch.full((DIM,), float(node))

    def initial(self) -> Tensor:
        return self.start

    def data(self, round: int) -> Any: ...


def vector_seconds(nodes: int, rounds: int) -> float:
    """Seconds of the quickest round on `random_push`, 10 neighbors, vectors of 199,210 numbers; or of the one round."""
    world = World(nodes, DELAY)
    network = Network(TOPOLOGIES["random_push"](nodes, Streams(0), out_neighbors=10))
    algorithm = Algorithm(
        family="gossip", start=PlainStart(), local=Standing(), mixing=PushSum(), wait=WaitPolicy(deadline_ns=None)
    )
    marks: list[float] = []

    class Marks:
        async def begin_round(self, round: int) -> None:
            """Nothing is scripted."""

        async def end_round(self, *rest: Any) -> None:
            marks.append(time.process_time())

    def node(i: NodeId) -> Node:
        return Node(
            id=i,
            algorithm=algorithm,
            task=Vector(i),
            view_of=lambda round, gone: network.view(i, round),
            num_rounds=rounds,
            transport=SimulatedTransport(world.fabric, i),
            clock=world.clock,
            worker=InlineWorker(),
            recorder=world.recorder,
            ledger=world.ledger.of(i),
            mailbox=Mailbox(keep_late=True),
            hooks=Marks(),
        )

    async def main() -> None:
        await asyncio.gather(*(each.run() for each in [node(i) for i in range(nodes)]))

    took = world.run(main())
    if rounds == 1:
        return took
    ends = marks[nodes - 1 :: nodes]
    return min(later - earlier for earlier, later in pairwise(ends))


def seconds_per_byte() -> tuple[float, float]:
    """What this core takes to read, and to write, a byte of a large array."""
    large = torch.zeros(100_000_000)
    return best(lambda: large.sum()) / large.nbytes, best(lambda: large.fill_(1.0)) / large.nbytes


def best(work: Callable[[], object]) -> float:
    """The shortest of five runs, in seconds."""
    took = []
    for _ in range(5):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def thousand_nodes() -> dict[str, float]:
    """Seconds and peak megabytes of one round of 1,000 nodes with vectors."""
    seconds = vector_seconds(1000, 1)
    return {"s": seconds, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000}


def rows(repeats: int) -> list[Row]:
    """All figures."""

    def median(work: Callable[[], float]) -> float:
        return statistics.median(work() for _ in range(repeats))

    delay = median(lambda: messages_per_second(100, 10, 100, DELAY))
    full = median(lambda: messages_per_second(100, 10, 50, FULL, log=True))
    bare = median(lambda: bare_messages_per_second(100, 10, 100))
    found = [
        Row(
            "delay alone, 100 nodes of 10 neighbors",
            delay,
            "messages/s",
            "a timer and a queue each",
            bare,
            delay / bare,
        ),
        Row("delay alone, 100 nodes of 10 neighbors", delay, "messages/s", "aim", 500_000, delay / 500_000),
        Row("loss, rate, queue and event log", full, "messages/s", "aim", 150_000, full / 150_000),
    ]
    read, write = seconds_per_byte()
    floor = 4 * DIM * (1000 * read + 100 * write)
    vectors = median(lambda: vector_seconds(100, 31))
    found.append(Row("a round of vectors of 199,210 numbers", vectors, "s", "memory traffic", floor, vectors / floor))
    child = subprocess.run([sys.executable, __file__, "--thousand"], capture_output=True, text=True, check=True)
    large = json.loads(child.stdout)
    floor = 4 * DIM * (10_000 * read + 1000 * write)
    held = 2 * 4 * DIM * 1000 / 1e6
    found += [
        Row("1,000 nodes, one round, from nothing", large["s"], "s", "memory traffic", floor, large["s"] / floor),
        Row("1,000 nodes, peak memory", large["MB"], "MB", "models and messages", held, large["MB"] / held),
    ]
    base = 1 / delay
    for nodes, neighbors in ((400, 10), (1000, 10), (100, 40)):
        cost = 1 / median(partial(messages_per_second, nodes, neighbors, 100_000 // (nodes * neighbors), DELAY))
        name = f"a message with {nodes} nodes of {neighbors} neighbors"
        found.append(Row(name, 1e6 * cost, "us", "with 100 of 10", 1e6 * base, cost / base))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--thousand", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.thousand:
        print(json.dumps(thousand_nodes()))
    else:
        show(rows(options.repeats), f"medians of {options.repeats}")


if __name__ == "__main__":
    main()
