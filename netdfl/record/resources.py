"""The CPU time and the memory of a run's processes by time: a table of its own, outside the event log and its hash.

Each process with nodes samples itself every two seconds, so that it need not be visible from outside its namespace,
container or machine. The supervisor also samples the processes beside it that have no nodes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from netdfl.core.errors import RunError
from netdfl.core.types import NodeId
from netdfl.record.plain_json import dump_json
from netdfl.record.store import STORE, RowTable

EVERY_S = 2.0
PROC = Path("/proc")
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""Indices of the parent's id and of the times in user and system mode in `/proc/PID/stat`.

They count the fields after the process name, which ends with the last closing bracket.
"""


class Usage(NamedTuple):
    """The resources that one process uses.

    Attributes:
        cpu_s: CPU seconds since the process began.
        memory_bytes: bytes of memory now; None if unknown.
        gpu_bytes: bytes of GPU memory that PyTorch holds for the process; None without a GPU.
    """

    cpu_s: float
    memory_bytes: int | None
    gpu_bytes: int | None = None


def usage_here() -> Usage:
    """Return the usage of this process; without `/proc` its memory is unknown."""
    return Usage(time.process_time(), _memory_bytes("self"), _gpu_bytes())


def usage_of(pid: int) -> Usage | None:
    """Return the usage of another process of this machine; None if it is gone, or there is no `/proc`."""
    fields = _stat(pid)
    if not fields:
        return None
    return Usage((int(fields[_USER]) + int(fields[_SYSTEM])) / os.sysconf("SC_CLK_TCK"), _memory_bytes(str(pid)))


def parent_of(pid: int) -> int | None:
    """Return the id of the parent process of the process `pid` of this machine; None if it is unknown."""
    fields = _stat(pid)
    return int(fields[_PARENT]) if fields else None


def _stat(pid: int) -> Sequence[str]:
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ()


def _memory_bytes(process: str) -> int | None:
    try:
        return int((PROC / process / "statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None


def _gpu_bytes() -> int | None:
    """Return the GPU memory that PyTorch holds, if it was imported and has used a GPU; this starts no GPU."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return sum(int(cuda.memory_reserved(device)) for device in range(cuda.device_count()))


def process_name(nodes: Sequence[NodeId]) -> str:
    """Return the name of a process that hosts `nodes`, whose ids are consecutive."""
    return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {nodes[0]} to {nodes[-1]}"


class ResourceLog:
    """A log of the resources of this process, and of others that it knows, in `DIR/store/resources-<name>.jsonl`.

    No other part of the record writes to this file.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        process: str,
        now_s: Callable[[], float],
        *,
        node: NodeId | None = None,
        others: Callable[[], Mapping[str, int]] = dict,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write below the run directory `directory`.

        Args:
            directory: the directory of the run.
            name: the part of the file's name that differs between processes.
            process: the name of this process for readers.
            now_s: returns the time of the run in seconds.
            node: the first node in this process; None if it has no nodes.
            others: returns the ids of other processes of this machine, by their names for readers.
            monotonic_s: returns the time in seconds by which samples are two seconds apart.
        """
        self._table: RowTable[str] = RowTable(directory / STORE / f"resources-{name}.jsonl", iter)
        self._process, self._node, self._now_s = process, node, now_s
        self._others, self._monotonic_s = others, monotonic_s
        self._due_s = -1.0

    def sometimes(self) -> None:
        """Take a sample if two seconds have passed since the last. Raises RunError if it can't be written."""
        if self._monotonic_s() >= self._due_s:
            self.take()

    def take(self) -> None:
        """Take a sample now. Raises RunError if it can't be written."""
        self._due_s = self._monotonic_s() + EVERY_S
        at_s = self._now_s()
        self._add(at_s, self._process, self._node, os.getpid(), usage_here())
        for name, pid in self._others().items():
            if (usage := usage_of(pid)) is not None:
                self._add(at_s, name, None, pid, usage)
        self._table.flush()

    def _add(self, at_s: float, process: str, node: NodeId | None, pid: int, usage: Usage) -> None:
        row = {
            "at_s": round(at_s, 3),
            "process": process,
            "node": node,
            "pid": pid,
            "cpu_s": round(usage.cpu_s, 4),
            "memory_bytes": usage.memory_bytes,
            "gpu_bytes": usage.gpu_bytes,
        }
        self._table.add(dump_json(row) + "\n")

    def close(self) -> None:
        """Take a last sample, and close the file. Errors of the disk are ignored here; others report them."""
        try:
            self.take()
            self._table.close()
        except RunError:
            return
