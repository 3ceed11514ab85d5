"""The record `node.json` of a manually started node, for its next start and for `netdfl collect`."""

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


class NodeStage(StrEnum):
    """The stage that a node had reached when it last wrote its record; after an unplanned death, the stage before."""

    GATHERING = "gathering"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    CRASHED = "crashed"
    FAILED = "failed"
    BROKE = "broke"


@with_config(OPEN)
class CrashForm(TypedDict):
    """The JSON form of a scheduled crash: its time, and the index (`source`) of its entry in the key `events`."""

    at_ns: Nanoseconds
    source: Count
    at_round: Count | None


@dataclass(kw_only=True)
class NodeRecord:
    """The record of one node in one run.

    Attributes:
        node: the node.
        run_id: the id of the run, hexadecimal.
        epoch: how often the node's process has restarted.
        scenario_hash: the hash of the scenario.
        open: whether the fleet had no secret, so that any process that reached its ports could take part.
        stage: how far the node has come.
        round: the last round that it began.
        loss: its last training loss; None: not finite.
        start_monotonic_ns: the fleet's start on the monotonic clock of the machine, for other processes there.
        at_s: when this was written, in seconds since that start.
        address: the address at which the node listens.
        pid: the id of its process.
        reason: why it failed; empty: it did not.
        versions: its versions of packages.
        crash: the scripted crash that ended it; None: none did.
    """

    node: NodeField
    run_id: Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$", max_length=16)]
    epoch: Annotated[Count, Field(le=MOST_EPOCH)]
    scenario_hash: str
    open: bool = False
    stage: NodeStage = NodeStage.GATHERING
    round: Count = 0
    loss: float | None = None
    start_monotonic_ns: int | None = None
    at_s: Seconds | None = None
    address: str = ""
    pid: int = 0
    reason: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    crash: CrashForm | None = None

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Read the last record of the node in `directory`; None if there is none. Raises InputError."""
        return read_form(directory / NODE_FILE, TypeAdapter(cls))

    def planned_return(self, events: Sequence[CompiledEvent]) -> Return | None:
        """Return when the schedule restarts the node; None if it crashed unplanned or never returns."""
        if self.stage is not NodeStage.CRASHED or self.crash is None:
            return None
        how = self.crash
        return find_return(events, self.node, how["at_ns"], source=how["source"], at_round=how["at_round"])

    def write(self, directory: Path) -> None:
        """Write the record, completely or not at all. Raises RunError."""
        RunDirectory(directory).write_json(NODE_FILE, asdict(self))
