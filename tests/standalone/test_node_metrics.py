"""The metrics of a node by hand: where it may be scraped, and what it says of itself."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from netdfl.core.errors import InputError
from netdfl.exports.metrics import MetricValues
from netdfl.standalone import metrics_server
from netdfl.standalone.metrics import NodeFigures, WaitCounter, offered
from netdfl.standalone.metrics_server import MOST_CONNECTIONS, MOST_HEAD
from netdfl.standalone.request import metrics_address
from tests.host.test_scripted_ends import node


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_port_alone_is_on_the_loopback() -> None:
    assert metrics_address("9100") == ("127.0.0.1", 9100)
    assert metrics_address("10.0.0.2:9100") == ("10.0.0.2", 9100)
    for wrong in ("", "nine", "0", "65536", "host:", ":9100"):
        with pytest.raises(InputError, match="no address"):
            metrics_address(wrong)


def test_each_scrape_asks_for_the_figures_of_its_moment_and_the_end_closes_the_port() -> None:
    port, round = free_port(), 0

    def figures() -> MetricValues:
        nonlocal round
        round += 1
        return MetricValues(labels={"run": "a", "node": "3"}, rounds_done=round)

    with offered(("127.0.0.1", port), figures):
        for number in (1, 2):
            text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
            assert f'netdfl_rounds_done{{node="3",run="a"}} {number}.0' in text
        with (
            pytest.raises(InputError, match=rf"127.0.0.1:{port}: .*; name another --metrics"),
            offered(("127.0.0.1", port), figures),
        ):
            pass
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30)
    with offered(None, figures):
        assert round == 2


def half_requests(port: int, count: int) -> list[socket.socket]:
    """Connections that begin a request and do not end it."""
    found = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(count)]
    for each in found:
        each.sendall(b"GET /metrics HTTP/1.1\r\n")
    return found


def is_ended(connection: socket.socket) -> bool:
    """Whether the other side ends the connection, also by a reset; it is waited for."""
    with suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


def test_strangers_hold_few_connections_and_keep_nobody_out(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with offered(("127.0.0.1", port), lambda: MetricValues(labels={"run": "a"})):
        threads = threading.active_count()
        held = half_requests(port, 3 * MOST_CONNECTIONS)
        text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
        assert 'netdfl_rounds{run="a"}' in text
        assert all(is_ended(each) for each in held[: 2 * MOST_CONNECTIONS])
        while threading.active_count() > threads + MOST_CONNECTIONS:
            time.sleep(0.01)
        for each in held:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).close()
    assert capfd.readouterr() == ("", "")


def test_a_silent_caller_is_left_and_a_long_request_is_not_read_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    monkeypatch.setattr(metrics_server, "SILENCE_S", 0.1)
    with offered(("127.0.0.1", port), lambda: MetricValues(labels={"run": "a"})):
        [silent] = half_requests(port, 1)
        with silent:
            assert is_ended(silent)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as endless:
            endless.sendall(b"GET /metrics HTTP/1.1\r\nlong: " + b"x" * MOST_HEAD)
            assert endless.recv(8) == b"HTTP/1.0"
        odd = Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": "text/plain; version=odd"})
        with pytest.raises(HTTPError, match="500"):
            urlopen(odd, timeout=30)
    assert capfd.readouterr() == ("", "")


def test_requests_at_the_same_time_ask_for_figures_one_after_the_other() -> None:
    port, inside, most = free_port(), 0, 0

    def figures() -> MetricValues:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.05)
        inside -= 1
        return MetricValues(labels={"run": "a"})

    with offered(("127.0.0.1", port), figures), ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda _: urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read(), range(4)))
    assert (len(texts), most) == (4, 1)


def test_waits_are_counted_as_the_record_grows(tmp_path: Path) -> None:
    file = tmp_path / "waits-001.jsonl"
    counter = WaitCounter(file)
    assert counter.counts() == {}
    rows = [
        json.dumps({"ended": ended, "since_s": 1, "until_s": until}) for ended, until in (("came", 2), ("deadline", 3))
    ]
    file.write_text(rows[0] + "\n" + rows[1][:10])
    assert counter.counts() == {"came": (1, 1.0)}
    file.write_text(rows[0] + "\n" + rows[1] + "\n" + rows[0] + "\n")
    assert counter.counts() == {"came": (2, 2.0), "deadline": (1, 2.0)}
    assert counter.counts() == {"came": (2, 2.0), "deadline": (1, 2.0)}


async def test_a_node_says_where_it_stands(tmp_path: Path) -> None:
    living, _ = node(tmp_path)
    (tmp_path / "store/waits-001.jsonl").write_text('{"ended": "came", "since_s": 1, "until_s": 2}\n')
    found = NodeFigures.of(living, tmp_path)()
    assert (found.labels, found.rounds, found.rounds_done) == ({"run": "ends", "node": "1"}, 9, 0)
    assert (found.node_rounds, found.phases, found.waiting) == ({"1": 0}, {"starting": 1}, {})
    assert found.waits == {"came": (1, 1.0)}
    living.host.started.set()
    living.host.parts.ledger.sent_count, living.host.parts.ledger.bytes_sent = 3, 90
    found = NodeFigures.of(living, tmp_path)()
    assert (found.phases, found.messages["unfinished"], found.bytes_sent) == ({"running": 1}, 3, 90)
    living.host.finished = True
    found = NodeFigures.of(living, tmp_path)()
    assert (found.phases, found.rounds_done) == ({"finished": 1}, 9)
    assert list(found.processes) == ["node 1"]
