"""Packets between namespaces meet the links' rules: counted by the forwarder, and by a probe of its own."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.channel import Links
from netdfl.links.rules.base import Transit
from netdfl.links.spec import LinksSpec
from netdfl.packets.netns import inside
from netdfl.packets.network import PacketNetwork
from tests.namespaces.udp_probe import Probe, network

S = 10**9


@pytest.mark.parametrize("loss", [0.05, {"model": "gilbert_elliott", "p": 0.02, "r": 0.2}], ids=["random", "bursts"])
def test_a_packet_is_lost_where_its_number_on_its_edge_says_so(tmp_path: Path, loss: object) -> None:
    count = 3000
    with network(tmp_path, {"default": {"loss": loss}}) as made:
        probe = Probe(made, 0, 1)
        probe.burst(count)
        counts = made.end()
    path = Links(LinksSpec({"default": {"loss": loss}}, {}, 2), Streams(3)).path(0, 1)
    units = (Transit(0, 1, Kind.DATA, 0, 0, number + 1, 100) for number in range(count))
    kept = [unit.attempt - 1 for unit in units if hasattr(path.stages[0].enter(unit, 0)[0], "at_ns")]
    assert probe.order == kept
    assert counts["edges"]["0->1"]["dropped"] == {"loss": count - len(kept)}
    assert counts["edges"]["0->1"]["sent"] == count
    assert counts["unread"] == 0


def test_the_measured_loss_is_within_three_standard_errors(tmp_path: Path) -> None:
    count = 6000
    with network(tmp_path, {"default": {"loss": 0.1}}) as made:
        probe = Probe(made, 0, 1)
        probe.burst(count)
        counts = made.end()["packets"]
    lost = count - len(probe.came)
    assert abs(lost - 0.1 * count) <= 3 * (count * 0.1 * 0.9) ** 0.5
    assert (counts["sent"], counts["dropped"]["loss"]) == (count, lost)


def test_a_one_way_cut_stops_exactly_one_direction(tmp_path: Path) -> None:
    came = {}
    with network(tmp_path, {"0->1": {"state": "down_drop"}}, nodes=3) as made:
        for edge in ((0, 1), (1, 0), (0, 2), (2, 1)):
            probe = Probe(made, *edge)
            probe.burst(50)
            came[edge] = len(probe.came)
    assert came == {(0, 1): 0, (1, 0): 50, (0, 2): 50, (2, 1): 50}


def test_a_partition_by_schedule_begins_and_ends(tmp_path: Path) -> None:
    events = [{"at": "400ms", "for": "500ms", "partition": [[0], [1]]}]
    with network(tmp_path, {"default": {"latency": "1ms"}}, events) as made:
        began = time.monotonic_ns()
        probe = Probe(made, 0, 1)
        while time.monotonic_ns() < began + 13 * S // 10:
            probe.send()
            probe.take(0.004)
        probe.take(0.1)
        probe.close()
        dropped = made.end()["packets"]["dropped"]
    late = S // 20
    inside_it = [n for n, at in enumerate(probe.sent) if 0.4 * S + late < at - began < 0.9 * S - late]
    outside = [n for n, at in enumerate(probe.sent) if not 0.4 * S - late < at - began < 0.9 * S + late]
    assert inside_it
    assert not probe.came.keys() & set(inside_it)
    assert set(outside) <= probe.came.keys()
    assert dropped == {"down": len(probe.sent) - len(probe.came)}


def test_delays_that_vary_keep_the_order_and_never_come_early(tmp_path: Path) -> None:
    with network(tmp_path, {"default": {"latency": {"dist": "uniform", "low": "5ms", "high": "30ms"}}}) as made:
        probe = Probe(made, 0, 1)
        probe.burst(300)
    assert probe.order == list(range(300))
    assert min(arrived - sent for sent, arrived in probe.came.values()) >= 5 * 10**6


def test_a_full_queue_drops_at_its_tail(tmp_path: Path) -> None:
    rate = {"rate": "1Mbit", "queue": {"messages": 10}}
    with network(tmp_path, {"default": {"rate": rate}}) as made:
        probe = Probe(made, 0, 1)
        for _ in range(100):
            probe.send(1500)
        probe.take(0.3)
        probe.close()
        counts = made.end()["packets"]
    assert counts["dropped"].keys() == {"queue"}
    assert counts["delivered"] == len(probe.came) == 100 - counts["dropped"]["queue"] < 50


def test_tcp_leaves_in_packets_of_the_mtu(tmp_path: Path) -> None:
    nbytes = 1 << 20
    with network(tmp_path, {"default": {"latency": "1ms"}}) as made:
        assert _sent_over_tcp(made, nbytes) == nbytes
        counts = made.end()["edges"]["0->1"]
    assert counts["sent"] >= nbytes / 1460
    assert counts["delivered"] == counts["sent"]


def _sent_over_tcp(made: PacketNetwork, nbytes: int) -> int:
    ends = [os.open(made.places[node]["namespace"], os.O_RDONLY) for node in (0, 1)]
    address = (made.places[1]["address"], 9001)
    with inside(ends[1], lambda: socket.create_server(address)) as server:
        client = inside(ends[0], lambda: socket.create_connection(address))
        taken, _ = server.accept()
        with client, taken:
            thread = threading.Thread(target=lambda: (client.sendall(bytes(nbytes)), client.shutdown(socket.SHUT_WR)))
            thread.start()
            got = 0
            while data := taken.recv(1 << 16):
                got += len(data)
            thread.join()
    for end in ends:
        os.close(end)
    return got


def test_nothing_of_the_hosts_network_changes(tmp_path: Path) -> None:
    before = _host()
    with network(tmp_path, {}, nodes=3) as made:
        Probe(made, 0, 2).burst(5)
        assert _host() == before
    assert _host() == before


def _host() -> tuple[list[str], str, str]:
    routes = Path("/proc/net/route").read_text()
    return sorted(os.listdir("/sys/class/net")), routes, os.readlink("/proc/self/ns/net")
