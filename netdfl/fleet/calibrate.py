"""Measures how long messages take over real TCP in namespaces, by loss, round-trip time, rate and size.

Every cell has connections of its own, each between two namespaces, all at once. A connection carries one
message at a time, after a pause, timed from the first write to the last byte read; its first message
only warms it up (or kills it, which counts). Losses act both ways, so on acknowledgements too; the rate
acts on the data's way.
"""

from __future__ import annotations

import math
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

from netdfl.core.clock import NS_PER_S
from netdfl.fleet.netns import inside
from netdfl.fleet.packet_network import PacketNetwork

SIZES = (1 << 10, 100 << 10, 1 << 20)
LOSSES = (0.0, 0.01, 0.05, 0.1, 0.2)
RTTS_NS = (40_000_000, 100_000_000)
RATES_BPS = (10e6, 100e6)
PAUSE_S = 0.5
GIVE_UP_S = 60.0
"""A message that takes longer died with its connection; as long as a call of the gRPC transport may take."""
_PORT = 9002
_SCENARIO = """
schema: netdfl/1
name: calibrate
seed: {seed}
nodes: {nodes}
rounds: 1
world: {{kind: namespaces, engine: tun, loss_layer: packet}}
task: {{kind: quadratic, dim: 2}}
algorithm: {{name: lian_dpsgd, lr: 0.1}}
topology: ring
links:
{links}
"""


class Cell(NamedTuple):
    """What one row of the table is about; `rtt_ns` is twice the one-way latency."""

    nbytes: int
    loss: float
    rtt_ns: int
    rate_bps: float


GRID = tuple(
    Cell(nbytes, loss, rtt_ns, rate_bps)
    for rate_bps, rtt_ns, loss, nbytes in product(RATES_BPS, RTTS_NS, LOSSES, SIZES)
)


def measure(
    cells: Sequence[Cell], count: int, seed: int, note: Callable[[str], None] = print
) -> dict[Cell, list[float]]:
    """Seconds that each of `count` messages of each cell took; infinite where the connection died.

    Raises MachineError where namespaces can't be made.
    """
    spread = [(cell, -(-count // _connections(cell))) for cell in cells for _ in range(_connections(cell))]
    times: dict[Cell, list[float]] = {}
    for (cell, _), some in zip(spread, _measure(spread, seed, note), strict=True):
        times.setdefault(cell, []).extend(some)
    return times


def _connections(cell: Cell) -> int:
    """How many connections share the messages of a cell: more where they take long."""
    large = cell.nbytes == SIZES[-1]
    if cell.loss >= 0.2:
        return 48 if large else 24 if cell.nbytes == SIZES[1] else 8
    if cell.loss >= 0.1:
        return 32 if large else 8
    return 16 if large and cell.loss else 2 if large else 1


def _measure(spread: Sequence[tuple[Cell, int]], seed: int, note: Callable[[str], None]) -> list[list[float]]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "calibrate.yaml"
        links = "\n".join(_entries(2 * place, cell) for place, (cell, _) in enumerate(spread))
        file.write_text(_SCENARIO.format(seed=seed, nodes=2 * len(spread), links=links))
        with PacketNetwork(file, Path(directory), trusted=True) as network:
            network.begin(time.monotonic_ns())
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            found = _all(network, spread, note)
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            counts = network.end()
    note(f"{counts['packets']['sent']} packets, 99 % at most {counts['late_ns']['99'] / 1e6:.2f} ms late")
    return found


def _entries(src: int, cell: Cell) -> str:
    rules = f"latency: {cell.rtt_ns // 2}ns, loss: {cell.loss}"
    data = f"{rules}, rate: {cell.rate_bps:.0f}bit"
    return f'  "{src}->{src + 1}": {{{data}}}\n  "{src + 1}->{src}": {{{rules}}}'


def _all(network: PacketNetwork, spread: Sequence[tuple[Cell, int]], note: Callable[[str], None]) -> list[list[float]]:
    found: dict[int, list[float]] = {}

    def one(place: int) -> None:
        cell, count = spread[place]
        found[place] = _times(network, 2 * place, cell.nbytes, count)
        note(f"{len(found)}/{len(spread)}: {cell}")

    threads = [threading.Thread(target=one, args=(place,), daemon=True) for place in range(len(spread))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[place] for place in range(len(spread))]


def _times(network: PacketNetwork, src: int, nbytes: int, count: int) -> list[float]:
    times: list[float] = []
    while len(times) < count:
        out, into = _connection(network, src)
        with out, into:
            took_s = _timed(out, into, nbytes)
            if math.isinf(took_s):
                times.append(took_s)
            while math.isfinite(took_s) and len(times) < count:
                took_s = _timed(out, into, nbytes)
                times.append(took_s)
    return times


def _timed(out: socket.socket, into: socket.socket, nbytes: int) -> float:
    """After the pause, the seconds that one message takes; infinite where it takes too long."""
    time.sleep(PAUSE_S)
    began = time.monotonic_ns()
    sending = threading.Thread(target=_send, args=(out, bytes(nbytes)), daemon=True)
    sending.start()
    if not _read(into, nbytes, time.monotonic() + GIVE_UP_S):
        return math.inf
    took_s = (time.monotonic_ns() - began) / NS_PER_S
    sending.join()
    return took_s


def _connection(network: PacketNetwork, src: int) -> tuple[socket.socket, socket.socket]:
    """A connection from `src` to the node after it: both ends."""
    ends = [os.open(network.places[node]["namespace"], os.O_RDONLY) for node in (src, src + 1)]
    address = (network.places[src + 1]["address"], _PORT)
    with inside(ends[1], lambda: socket.create_server(address)) as server:
        out = inside(ends[0], lambda: _connected(address))
        into, _ = server.accept()
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for end in ends:
        os.close(end)
    return out, into


def _connected(address: tuple[str, int]) -> socket.socket:
    """Connect, however many attempts are lost."""
    while True:
        with suppress(TimeoutError):
            return socket.create_connection(address, GIVE_UP_S)


def _send(out: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        out.sendall(data)


def _read(into: socket.socket, nbytes: int, until: float) -> bool:
    with suppress(OSError):
        while nbytes and (left_s := until - time.monotonic()) > 0:
            into.settimeout(left_s)
            if not (data := into.recv(nbytes)):
                return False
            nbytes -= len(data)
    return not nbytes
