"""`node.json`: what a node that was started by hand says of itself, for its next life and for `netdfl collect`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.returns import Return, find_return
from netdfl.record.directory import RunDirectory
from netdfl.record.forms import OPEN, Count, Nanoseconds, NodeField, Seconds, read_form
from netdfl.transport.security.identity import MOST_EPOCH

NODE_FILE = "node.json"


class Stage(StrEnum):
    """How far a node came; the last that it wrote before it died is what is known of it."""

    GATHERING = "gathering"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    CRASHED = "crashed"
    FAILED = "failed"
    BROKE = "broke"


@with_config(OPEN)
class Crash(TypedDict):
    """A scripted crash: when, and which entry of `events` it is of."""

    at_ns: Nanoseconds
    source: Count
    at_round: Count | None


@dataclass(kw_only=True)
class NodeRecord:
    """One node of one run. `run_id` is hexadecimal, `epoch` counts restarts, `round` is the last that it began.

    `start_monotonic_ns` is the fleet's start by the machine's monotonic clock, for what runs beside the node;
    `at_s` is when it was written, in seconds since that start. `versions` are what it ran on, `crash` the details of a
    scripted crash.
    """

    node: NodeField
    run_id: Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$", max_length=16)]
    epoch: Annotated[Count, Field(le=MOST_EPOCH)]
    scenario_hash: str
    stage: Stage = Stage.GATHERING
    round: Count = 0
    loss: float | None = None
    start_monotonic_ns: int | None = None
    at_s: Seconds | None = None
    address: str = ""
    pid: int = 0
    reason: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    crash: Crash | None = None

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """What the node in `directory` last said; None where there is none. Raises InputError."""
        return read_form(directory / NODE_FILE, TypeAdapter(cls))

    def planned_return(self, events: Sequence[CompiledEvent]) -> Return | None:
        """When the schedule has the node live again; None: it did not crash by the schedule, or never returns."""
        if self.stage is not Stage.CRASHED or self.crash is None:
            return None
        how = self.crash
        return find_return(events, self.node, how["at_ns"], source=how["source"], at_round=how["at_round"])

    def write(self, directory: Path) -> None:
        """Write it, whole or not at all. Raises RunError."""
        RunDirectory(directory).write_json(NODE_FILE, asdict(self))
