"""Measurements of messages over real TCP in namespaces, by loss, round-trip time, rate and size.

A cell is a combination of these conditions. Every cell has its own connections, each between two namespaces, side by
side. A connection carries one message at a time, after a pause, timed from the first write to the last byte read. A
dead connection is replaced. The first message between each two namespaces is a warm-up and does not count. Losses act
in both directions, so on acknowledgements too; the rate acts in the direction of the data. The lossless cells, whose
times are short, are measured before all others, so that no other packets delay theirs.
"""

from __future__ import annotations

import json
import math
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

from netdfl.core.clock import NS_PER_S
from netdfl.core.errors import RunError
from netdfl.core.process import allow_open_files
from netdfl.diagnosis.fidelity import MOST_LATE_NS
from netdfl.packets.netns import inside
from netdfl.packets.network import PacketNetwork

SIZES = (1 << 10, 20 << 10, 100 << 10, 1 << 20)
LOSSES = (0.0, 0.01, 0.05, 0.1, 0.2)
RTTS_NS = (40_000_000, 100_000_000)
RATES_BPS = (10e6, 100e6)
PAUSE_S = 0.5
GIVE_UP_S = 60.0
"""The longest time that a message may take before its connection counts as dead; the gRPC transport has the same."""
_APART_S = 0.025  # between the beginnings of two connections: together they would come in a burst
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


class CalibrationCell(NamedTuple):
    """The conditions under which messages are timed, one cell of the grid; `rtt_ns` is twice the one-way latency."""

    nbytes: int
    loss: float
    rtt_ns: int
    rate_bps: float


GRID = tuple(
    CalibrationCell(nbytes, loss, rtt_ns, rate_bps)
    for rate_bps, rtt_ns, nbytes, loss in product(RATES_BPS, RTTS_NS, SIZES, LOSSES)
)
_PLAN = {
    SIZES[0]: ((6, 60), (4, 250), (8, 400), (16, 400), (48, 450)),
    SIZES[1]: ((12, 40), (6, 200), (8, 150), (12, 100), (40, 80)),
    SIZES[2]: ((12, 40), (8, 100), (8, 80), (12, 50), (64, 20)),
    SIZES[3]: ((4, 30), (6, 25), (8, 15), (12, 10), (24, 5)),
}
"""The number of connections, and of messages on each, by message size and then by loss.

The number of messages is large enough for the means, although the times have heavy tails where losses repeat. They are
spread over so many connections that all cells end within some minutes. With twice as many connections at losses of 1 to
10 % the forwarder can't keep up, and its lateness is measured instead of TCP's.
"""

Times = Mapping[CalibrationCell, Sequence[Sequence[float]]]
"""The seconds that the messages of each cell took, by connection; infinite if the connection died."""


def measured(seed: int, scale: float = 1.0, file: Path | None = None) -> Times:
    """Return the measured times of all cells of the grid, from `file` if it exists, else measured now and saved there.

    `scale` multiplies the number of messages.
    """
    if file is not None and file.exists():
        return {CalibrationCell(*cell): some for cell, some in json.loads(file.read_text(encoding="utf-8"))}
    times = measure(GRID, seed, scale)
    if file is not None:
        rows = [json.dumps([cell, [[round(each, 6) for each in one] for one in some]]) for cell, some in times.items()]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
    return times


def measure(
    cells: Sequence[CalibrationCell], seed: int, scale: float = 1.0, note: Callable[[str], None] = print
) -> Times:
    """Measure the times of the messages of some cells; `scale` multiplies the number of messages on each connection.

    Raises MachineError if namespaces can't be made, RunError if this machine was too slow to carry packets in time.
    """
    times: dict[CalibrationCell, list[list[float]]] = {}
    for lossy in (False, True):
        spread = [
            (cell, math.ceil(count * scale))
            for cell in cells
            if bool(cell.loss) == lossy
            for connections, count in (_PLAN[cell.nbytes][LOSSES.index(cell.loss)],)
            for _ in range(connections)
        ]
        for (cell, _), some in zip(spread, _measure(spread, seed, note) if spread else (), strict=True):
            times.setdefault(cell, []).append(some)
    return {cell: times[cell] for cell in cells}


def _measure(
    spread: Sequence[tuple[CalibrationCell, int]], seed: int, note: Callable[[str], None]
) -> list[list[float]]:
    allow_open_files()
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
    late = f"99 % at most {counts['late_ns']['99'] / 1e6:.2f} ms late"
    note(f"{counts['packets']['sent']} packets, {late}")
    if counts["late_ns"]["99"] > MOST_LATE_NS:
        raise RunError(
            f"packets came {late}: these are times of this machine, not of the links; let it do nothing else"
        )
    return found


def _entries(src: int, cell: CalibrationCell) -> str:
    rules = f"latency: {cell.rtt_ns // 2}ns, loss: {cell.loss}"
    data = f"{rules}, rate: {cell.rate_bps:.0f}bit"
    return f'  "{src}->{src + 1}": {{{data}}}\n  "{src + 1}->{src}": {{{rules}}}'


def _all(
    network: PacketNetwork, spread: Sequence[tuple[CalibrationCell, int]], note: Callable[[str], None]
) -> list[list[float]]:
    found: dict[int, list[float]] = {}

    def one(place: int) -> None:
        cell, count = spread[place]
        found[place] = _times(network, 2 * place, cell.nbytes, count)
        if len(found) % 50 == 0 or len(found) == len(spread):
            note(f"{len(found)} of {len(spread)} connections are through")

    threads = [threading.Thread(target=one, args=(place,), daemon=True) for place in range(len(spread))]
    for thread in random.Random(len(spread)).sample(threads, len(threads)):
        thread.start()
        time.sleep(_APART_S)
    for thread in threads:
        thread.join()
    return [found[place] for place in range(len(spread))]


def _times(network: PacketNetwork, src: int, nbytes: int, count: int) -> list[float]:
    times: list[float] = []
    while len(times) <= count:
        out, into = _connection(network, src)
        with out, into:
            took_s = 0.0
            while math.isfinite(took_s) and len(times) <= count:
                took_s = _timed(out, into, nbytes)
                times.append(took_s)
            with suppress(OSError):
                out.shutdown(socket.SHUT_RDWR)
    return times[1:]


def _timed(out: socket.socket, into: socket.socket, nbytes: int) -> float:
    """Return the seconds that a message of `nbytes` bytes takes from socket `out` to `into`, after a pause.

    The result is infinite if the message takes longer than `GIVE_UP_S`, or the connection breaks.
    """
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
    """Return both ends of a connection from `src` to the next node, retrying as often as needed."""
    while True:
        with suppress(TimeoutError, ConnectionError):
            return _attempt(network, src)


def _attempt(network: PacketNetwork, src: int) -> tuple[socket.socket, socket.socket]:
    address = (network.places[src + 1]["address"], _PORT)
    with _inside(network, src + 1, lambda: socket.create_server(address)) as server:
        server.settimeout(GIVE_UP_S)
        out = _inside(network, src, lambda: socket.create_connection(address, GIVE_UP_S))
        try:
            into, _ = server.accept()
        except BaseException:
            out.close()
            raise
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return out, into


def _inside(network: PacketNetwork, node: int, open_socket: Callable[[], socket.socket]) -> socket.socket:
    namespace = os.open(network.places[node]["namespace"], os.O_RDONLY)
    try:
        return inside(namespace, open_socket)
    finally:
        os.close(namespace)


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
