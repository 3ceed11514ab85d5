"""Runs a fleet, and plays one on: no ending by what a diagnosis says, far past all that is scripted.

What is left then, where it stands, and what it waits for are read from the nodes themselves.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import Kind, NodeId
from netdfl.core.units import parse_time_ns
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.snapshot import Snapshot
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.rows import MemoryStore
from netdfl.record.status import Phase
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.stalls import ExactWatch, settings_of
from netdfl.supervisor.supervisor import Supervisor
from netdfl.worlds.simulated.world import SimulatedWorld

TIMES = 10
"""A fleet in which nothing moves is played on for so many times its longest deadline."""
SLOWEST_NS = 3 * NS_PER_S
"""The longest local round of a drawn fleet."""
FREEZE = (2, 8, 64)
"""At these plays all that is there is taken for what stays, and not looked through again by the collector."""
LIMIT_S = 60.0
"""A run that computes for longer is one that does not end."""


@dataclass(frozen=True)
class Wait:
    """What a node waits for: `need` of `sources` (None: whoever sends), of which those in `have` came.

    Those in `out` are not waited for: taken for gone, or given up. `cumulative`: a later message does as well.
    """

    round: int
    step: int
    kind: Kind
    sources: frozenset[NodeId] | None
    need: int
    have: frozenset[NodeId]
    out: frozenset[NodeId]
    since_ns: int
    deadline_ns: int | None
    cumulative: bool


@dataclass(frozen=True)
class Stand:
    """Where a node stands: `finished`, `crashed`, `paused`, or else it goes on, and `waits` or is held up in `sending`.

    Its present life began at `born_ns`; `next` is the first round and step for which it may still send something.
    """

    node: NodeId
    state: str
    round: int
    next: tuple[int, int]
    born_ns: int
    wait: Wait | None = None
    sending: frozenset[NodeId] = frozenset()
    serves: bool = False


@dataclass
class Played:
    """A run: `stands` where all nodes were when it ended at `ended_ns`, and nothing had moved since `moved_ns`."""

    run: ExploredRun
    stands: Mapping[NodeId, Stand] = field(default_factory=dict)
    ended_ns: int = 0
    moved_ns: int = 0
    rounds: Mapping[NodeId, Mapping[int, int]] = field(default_factory=dict)
    cpu_s: float = 0.0

    @property
    def rows(self) -> MemoryStore:
        """What it recorded."""
        return self.run.rows


class Watched(ExactWatch):
    """The watch as it is, whose end is looked at; remedies are tried as those of a run that is kept."""

    def prepare(self, allows: Callable[[str], bool]) -> None:
        """Begin."""
        self.allows = allows
        self.moved_ns = 0
        self.began: dict[NodeId, dict[int, int]] = {node: {} for node in self.fleet.nodes}
        self.stands: dict[NodeId, Stand] = {}

    def heard(self, node: NodeId, round: int, now_ns: int) -> None:
        """`node` is in `round`."""
        if round not in self.began[node]:
            self.began[node][round] = self.moved_ns = now_ns
        super().heard(node, round, now_ns)

    def finish(self) -> None:
        """Look where all stand, before the fleet is taken down."""
        self.stands = {node: self._stand(node) for node in self.fleet.nodes}
        super().finish()

    def _stand(self, node: NodeId) -> Stand:
        simulated: Any = self.world.nodes[node]  # type: ignore[attr-defined]
        host = simulated.host
        phase = self.fleet.status.nodes[node].phase
        state = {Phase.FINISHED: "finished", Phase.CRASHED: "crashed", Phase.DIED: "died"}.get(phase, "runs")
        if state == "runs" and host.gate.closed:
            state = "paused"
        return Stand(
            node,
            state,
            max(host.node.round, 0),
            host.node.next_step,
            host.node.born_ns,
            _wait_of(host.node) if state in ("runs", "paused") else None,
            frozenset(dst for multicast in host.parts.outgoing.held_up[0] for dst in multicast.dsts),
            host.node.requests.serving,
        )


def _wait_of(node: Any) -> Wait | None:
    wait, policy = node.waits.current, node.waits.policy
    if wait is None:
        return None
    gone = frozenset() if policy.essential else frozenset(node.waits.gone)
    return Wait(
        wait.round,
        wait.step,
        wait.kind,
        wait.sources,
        wait.need,
        frozenset(wait.have),
        gone | wait.silent,
        wait.since_ns,
        wait.deadline_ns,
        policy.cumulative,
    )


class Patient(Watched):
    """Ends a run where nothing can happen any more, or where nothing has moved for `quiet_ns` after `past_ns`.

    What a diagnosis says ends nothing. Where the scenario has stalls ended, that goes on as it is.
    """

    past_ns = quiet_ns = 0
    acts = False

    def look(self, now_ns: int) -> None:
        """Look whether anything moves."""
        if self.acts:
            super().look(now_ns)
        else:
            self.due_ns = now_ns + self.quiet_ns // 8
        live = (each.host for each in self.world.nodes.values() if not each.ended)  # type: ignore[attr-defined]
        waits = (host.node.waits.current for host in live if not host.gate.closed)
        ends = any(wait is not None and wait.deadline_ns is not None for wait in waits)
        if now_ns > max(self.past_ns, self.moved_ns + self.quiet_ns) and not ends and not self.restarts.due:
            super()._end()

    def idle(self) -> None:
        """Nothing can run and nothing is due."""
        if self.acts:
            snapshot, found = self.seen(idle=True)
            self._tell(found, snapshot)
            if self._recover(found, snapshot):
                return
        super()._end()

    def server_done(self) -> None:
        """Clients have all the time that there is."""

    def _recover(self, found: Sequence[Finding], snapshot: Snapshot) -> bool:
        acted = super()._recover(found, snapshot)
        if acted:
            self.moved_ns = self.fleet.now_ns()
        return acted

    def _end(self) -> None:
        """Not for what was found."""


class Player(Executor):
    """Runs scenarios in memory, as explorations do, under a watch of its own."""

    def __init__(self) -> None:
        """Nothing was run."""
        super().__init__(LIMIT_S)
        self.watch: type[Watched] = Watched
        self.remedies = False
        self._watched: Watched | None = None
        self._plays = 0

    def play(self, scenario: Scenario, watch: type[Watched] = Watched, *, remedies: bool = False) -> Played:
        """Run `scenario` under `watch`."""
        self.watch, self.remedies, self._watched = watch, remedies, None
        self._plays += 1
        if self._plays in FREEZE:  # what was imported since stays, too
            gc.collect()
            gc.freeze()
        began = time.process_time()
        run = self.run(scenario)
        took = time.process_time() - began
        watched = self._watched
        if watched is None:
            return Played(run, cpu_s=took)
        return Played(run, watched.stands, run.length_ns, watched.moved_ns, watched.began, took)

    def _watch(self, scenario: Scenario, supervisor: Supervisor, world: SimulatedWorld) -> None:
        watch = self.watch(supervisor.fleet, supervisor.restarts, world)
        watch.prepare(settings_of(scenario) if self.remedies else lambda setting: False)
        if isinstance(watch, Patient):
            watch.past_ns, watch.quiet_ns = past_ns(scenario), quiet_ns(scenario)
            watch.acts = scenario.wait.on_stall != "stop"
        supervisor.stalls = self._watched = watch


# for how long a fleet is played on


def past_ns(scenario: Scenario) -> int:
    """A time past all that is scripted by the clock, so far as a fleet of these rounds can come to it."""
    times = [_time(event, "at") + _time(event, "for") + _time(event, "restart_after") for event in scenario.events]
    return max(times, default=0)


def quiet_ns(scenario: Scenario) -> int:
    """Ten times the longest that a fleet may take over one thing."""
    longest = [SLOWEST_NS]
    if isinstance(scenario.wait.deadline, int):
        longest.append(scenario.wait.deadline)
    detector: Any = scenario.failure_detector
    if detector.kind == "heartbeat":
        longest.append(detector.every * (detector.misses + 1))
        if loses_by_chance(scenario):  # every other heartbeat: so long on average until as many in a row are lost
            longest.append(detector.every * 2 ** (detector.misses + 1))
    delivery: Any = scenario.delivery
    if delivery.kind == "acknowledged":
        first_ns = 500_000_000 if delivery.timeout == "auto" else delivery.timeout
        longest += [32 * first_ns, sum(first_ns * 2 ** min(again, 5) for again in range(delivery.attempts + 1)) // 8]
    longest += [_time(event, key) for event in scenario.events for key in ("by", "for", "restart_after")]
    return TIMES * max(longest)


def loses_by_chance(scenario: Scenario) -> bool:
    """Whether some link loses some messages, and not all."""
    links = [entry.written() for entry in scenario.links.values()]
    return any("0.5" in str(each.get("loss")) for each in (*links, *scenario.events))


def _time(event: Mapping[str, Any], key: str) -> int:
    return parse_time_ns(event[key]) if key in event else 0


def names(nodes: Collection[NodeId]) -> str:
    """`1, 2`."""
    return ", ".join(map(str, sorted(nodes))) or "nobody"
