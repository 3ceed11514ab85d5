"""What the packet forwarder carries on one core: TCP between two namespaces, at rising rates.

python benchmarks/forwarder.py
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netdfl.fleet.netns import inside
from netdfl.fleet.packet_network import PacketNetwork
from tests.namespaces.udp_probe import network

SECONDS = 4.0


def main() -> None:
    """Print a table: asked, carried, packets per second, how late packets left, share of a core."""
    print(f"{'asked':>10} {'Mbit/s':>8} {'packets/s':>10} {'late, 99 %':>11} {'unread':>7} {'core':>6}")
    for asked in ("10Mbit", "50Mbit", "100Mbit", "200Mbit", "400Mbit", "none"):
        links = {"default": {"latency": "2ms"}} | ({"0->1": {"rate": asked}} if asked != "none" else {})
        with tempfile.TemporaryDirectory() as directory, network(Path(directory), links) as made:
            before = cpu_s(made.process.pid)
            bps = tcp(made)
            core = (cpu_s(made.process.pid) - before) / SECONDS
            counts = made.end()
        packets = counts["packets"]["sent"] / SECONDS
        late_ms = counts["late_ns"]["99"] / 1e6
        print(f"{asked:>10} {bps / 1e6:8.0f} {packets:10.0f} {late_ms:8.2f} ms {counts['unread']:7} {core:6.0%}")


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
