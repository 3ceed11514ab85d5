"""`node.json`: what a node that was started by hand says of itself, for its next life and for `netdfl collect`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from netdfl.core.errors import InputError
from netdfl.core.types import NodeId
from netdfl.fleet.script import Return, find_return
from netdfl.links.schedule.events import CompiledEvent
from netdfl.record.run import RunDirectory

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


@dataclass(kw_only=True)
class NodeRecord:
    """One node of one run. `run_id` is hexadecimal, `epoch` counts restarts, `round` is the last that it began.

    `start_monotonic_ns` is the fleet's start by the machine's monotonic clock, for what runs beside the node;
    `at_s` is when it was written, in seconds since that start. `crash` are the details of a scripted crash.
    """

    node: NodeId
    run_id: str
    epoch: int
    scenario_hash: str
    stage: Stage = Stage.GATHERING
    round: int = 0
    loss: float | None = None
    start_monotonic_ns: int | None = None
    at_s: float | None = None
    address: str = ""
    pid: int = 0
    reason: str = ""
    crash: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """What the node in `directory` last said; None where there is none. Raises InputError."""
        path = directory / NODE_FILE
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            return cls(**said | {"stage": Stage(said["stage"])})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path} can't be read as what a node says of itself: {error}") from error

    def planned_return(self, events: Sequence[CompiledEvent]) -> Return | None:
        """When the schedule has the node live again; None: it did not crash by the schedule, or never returns."""
        if self.stage is not Stage.CRASHED or self.crash is None:
            return None
        how = self.crash
        return find_return(events, self.node, how["at_ns"], source=how["source"], at_round=how["at_round"])

    def write(self, directory: Path) -> None:
        """Write it, whole or not at all. Raises RunError."""
        RunDirectory(directory).write_json(NODE_FILE, asdict(self))
