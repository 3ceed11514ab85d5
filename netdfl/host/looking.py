"""What a machine is asked before any node lives there: its addresses, what the network does, what is installed.

A fork server has a child answer, so that it stays as it is. Questions and answers are plain data.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

from netdfl.core.types import Json
from netdfl.host.facts import facts
from netdfl.host.measuring import Served, measured

_SIOCGIFADDR = 0x8915
Answer = dict[str, Any]


def answer(question: Json, say: Callable[[Answer], None]) -> None:
    """Answer one question by `say`; who serves measurements goes on until it is killed."""
    if "serve" in question:
        with Served(**question["serve"]) as served:
            say({"port": served.port, "pid": os.getpid()})
            served.serve_forever()
    elif "measure" in question:
        asked = question["measure"]
        targets = {name: (str(host), int(port)) for name, (host, port) in asked["targets"].items()}
        say({"measured": measured(asked["what"], targets, asked["token"])})
    elif "network" in question:
        say({"address": address_in(question["network"]), "has": interfaces()})
    elif "facts" in question:
        say({"facts": facts(question["facts"])})
    else:
        say({"unknown": sorted(question)})


def interfaces() -> dict[str, str]:
    """The interfaces of this machine that have an address, and that."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                told = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            found[name] = socket.inet_ntoa(told[20:24])
    return found


def address_in(network: str) -> str:
    """This machine's address in `network`, which is an interface or like 10.0.0.0/8; empty: it has none."""
    has = interfaces()
    if network in has:
        return has[network]
    try:
        wanted = ipaddress.ip_network(network, strict=False)
    except ValueError:
        return ""
    return next((address for address in has.values() if ipaddress.ip_address(address) in wanted), "")
