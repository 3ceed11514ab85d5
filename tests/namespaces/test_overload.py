"""A forwarder that is overloaded says so: packets that wait to be read, or are never read, are no link's doing."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import netdfl
from netdfl.diagnosis.fidelity import judge_packets
from netdfl.packets.device_queue import DeviceQueue, quantile_ns
from netdfl.scenario.load import loads

MS = 1_000_000
SCENARIO = """
schema: netdfl/1
name: overloaded
nodes: 2
rounds: 25
world: {kind: namespaces}
task: {kind: consensus, dim: 50000}
algorithm: dpsgd
topology: full
links: {default: {latency: 2ms}}
"""


def segment(stamp_ms: int, port: int = 4000, options: bytes = b"\x01\x01\x08\x0a") -> bytes:
    """An IPv4 packet with a TCP segment that has a time stamp."""
    ip = bytes([0x45]) + bytes(8) + bytes([6]) + bytes(10)
    return ip + struct.pack("!HH", port, 80) + bytes(16) + options + struct.pack("!II", stamp_ms % (1 << 32), 0)


def test_a_segment_waited_what_it_came_later_than_the_quickest_of_its_connection() -> None:
    queue, start = DeviceQueue(), (1 << 32) - 20  # the stamps pass their largest number
    for at_ms, waited_ms in ((0, 5), (10, 0), (20, 0), (30, 70), (40, 3)):
        queue.look((0, 1), segment(start + at_ms), (1000 + at_ms + waited_ms) * MS)
        queue.look((0, 1), segment(77 + at_ms, port=5000), (1000 + at_ms) * MS)
    assert queue.waits.total() == 10
    assert queue.waits[0] == 8
    assert sorted(queue.waits.elements())[-2:] == [(3 * MS).bit_length(), (70 * MS).bit_length()]
    assert quantile_ns(queue.waits, 0.5) == 1
    assert 70 * MS <= quantile_ns(queue.waits, 0.99) <= 140 * MS


def test_of_a_packet_without_a_stamp_no_wait_is_taken() -> None:
    queue = DeviceQueue()
    for packet in (segment(5, options=b"\x02\x04\x05\xb4"), bytes([0x45]) + bytes(8) + bytes([17]) + bytes(30)):
        queue.look((0, 1), packet, MS)
    assert not queue.waits
    assert quantile_ns(queue.waits, 0.99) == 0


def test_what_is_late_waits_or_is_never_read_is_missed() -> None:
    well: dict[str, Any] = {"late_ns": {"99": 1 << 22}, "waited_ns": {"99": 1 << 24}, "packets": {"sent": 10_000}}
    assert judge_packets(well | {"unread": 3}) == ""
    assert judge_packets({}) == ""
    assert "came more than 34 ms late" in judge_packets(well | {"late_ns": {"99": 1 << 26}})
    assert "waited more than 34 ms in its device" in judge_packets(well | {"waited_ns": {"99": 1 << 26}})
    assert "dropped 7,322 of 17,322 packets" in judge_packets(well | {"unread": 7322})


def test_a_forwarder_that_is_held_up_leaves_no_verdict(tmp_path: Path) -> None:
    ended = threading.Event()

    def hold_up() -> None:
        while not ended.wait(0.02):
            for pid in forwarders(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(0.25)  # long beside the bound of 34 ms, as this thread itself may be late
                    os.kill(pid, signal.SIGCONT)

    holding = threading.Thread(target=hold_up)
    holding.start()
    try:
        result = netdfl.run(loads(SCENARIO), out=tmp_path / "run", page=False).result
    finally:
        ended.set()
        holding.join()
    assert result["verdict"] == "unknown"
    # it is stopped as it waits to read, or as it sends
    words = "before it was read", "the machine is too busy to carry the fleet's packets"
    assert any(each in reason for reason in result["reasons"] for each in words), result["reasons"]
    assert max(result["links"][how]["99"] for how in ("waited_ns", "late_ns")) > 50 * MS


def forwarders(parent: int) -> list[int]:
    """The processes below `parent` that carry packets."""
    found = []
    for line in Path("/proc").glob("[0-9]*/stat"):
        try:
            inside = int(line.read_text().rpartition(")")[2].split()[1]) == parent
            if inside and b"netdfl.packets.process" in line.with_name("cmdline").read_bytes():
                found.append(int(line.parent.name))
        except OSError:
            continue
    return found
