"""What a node and round of 8-bit CHOCO costs without network and training, beside plain gossip: a ring in one process.

    python benchmarks/choco.py [--nodes 10] [--dim 159010] [--rounds 60]

The vector is that of `ring.py` unless said otherwise. Ten nodes' vectors fit no cache, as in a real ring each node
finds none of its own in one. Prints a JSON list of rows: microseconds of CPU time, medians over nodes and rounds but
for the first quarter of them; the parts are what a node does in a round, with the bytes and checksums of its messages.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from figures import Row, show

from netdfl.core.process import keep_freed

if TYPE_CHECKING:
    from netdfl.mixing.base import Mixing

RING_DIM = 159_010
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
T = TypeVar("T")
Took = defaultdict[str, list[int]]


def choco() -> Mixing[Any]:
    """As a scenario with `compression: {kind: qsgd, bits: 8, scaled: true}` has it."""
    from netdfl.compression.catalog import COMPRESSORS
    from netdfl.core.rng import Streams
    from netdfl.mixing.compressed.gossip import Choco
    from netdfl.mixing.compressed.references import Differences
    from netdfl.mixing.compressed.step_size import ScaledCompressor

    compressor = ScaledCompressor(COMPRESSORS["qsgd"](bits=8, scaled=True))
    return Choco(differences=Differences(compressor=compressor, streams=Streams(5), common_start=True))


def plain() -> Mixing[Any]:
    """Uncompressed gossip."""
    from netdfl.mixing.gossip import Gossip

    return Gossip()


def measure(mixing: Mixing[Any], nodes: int, dim: int, rounds: int) -> dict[str, float]:
    """Microseconds by part."""
    import numpy as np
    import torch

    from netdfl.core.types import Inbox, Kind, Message, View
    from netdfl.node.not_finite import NonFinitePolicy
    from netdfl.training.base import Update
    from netdfl.transport import wire

    torch.set_num_threads(1)
    rng, took = np.random.default_rng(0), Took(list)
    reader = wire.FrameReader(wire.Limits(max_bytes=8 * dim + (1 << 16)))

    def timed(part: str, function: Callable[..., T], *args: object) -> T:
        began = time.thread_time_ns()
        result = function(*args)
        took[part].append(time.thread_time_ns() - began)
        return result

    def normal(size: float) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(dim, np.float32) * np.float32(size))

    def view(node: int, round: int) -> View:
        beside = tuple(sorted({(node - 1) % nodes, (node + 1) % nodes}))
        weights = dict.fromkeys(beside, 1 / 3)
        return View(node, round, nodes, beside, beside, 1 - sum(weights.values()), weights, weights)

    start, moves = normal(0.05), [normal(1e-3) for _ in range(nodes)]
    xs, states = [start.clone() for _ in moves], [mixing.init(start, view(node, 0)) for node in range(nodes)]
    for round in range(rounds):
        bodies: list[memoryview] = []
        updates = [Update(x, x + move) for x, move in zip(xs, moves, strict=True)]
        for node, update in enumerate(updates):
            states[node], outbox = timed("send", mixing.outgoing, states[node], update, 0, view(node, round))
            payload = next(iter(outbox.values()))
            nbytes = timed("size", wire.frame_size, Message(node, 0, Kind.DATA, 0, round, 0, 0, payload))
            bodies.append(np.empty(nbytes - wire.BODY_AT, np.uint8).data)
            timed("write", wire.FrameWriter.write_body, payload, bodies[-1])
        for node, update in enumerate(updates):
            now = view(node, round)
            came = [(j, timed("read", reader.body, bodies[j])) for j in now.out_neighbors]
            inbox = Inbox([Message(j, node, Kind.DATA, 0, round, 0, 0, payload) for j, payload in came])
            timed("look for NaN", NonFinitePolicy.only_finite, inbox)
            mixed = timed("mix", mixing.mix, states[node], update, inbox, 0, now)
            states[node], xs[node] = mixed.state, mixed.update.x
    medians = {part: statistics.median(each[len(each) // 4 :]) / 1000 for part, each in took.items()}
    return {**medians, "read": 2 * medians["read"]}


def main() -> None:
    """Print a JSON list of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--dim", type=int, default=RING_DIM)
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()
    os.environ |= ONE_THREAD  # numpy and torch, which read it, are imported later
    keep_freed()
    own, other = (measure(make(), args.nodes, args.dim, args.rounds) for make in (choco, plain))
    own["all"], other["all"] = sum(own.values()), sum(other.values())
    rows = [
        Row(
            f"8-bit CHOCO, {part}",
            round(own[part], 1),
            "us",
            "plain gossip",
            round(other[part], 1),
            round(own[part] / other[part], 2),
        )
        for part in own
    ]
    show(rows, f"medians of {args.rounds} rounds of {args.nodes} nodes, {args.dim} numbers")


if __name__ == "__main__":
    main()
