"""The amount of memory that a fleet's processes on one machine share for large message bodies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from netdfl.core.types import NodeId
from netdfl.host.blueprint import Blueprint
from netdfl.transport.shared_memory.memory import SharedMemory

MOST_VECTORS = 8
"""The most message bodies of a node that fit in shared memory at a time; further ones travel inside their messages.

A body takes room while it is unread or waits on a slow link.
"""
BESIDE_BYTES = 1 << 16
"""Room in bytes for the rest of a message body, beside its vector."""
MOST_OF_FREE = 0.5
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def shared_memory(blueprint: Blueprint, nodes: Sequence[NodeId]) -> SharedMemory | None:
    """Return shared memory for a few model vectors of each of `nodes`; None if vectors must travel inside messages.

    A page of memory is allocated when it is first written, so most nodes use two or three vectors.
    """
    nbytes, least = 4 * blueprint.problem.dim, getattr(blueprint.scenario.world, "shared_from", None)
    part = min(MOST_VECTORS * (nbytes + BESIDE_BYTES), int(MOST_OF_FREE * free_bytes()) // len(nodes))
    if least is None or nbytes + BESIDE_BYTES < least or part <= nbytes:
        return None
    try:
        return SharedMemory(nodes, part, least)
    except (OSError, OverflowError):
        return None


def free_bytes() -> int:
    """Return the bytes of memory that are still available on this machine or in this container."""
    return max(0, min(_bounds(), default=0))


def _bounds() -> Iterator[int]:
    with suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield 1024 * int(line.split()[1])
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # no such group, or no limit: "max"
            yield int((_CGROUP / most).read_text()) - int((_CGROUP / used).read_text())
