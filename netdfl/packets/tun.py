"""TUN devices: network interfaces of a namespace whose packets a process reads and writes."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from netdfl.core.errors import MachineError
from netdfl.core.types import NodeId
from netdfl.packets.netns import inside

MTU = 1500
DEVICE = "netdfl0"
_NETWORK = ipaddress.ip_network("10.83.0.0/16")
_QUEUE = 4096  # packets that wait for the forwarder; what does not fit is counted by the kernel as dropped

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
_NEW_ROUTE, _REPLACE_AND_ANSWER = 24, 0x505
_RTA_DST, _RTA_OIF, _RTA_SOURCE, _RTA_METRICS, _RTAX_CC = 1, 4, 7, 8, 16
_ETHTOOL = 0x8946
_SET_TX_CHECKSUM, _SET_GATHER, _SET_TSO, _SET_GSO, _SET_GRO = 0x17, 0x19, 0x1F, 0x24, 0x2C
_SET_ADDRESS, _SET_NETMASK, _SET_MTU, _SET_QUEUE = 0x8916, 0x891C, 0x8922, 0x8943


class NamespaceAddress(TypedDict):
    """The place of a node in the network: the path of its namespace, for `netns.enter`, and its IP address there."""

    namespace: str
    address: str


def places(namespaces: Mapping[NodeId, int]) -> dict[NodeId, NamespaceAddress]:
    """Return for each node the path by which other processes can enter its namespace, and its address there."""
    own = f"/proc/{os.getpid()}/fd"
    return {node: {"namespace": f"{own}/{fd}", "address": address_of(node)} for node, fd in namespaces.items()}


def address_of(node: NodeId) -> str:
    """Return the IP address of `node` in its namespace, which is the same in every run."""
    return str(_NETWORK[node + 1])


def open_tun(namespace: int, node: NodeId, tcp: str) -> int:
    """Create the device of `node` in `namespace`, with address and route; return its file descriptor.

    `tcp` names the congestion control of the node. The device has no offloads: TCP cuts its
    data into packets of the MTU, each with its checksum, as they would leave a network card. Raises
    MachineError if the kernel has no TUN, or no such congestion control.
    """
    return inside(namespace, lambda: open_device(address_of(node), tcp))


def dropped(namespace: int) -> int:
    """Return how many packets from the device in `namespace` the kernel dropped, as the forwarder was too slow."""

    def count() -> int:
        for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == DEVICE:
                return int(numbers.split()[11])
        return 0

    return inside(namespace, count)


def open_device(address: str, tcp: str) -> int:
    """Create the TUN device in the current namespace, with address and route, as `open_tun` does."""
    try:
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH14x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    except OSError as error:
        raise MachineError(
            f"/dev/net/tun can't be used ({error.strerror}); load it (modprobe tun) or let the container have it, "
            "or run it --on processes"
        ) from error
    configure(address, tcp)
    return tun


def configure(address: str, tcp: str) -> None:
    """Set up the current namespace's device with address, route and MTU, without IPv6.

    Raises MachineError if the kernel has no congestion control `tcp`.
    """
    for setting in ("all", "default"):
        with suppress(OSError):
            Path(f"/proc/sys/net/ipv6/conf/{setting}/disable_ipv6").write_text("1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _number(control, _SET_MTU, MTU)
        _number(control, _SET_QUEUE, _QUEUE)
        _address(control, _SET_ADDRESS, address)
        _address(control, _SET_NETMASK, str(_NETWORK.netmask))
        for device in ("lo", DEVICE):
            _raise(control, device)
    _route(address, tcp)


def _number(control: socket.socket, request: int, value: int) -> None:
    fcntl.ioctl(control, request, struct.pack("16si12x", DEVICE.encode(), value))


def _address(control: socket.socket, request: int, address: str) -> None:
    sockaddr = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
    fcntl.ioctl(control, request, struct.pack("16s16s", DEVICE.encode(), sockaddr))


def _raise(control: socket.socket, device: str) -> None:
    answer = fcntl.ioctl(control, _GET_FLAGS, struct.pack("16sh14x", device.encode(), 0))
    flags = struct.unpack("16xh14x", answer)[0]
    fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh14x", device.encode(), flags | _UP))


def offloads_off(device: str) -> None:
    """Turn off offloads of `device`, so that its packets have MTU size and a checksum, as on a wire."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in (_SET_TX_CHECKSUM, _SET_GATHER, _SET_TSO, _SET_GSO, _SET_GRO):
            value = array.array("I", [command, 0])
            fcntl.ioctl(control, _ETHTOOL, struct.pack("16sP16x", device.encode(), value.buffer_info()[0]))


def _route(address: str, tcp: str) -> None:
    """Set the congestion control of the route to the fleet, because the namespace's default may be restricted."""
    metrics = _attribute(_RTAX_CC, tcp.encode() + b"\0")
    attributes = (
        _attribute(_RTA_DST, _NETWORK.network_address.packed)
        + _attribute(_RTA_OIF, struct.pack("i", socket.if_nametoindex(DEVICE)))
        + _attribute(_RTA_SOURCE, socket.inet_aton(address))
        + _attribute(_RTA_METRICS, metrics)
    )
    route = struct.pack("8BI", socket.AF_INET, _NETWORK.prefixlen, 0, 0, 254, 2, 253, 1, 0) + attributes
    header = struct.pack("IHHII", 16 + len(route), _NEW_ROUTE, _REPLACE_AND_ANSWER, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.send(header + route)
        error = -struct.unpack_from("i", netlink.recv(4096), 16)[0]
    if error:
        raise MachineError(
            f"this kernel has no TCP congestion control {tcp!r} ({os.strerror(error)}); "
            f"load it (modprobe tcp_{tcp}), or use world.tcp: reno"
        )


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
