"""Who called, by the kernel's own table of sockets."""

from __future__ import annotations

import os
import socket

import pytest

from netdfl.transport.security.callers import MOST_USERS, caller, user_at

TABLE = os.path.exists("/proc/net/tcp")


@pytest.mark.skipif(not TABLE, reason="no Linux")
@pytest.mark.parametrize(("host", "kind"), [("127.0.0.1", "ipv4"), ("::1", "ipv6"), ("mapped", "ipv6")])
def test_a_caller_of_this_machine_is_named_with_its_user(host: str, kind: str) -> None:
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    address = "127.0.0.1" if host == "mapped" else host
    with socket.socket(family) as server:
        try:
            server.bind((address, 0))
        except OSError:
            pytest.skip(f"this machine has no {address}")
        server.listen()
        with socket.create_connection(server.getsockname()[:2]) as client:
            port = client.getsockname()[1]
            shown = {
                "127.0.0.1": f"127.0.0.1:{port}",
                "::1": f"%5B::1%5D:{port}",
                "mapped": f"[::ffff:127.0.0.1]:{port}",
            }
            peer = f"{kind}:{shown[host]}"
            assert user_at(peer) == os.getuid()
            assert caller(peer).endswith(f":{port}, user {os.getuid()}")


@pytest.mark.parametrize(
    "peer", ["", "unix:", "unix:/tmp/x", "ipv4:203.0.113.9:4711", "ipv4:nobody:1", "ipv6:[::1]:x", "ipv4:127.0.0.1:0"]
)
def test_of_others_the_address_alone_is_known(peer: str) -> None:
    assert user_at(peer) is None
    assert caller(peer) == peer


def test_of_very_many_callers_the_first_are_named_with_their_user(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def user(peer: str) -> int:
        asked.append(peer)
        return 7

    monkeypatch.setattr("netdfl.transport.security.callers.user_at", user)
    caller.cache_clear()
    told = [caller(f"ipv4:203.0.113.9:{port}") for port in range(MOST_USERS + 5)]
    caller.cache_clear()
    assert asked == [f"ipv4:203.0.113.9:{port}" for port in range(MOST_USERS)]
    assert told[MOST_USERS - 1 : MOST_USERS + 1] == [f"{asked[-1]}, user 7", f"ipv4:203.0.113.9:{MOST_USERS}"]


def test_a_strangers_text_stays_on_one_line() -> None:
    assert caller("ipv4:\x1b[2J\n1") == "ipv4:?[2J?1"
