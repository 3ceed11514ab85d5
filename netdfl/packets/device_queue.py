"""The waits of packets in a device before the forwarder reads them, derived from TCP time stamps.

The kernel does not report such waits. But TCP writes a time stamp into a segment when it hands the segment to the
device (RFC 7323, in milliseconds from an origin that each connection chooses). So the difference between the time of
reading and the stamp is smallest for the segment of a connection that waited least; what the difference for another
segment exceeds this minimum by is that segment's wait.
"""

from __future__ import annotations

from collections import Counter

from netdfl.core.types import Edge

_TCP = 6
_TIMESTAMP = b"\x01\x01\x08\x0a"
_MOST, _HALF = 1 << 32, 1 << 31
_NS_PER_MS = 1_000_000

Connection = tuple[Edge, bytes]


class DeviceQueue:
    """A histogram of the waits of TCP segments in a device before they were read; bin n has waits below 2^n ns."""

    def __init__(self) -> None:
        """Start with an empty histogram."""
        self.waits: Counter[int] = Counter()
        self._least_ms: dict[Connection, int] = {}

    def look(self, edge: Edge, packet: bytes, read_ns: int) -> None:
        """Add the wait of `packet`, an IPv4 packet of `edge` read at `read_ns`; ignore it without a time stamp."""
        header = (packet[0] & 15) * 4
        if packet[9] != _TCP or packet[header + 20 : header + 24] != _TIMESTAMP:
            return
        stamp_ms = int.from_bytes(packet[header + 24 : header + 28])
        since_ms = (read_ns // _NS_PER_MS - stamp_ms) % _MOST
        connection = edge, packet[header : header + 4]
        least_ms = self._least_ms.setdefault(connection, since_ms)
        waited_ms = (since_ms - least_ms + _HALF) % _MOST - _HALF
        if waited_ms < 0:
            self._least_ms[connection] = since_ms
        self.waits[(max(0, waited_ms) * _NS_PER_MS).bit_length()] += 1


def quantile_ns(counted: Counter[int], share: float) -> int:
    """Return an upper bound in ns of a quantile of times, `share` 0.5 for the median; 0 if there are no times.

    `counted` has the number of times in each class [2^(n-1), 2^n) ns, by n.
    """
    left = share * counted.total()
    for bits, count in sorted(counted.items()):
        left -= count
        if left <= 0:
            return int(1 << bits)
    return 0
