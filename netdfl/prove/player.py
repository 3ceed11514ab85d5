"""The simulation of a fleet under one schedule of faults, until nothing more can happen.

No diagnosis of a stall ends such a run: it ends only when no node and no message makes progress.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from typing_extensions import override

from netdfl.core.types import Json, Kind, LogicalId, Message, NodeId
from netdfl.core.units import parse_time_ns
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.snapshot import Snapshot
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.rows import EventRow, MemoryStore
from netdfl.node.shares import weight_in
from netdfl.record.status import Phase
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import SimulatedOptions
from netdfl.supervisor.stalls import ExactWatch
from netdfl.supervisor.supervisor import FleetOutcome, Supervisor
from netdfl.worlds.simulated.instants import DueInstant
from netdfl.worlds.simulated.world import SimulatedWorld

TIMES = 10
"""A fleet without progress is simulated further for this many times its longest deadline before its run is ended."""


@dataclass(frozen=True)
class FleetEnd:
    """The state of the fleet at the end of a simulated run.

    Attributes:
        left: the nodes that are alive and have not finished.
        idle: the nodes in `left` that have nothing left to do, as their server has finished.
        died: the nodes whose process ended by an error.
        away: the nodes that crashed and do not return.
        weight: the push-sum weight in nodes, in messages under way and in unacknowledged ones; None without weights.
        moved_ns: the time since which no node and no message made progress.
    """

    left: frozenset[NodeId] = frozenset()
    idle: frozenset[NodeId] = frozenset()
    died: frozenset[NodeId] = frozenset()
    away: frozenset[NodeId] = frozenset()
    weight: float | None = None
    moved_ns: int = 0


@dataclass(frozen=True)
class Play:
    """One simulated run of a scenario under a schedule of faults.

    Attributes:
        events: the scenario events that were added: faults, and orders of messages and timers due at one instant.
        run: the run with its record.
        end: the state of the fleet at the end.
        instants: the messages and timers that were due at each instant, in scenarios in which these happen one by one;
            else empty.
    """

    events: tuple[Json, ...]
    run: ExploredRun
    end: FleetEnd = field(default_factory=FleetEnd)
    instants: Sequence[DueInstant] = ()


class PatientWatch(ExactWatch):
    """A stall watch that ends a run when nothing more can happen.

    It also ends a run after `quiet_ns` nanoseconds without progress, but not before the time `past_ns`. With `acts`,
    the watch also ends stalls as the scenario says: awaited messages are skipped or sent again.
    """

    past_ns = quiet_ns = moved_ns = 0
    acts = False
    fleet_end = FleetEnd()

    @override
    def heard(self, node: NodeId, round: int, now_ns: int) -> None:
        if self.pace.rounds[node][0] != round:
            self.moved_ns = now_ns
        super().heard(node, round, now_ns)

    @override
    def look(self, now_ns: int) -> None:
        if self.acts:
            super().look(now_ns)
        else:
            self.due_ns = now_ns + max(1, self.quiet_ns // 8)
        if now_ns > max(self.past_ns, self.moved_ns + self.quiet_ns) and not self.restarts.due and not self._ends():
            super()._end()

    def _ends(self) -> bool:
        """Return whether a node waits with a deadline, so that its wait ends by itself."""
        hosts = (each.host for each in _nodes(self.world).values() if not each.ended)
        waits = (host.node.waits.current for host in hosts if not host.gate.closed)
        return any(wait is not None and wait.deadline_ns is not None for wait in waits)

    @override
    def idle(self) -> None:
        if self.acts:
            snapshot, found = self.seen(idle=True)
            self._tell(found, snapshot)
            if self._recover(found, snapshot):
                return
        super()._end()

    @override
    def server_done(self) -> None:
        """Do nothing, because in a proof clients may take any time to end after the server has finished."""

    @override
    def finish(self) -> None:
        self.fleet_end = self._seen_end()

    @override
    def _recover(self, found: Sequence[Finding], snapshot: Snapshot) -> bool:
        acted = super()._recover(found, snapshot)
        if acted:
            self.moved_ns = self.fleet.now_ns()
        return acted

    @override
    def _end(self) -> None:
        """Do nothing, because no diagnosis of a stall ends a run of a proof."""

    def _seen_end(self) -> FleetEnd:
        phases = {node: self.fleet.status.nodes[node].phase for node in self.fleet.nodes}
        left = frozenset(node for node, phase in phases.items() if phase in (Phase.STARTING, Phase.RUNNING))
        served = self.fleet.server is not None and phases[self.fleet.server] is Phase.FINISHED
        waits = {node: _nodes(self.world)[node].host.node.waits.current for node in left}
        of_server = frozenset({self.fleet.server})
        idle = frozenset(node for node, wait in waits.items() if served and wait and wait.sources == of_server)
        by_phase = {of: frozenset(node for node, phase in phases.items() if phase is of) for of in Phase}
        away = by_phase[Phase.CRASHED]
        return FleetEnd(
            left, idle, by_phase[Phase.DIED], away, self._weight(away, by_phase[Phase.ABSENT]), self.moved_ns
        )

    def _weight(self, away: Collection[NodeId], absent: Collection[NodeId]) -> float | None:
        """Return the push-sum weight of the whole fleet, counting each share once; None if a node has no weight.

        A node of `away`, which crashed for good, counts with the weight that it had then; a node of `absent`, which has
        yet to join, counts with the weight of 1 that it will bring.
        """
        hosts = {node: each.host for node, each in _nodes(self.world).items()}
        held = [host.node.held_weight for node, host in hosts.items() if node not in away]
        if any(weight is None for weight in held):
            return None
        at_crash = [float(host.crash.details().get("weight") or 0.0) for node, host in hosts.items() if node in away]
        open_shares: dict[tuple[NodeId, NodeId, LogicalId], Message] = {}
        for message in self._open(away):
            open_shares[message.src, message.dst, message.logical] = message
        untaken = (m for m in open_shares.values() if not hosts[m.dst].node.mailbox.has_seen(m.src, m.at))
        return float(len(absent) + sum(held) + sum(at_crash)) + weight_in(message.payload for message in untaken)

    def _open(self, away: Collection[NodeId]) -> Sequence[Message]:
        """Return the data messages under way, and those that senders keep because no receiver is known to have them.

        The messages that a node of `away`, which crashed for good, kept in its state are among them.
        """
        flying = [flight.content[0] for flight in _fabric(self.world).flights()]
        nodes = [each.host.node for node, each in _nodes(self.world).items() if not each.ended or node in away]
        unsettled = [m for node in nodes if node.delivery is not None for m in node.delivery.untaken()]
        given_up = _given_up(cast(MemoryStore, self.fleet.store).events)
        still = [m for m in unsettled if (m.src, m.dst, m.round, m.step) not in given_up]
        return [message for message in (*flying, *still) if message.kind is Kind.DATA]


def _given_up(events: Iterable[EventRow]) -> set[tuple[object, ...]]:
    """Return the push-sum shares whose senders stopped resending them: source, destination, round, step.

    Shares of a sender that lost its state afterwards are left out, because it then makes new shares of the same names.
    """
    found: set[tuple[object, ...]] = set()
    for event in events:
        if event.kind == "given_up":
            found.add((event.node, event.details["dst"], event.round, event.details["step"]))
        elif event.kind == "crash" and event.details.get("state") == "lost":
            found = {share for share in found if share[0] != event.node}
    return found


def _nodes(world: Any) -> Mapping[NodeId, Any]:
    return world.nodes  # type: ignore[no-any-return]


def _fabric(world: Any) -> Any:
    return world.fabric


class Player(Executor):
    """A runner of one scenario under schedules of faults; what does not differ between the runs is built once."""

    def __init__(self, scenario: Scenario, *, judged: bool = False) -> None:
        """Prepare to run `scenario`; with `judged`, a run gets metrics and a verdict, for a user's predicates.

        Otherwise the fleet is evaluated only after its last round.
        """
        super().__init__()
        if not judged:
            evaluation = scenario.evaluation.model_copy(update={"every": scenario.rounds})
            scenario = scenario.model_copy(update={"evaluation": evaluation})
        self.scenario, self._needs_verdict = scenario, judged
        self.round_ns = 1
        self._watched: PatientWatch | None = None
        self._world: SimulatedWorld | None = None

    def play(self, changes: Sequence[Json] = ()) -> Play:
        """Run the scenario with `changes`: additional events, and orders of messages and timers due at one instant."""
        self._watched = self._world = None
        run = self.run(with_changes(self.scenario, changes))
        ordered = None if self._world is None else self._world.ordered
        end = FleetEnd() if self._watched is None else self._watched.fleet_end
        return Play(tuple(changes), run, end, () if ordered is None else ordered.instants)

    @override
    def _judged(
        self, scenario: Scenario, rows: MemoryStore, stalls: tuple[Finding, ...], outcome: FleetOutcome
    ) -> ExploredRun:
        if self._needs_verdict:
            return super()._judged(scenario, rows, stalls, outcome)
        length_ns = round((outcome.figures.virtual_duration_s or 0.0) * 1e9)
        log_hash = outcome.figures.event_log_hash or ""
        return ExploredRun(scenario, rows, stalls, length_ns=length_ns, event_log_hash=log_hash)

    @override
    def _watch(self, scenario: Scenario, supervisor: Supervisor, world: SimulatedWorld) -> None:
        watch = PatientWatch(supervisor.fleet, supervisor.restarts, world)
        watch.past_ns, watch.quiet_ns = _past_ns(scenario), self._quiet_ns(scenario)
        watch.acts = scenario.wait.on_stall != "stop"
        supervisor.stalls = self._watched = watch
        self._world = world

    def _quiet_ns(self, scenario: Scenario) -> int:
        """Return ten times the longest duration, in ns, that a single activity of the fleet may have."""
        longest = [self.round_ns]
        if isinstance(scenario.wait.deadline, int):
            longest.append(scenario.wait.deadline)
        detector: Any = scenario.failure_detector
        if detector.kind == "heartbeat":
            longest.append(detector.every * (detector.misses + 1))
        delivery: Any = scenario.delivery
        if delivery.kind == "acknowledged":
            first_ns = 500_000_000 if delivery.timeout == "auto" else delivery.timeout
            again_ns = (first_ns * 2 ** min(again, 5) for again in range(delivery.attempts + 1))
            longest += [32 * first_ns, sum(again_ns) // 8]
        longest += [_time(event, key) for event in scenario.events for key in ("by", "for", "restart_after")]
        return TIMES * max(longest)


def with_changes(scenario: Scenario, changes: Sequence[Json]) -> Scenario:
    """Return a scenario with further events; orders of one instant, `{at: 1s, order: [...]}`, go into its `world`."""
    events = [dict(each) for each in changes if "order" not in each]
    scenario = scenario.model_copy(update={"events": [*scenario.events, *events]})
    orders: dict[str, list[str]] = {}
    for each in (each for each in changes if "order" in each):
        orders.setdefault(each["at"], []).extend(each["order"])
    world = scenario.world
    if not orders or not isinstance(world, SimulatedOptions):
        return scenario
    for at, names in (world.order or {}).items():
        orders.setdefault(at, []).extend(names)
    return scenario.model_copy(update={"world": world.model_copy(update={"order": orders})})


def _past_ns(scenario: Scenario) -> int:
    """Return a time, in ns, after all events that are scheduled by the clock."""
    times = [sum(_time(event, key) for key in ("at", "for", "restart_after")) for event in scenario.events]
    return max(times, default=0)


def _time(event: Json, key: str) -> int:
    return parse_time_ns(event[key]) if key in event else 0
