"""What the packet forwarder carries on one core: TCP between two namespaces, at rising rates.

    python benchmarks/forwarder.py

Prints a JSON list of rows: name, value, unit, reference, reference_value, ratio. Where a rate was asked, what
was carried stands beside it; how late 99 of 100 packets left, beside the bound of 16 ms; the forwarder's time,
beside a core.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from figures import Row, show

from netdfl.packets.netns import inside
from netdfl.packets.network import PacketNetwork
from tests.namespaces.udp_probe import network

SECONDS = 4.0
LATE_MS = 16.0


def main() -> None:
    """Measure at every rate, one after the other."""
    rates = {f"{mbit}Mbit": mbit for mbit in (10, 50, 100, 200, 400)} | {"none": 0}
    rows = [row for asked, mbit in rates.items() for row in measure(asked, mbit)]
    show(rows, f"{SECONDS:g} s at each rate")


def measure(asked: str, mbit: float) -> Iterator[Row]:
    """What is carried where `asked` is the links' rate."""
    links = {"default": {"latency": "2ms"}} | ({"0->1": {"rate": asked}} if mbit else {})
    with tempfile.TemporaryDirectory() as directory, network(Path(directory), links) as made:
        before = cpu_s(made.process.pid)
        carried = tcp(made) / 1e6
        core = (cpu_s(made.process.pid) - before) / SECONDS
        counts = made.end()
    packets, late_ms = counts["packets"]["sent"] / SECONDS, counts["late_ns"]["99"] / 1e6
    reference = mbit or carried
    yield Row(f"rate {asked}: carried", carried, "Mbit/s", "rate", reference, carried / reference)
    yield Row(
        f"rate {asked}: packets", packets, "1/s", "full ones, one way", carried / 12e-3, packets / (carried / 12e-3)
    )
    yield Row(f"rate {asked}: late, 99 %", late_ms, "ms", "bound", LATE_MS, late_ms / LATE_MS)
    yield Row(f"rate {asked}: of a core", core, "s/s", "core", 1.0, core)


def tcp(made: PacketNetwork) -> float:
    """Send as fast as TCP lets for `SECONDS`; the bits per second that came."""
    ends = [os.open(made.places[node]["namespace"], os.O_RDONLY) for node in (0, 1)]
    address = (made.places[1]["address"], 9001)
    server = inside(ends[1], lambda: socket.create_server(address))
    client = inside(ends[0], lambda: socket.create_connection(address))
    taken, _ = server.accept()

    def send() -> None:
        until, block = time.monotonic() + SECONDS, bytes(1 << 16)
        while time.monotonic() < until:
            client.sendall(block)
        client.close()

    threading.Thread(target=send).start()
    began, got = time.monotonic(), 0
    while data := taken.recv(1 << 20):
        got += len(data)
    return got * 8 / (time.monotonic() - began)


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
