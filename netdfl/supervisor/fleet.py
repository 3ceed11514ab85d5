"""The state of a supervised fleet and the connection to its nodes, shared by all parts of a supervisor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from netdfl.core.control import Gone, Hello, Progress
from netdfl.core.fates import MessageCounts
from netdfl.core.types import NodeId
from netdfl.core.whose import theirs
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.returns import joins_by_node, returns_by_node
from netdfl.record.base import Store
from netdfl.record.directory import RunDirectory
from netdfl.record.status import AWAY, FleetStatus
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.model.schema import Scenario
from netdfl.worlds.base import VirtualWorld, World


@dataclass(kw_only=True)
class FleetState:
    """The state of one fleet.

    Attributes:
        scenario: the scenario.
        directory: the run directory.
        world: where and how the nodes run, such as simulated or as processes.
        status: the status that displays show.
        store: the store of the record.
        note: is called with each message for the user.
        start_ns: the reading of this machine's clock at time 0 of the fleet; None: the fleet has not started.
        error: the error that ends the run.
        changed: set by events that may end a wait of the supervisor.
        hellos: the last introduction (`Hello`) of each node, and of the evaluator.
        epochs: the number of the latest start of each node's process, 0 for the first.
        progress: the last progress report, by node and number of its process's start.
        begun_s: when the run began, by the monotonic clock.
    """

    scenario: Scenario
    directory: RunDirectory
    world: World
    status: FleetStatus
    store: Store
    note: Callable[[str], None]
    start_ns: int | None = None
    error: Exception | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    hellos: dict[NodeId, Hello] = field(default_factory=dict)
    epochs: dict[NodeId, int] = field(default_factory=dict)
    progress: dict[tuple[NodeId, int], Progress] = field(default_factory=dict)
    begun_s: float | None = None

    @cached_property
    def schedule(self) -> list[CompiledEvent]:
        """The scenario's scripted events, expanded into single ones and sorted."""
        return compile_schedule(self.scenario)

    @cached_property
    def returns(self) -> dict[NodeId, list[CompiledEvent]]:
        """The scripted restarts of each node that has any."""
        return returns_by_node(self.schedule)

    @cached_property
    def joins(self) -> dict[NodeId, CompiledEvent]:
        """For each node that joins late, its scripted join."""
        return joins_by_node(self.schedule)

    def now_ns(self) -> int:
        """Return the time on the fleet's clock, virtual or real, in ns; 0 before the start."""
        return 0 if self.start_ns is None else self.world.clock.now_ns()

    def broke(self, error: Exception) -> None:
        """Record an error that ends the run; only the first one counts."""
        begun = self.start_ns is not None
        self.error = self.error or (theirs(error) if begun else None) or error
        self.changed.set()

    @property
    def nodes(self) -> range:
        """The ids of all nodes; a server has the last one."""
        return range(self.scenario.num_nodes)

    @property
    def server(self) -> NodeId | None:
        """The id of the server; None if there is none."""
        return self.scenario.nodes if self.scenario.has_server else None

    @property
    def live(self) -> set[NodeId]:
        """The nodes that are running or have finished."""
        return {n for n, s in self.status.nodes.items() if s.phase not in AWAY}

    @property
    def running(self) -> list[NodeId]:
        """The nodes that have rounds left."""
        return [own.node for own in self.status.running]

    @property
    def oracle(self) -> bool:
        """Whether the nodes' failure detector is an oracle: the supervisor, which knows which nodes are down."""
        return bool(self.scenario.failure_detector.kind == "oracle")

    def tell_gone(self, node: NodeId, reason: str) -> None:
        """Order the other nodes to count `node` as gone, for the `reason`, if the failure detector is the oracle."""
        for other in sorted(self.live) if self.oracle else ():
            self.world.order(other, Gone(node, reason))

    def add_up(self) -> None:
        """Update the totals of time, bytes and messages in the fleet's status, even before the nodes' common start."""
        self.status.elapsed_s = self.status.wall_s = max(0, self.now_ns()) / 1e9
        if isinstance(self.world, VirtualWorld):
            self.status.wall_s = 0.0 if self.begun_s is None else time.monotonic() - self.begun_s
            self.status.bytes_sent, self.status.messages = self.world.sent()
            return
        self.status.bytes_sent = sum(each.bytes_sent for each in self.progress.values())
        self.status.messages = MessageCounts.total(each.messages for each in self.progress.values())
