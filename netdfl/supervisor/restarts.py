"""Scheduled crashes, restarts and joins: when each node returns or joins, and how the other nodes learn of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from operator import attrgetter

from netdfl.core.clock import NS_PER_S, SCHEDULED, Timer
from netdfl.core.control import Crashed, Gone, Hello, Life, Order, Peers, Rejoin, Returned, Start
from netdfl.core.types import NodeId
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.returns import Return, find_return, fresh_round
from netdfl.record.status import NodeStatus, Phase
from netdfl.scenario.checks.survival import catches_up
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.evaluation import EvaluationTracker
from netdfl.supervisor.fleet import FleetState
from netdfl.supervisor.resumption import Resumption

_round_of = attrgetter("round")


class Restarts:
    """The restarts of nodes that crash by the schedule, and the joins of nodes that come late.

    Attributes:
        fleet: the state of the fleet.
        evaluation: the tracker of evaluations.
        due: the nodes that are down and will restart, with their timers.
        backs: the last return of each node, or the next one if it is down.
        hoped: for each node that was lost with its machine, the time in ns until which it may be restarted there.
        by_round: the nodes that join as soon as any node begins a certain round, each with its event.
    """

    def __init__(self, fleet: FleetState, evaluation: EvaluationTracker) -> None:
        """Handle restarts in `fleet`; let `evaluation` know the rounds for which a node never hands over a model."""
        self.fleet, self.evaluation = fleet, evaluation
        self.due: dict[NodeId, Timer | None] = {}
        self.backs: dict[NodeId, Return] = {}
        self.hoped: dict[NodeId, int] = {}
        self.by_round: dict[NodeId, CompiledEvent] = {}
        self._crashed: dict[NodeId, int] = {}
        self._dead: dict[NodeId, int] = {}
        self._went_on: dict[NodeId, dict[NodeId, int]] = {}

    def resumed(self, resumption: Resumption) -> None:
        """Record that a killed run was resumed: all nodes restart except those that were down."""
        fleet = self.fleet
        joined = {node: max(own, resumption.at_least) for node, own in resumption.rounds.items()}
        self.evaluation.joined.update(joined)
        self.evaluation.skip(resumption.judged)
        begun = [round for node, round in joined.items() if node not in resumption.absent]
        fleet.store.event(resumption.at_ns, None, min(begun), "resume", **resumption.to_json())
        for node in sorted(resumption.down):
            fleet.tell_gone(node, "gone before")

    def expect_absent(self) -> None:
        """Send all nodes orders about the nodes that have yet to join, and let each of these join when it is due."""
        fleet = self.fleet
        for node, event in fleet.joins.items():
            if fleet.status.nodes[node].phase is not Phase.ABSENT:
                continue
            when = (
                {"joins_at_s": event.at_ns / NS_PER_S}
                if event.at_ns is not None
                else {"joins_at_round": event.at_round}
            )
            fleet.store.event(fleet.now_ns(), node, 0, "absent", **when)
            fleet.tell_gone(node, "has not joined yet")
            self._went_on[node] = dict.fromkeys(set(fleet.nodes) - {node}, -1)
            if event.at_ns is None:
                self.by_round[node] = event
            else:
                self._let_join(node, event, event.at_ns)

    def reached(self, round: int) -> None:
        """Let the nodes join that are scheduled to join as soon as any node begins `round`."""
        for node, event in list(self.by_round.items()):
            if round >= (event.at_round or 0):
                del self.by_round[node]
                self._let_join(node, event, self.fleet.now_ns())

    def _let_join(self, node: NodeId, event: CompiledEvent, at_ns: int) -> None:
        self.backs[node] = back = Return.by(event, at_ns)
        name = (SCHEDULED, event.source, "join", node)
        self.due[node] = self.fleet.world.clock.call_at(at_ns, name, partial(self._start, node, back, 0))

    def crashed(self, node: NodeId, event: Crashed) -> None:
        """Handle the report of `node` that it crashes now, as scheduled."""
        fleet, status = self.fleet, self.fleet.status.nodes[node]
        status.phase, status.round = Phase.CRASHED, event.round
        self._crashed[node] = fleet.epochs.get(node, 0)
        self._went_on[node] = {other: own.round for other, own in fleet.status.nodes.items() if other != node}
        fleet.store.event(event.at_ns, node, event.round, "crash", **event.details())
        fleet.note(f"node {node} crashed in round {event.round}, as scripted")
        fleet.tell_gone(node, "crashed")
        back = find_return(fleet.returns.get(node, ()), node, event.at_ns, source=event.source, at_round=event.at_round)
        status.returns = back is not None
        if back is not None:
            self.backs[node] = back
            name = (SCHEDULED, event.source, "restart", node)
            self.due[node] = fleet.world.clock.call_at(back.at_ns, name, partial(self._start, node, back, event.round))
        self.evaluation.look()

    def has_crashed(self, node: NodeId, epoch: int) -> bool:
        """Return whether start number `epoch` of `node`'s process (0: the first) ended in a scheduled crash."""
        return self._crashed.get(node) == epoch

    def has_died(self, node: NodeId, epoch: int) -> bool:
        """Return whether an unplanned end of start number `epoch` (0: the first) of `node`'s process is recorded."""
        return self._dead.get(node) == epoch

    def died(self, node: NodeId, within_ns: int | None) -> None:
        """Record that `node` ended unplanned.

        The system that started the node may restart it within `within_ns` nanoseconds; None: the node will not return.
        """
        self._dead[node] = self.fleet.epochs.get(node, 0)
        self.due.pop(node, None)
        self.hoped.pop(node, None)
        if within_ns is not None:
            self.hoped[node] = self.fleet.now_ns() + within_ns

    def came_back(self, node: NodeId, keeps: bool) -> None:
        """Let `node`, which was restarted from outside, rejoin; `keeps`: with its stored state, else without."""
        back = Return(self.fleet.now_ns(), keeps, replays=waits_on(self.fleet.scenario))
        self.backs[node] = back
        self._launch(node, back, self.fleet.status.nodes[node].round)

    def _start(self, node: NodeId, back: Return, round: int) -> None:
        self.due[node] = None
        self._launch(node, back, round)

    def _launch(self, node: NodeId, back: Return, round: int) -> None:
        fleet = self.fleet
        fleet.epochs[node] = epoch = fleet.epochs.get(node, 0) + 1
        if not back.keep_state:
            round = self.evaluation.joined[node] = fresh_round(round, self._begun_without(node))
        rejoin = Rejoin(keep_state=back.keep_state, round=round, weight=back.weight)
        fleet.world.launch([node], Life(epoch, rejoin))

    def _begun_without(self, node: NodeId) -> list[int]:
        """Return the present rounds of other nodes, after which `node` begins if it lost its state.

        A node that has only just joined is in a round that the fleet has yet to begin. Where waits end by deadlines,
        such nodes are left out, so that several returning nodes join in the same round: if each joined a round later
        than the last one, they would soon exceed the run's rounds.
        """
        nodes = self.fleet.status.nodes
        others = Counter(map(_round_of, nodes.values()))
        others[nodes[node].round] -= 1
        begun = others.copy()
        if self.fleet.scenario.wait.deadline is not None:
            joined = {other: round for other, round in self.evaluation.joined.items() if other != node}
            begun.subtract(nodes[other].round for other, round in joined.items() if nodes[other].round <= round)
        return list(+begun or +others)

    def attends(self, hello: Hello) -> None:
        """Let a restarted node, which has sent its `hello`, join the others, and notify them."""
        fleet, node = self.fleet, hello.node
        assert fleet.start_ns is not None
        self.due.pop(node, None)
        self.hoped.pop(node, None)
        status = fleet.status.nodes[node]
        joins = status.phase is Phase.ABSENT
        status.phase, status.address, status.pid = Phase.RUNNING, hello.address, hello.pid or status.pid
        status.returns = False
        catch_up = self._catch_up(node)
        status.round = max(status.round, catch_up)  # who attends next does not wait for rounds that it leaves out
        fleet.store.event(fleet.now_ns(), node, status.round, "join" if joins else "restart", epoch=hello.epoch)
        fleet.note(f"node {node} has joined" if joins else f"node {node} is back")
        if hello.address:  # else its world knows where everybody is
            known = fleet.hellos.keys() & fleet.status.nodes.keys()  # who was down at a resumption never attended
            fleet.world.order(node, Peers({other: fleet.hellos[other].address for other in sorted(known - {node})}))
        if fleet.oracle:
            for gone in sorted(set(fleet.status.nodes) - fleet.live):
                fleet.world.order(node, Gone(gone, "gone before"))
        fleet.world.order(node, Start(fleet.start_ns, catch_up, self._begun_by(node, catch_up)))
        first = self._first_of(node) if joins else 0
        back, moved = Returned(node, hello.address, hello.epoch, first), Peers({node: hello.address})
        order: Order = back if fleet.oracle else moved
        for other in sorted(fleet.live - {node}) if fleet.oracle or hello.address else ():
            fleet.world.order(other, order)

    def _catch_up(self, node: NodeId) -> int:
        back, fleet = self.backs.get(node), self.fleet
        if back is None:
            return 0
        others = [status for other, status in fleet.status.nodes.items() if other != node]
        round = caught_up(fleet.scenario, back, others, [own for own in others if self._goes_on(own.node)])
        self.evaluation.joined[node] = max(round, self.evaluation.joined.get(node, 0))
        return round

    def _begun_by(self, node: NodeId, catch_up: int) -> dict[NodeId, int]:
        """Return, for each other node, the last round that it began without `node`, in which it sent `node` nothing.

        Only a node that waits for all others, and without a deadline, needs these rounds.
        """
        fleet, wait = self.fleet, self.fleet.scenario.wait
        first = catch_up or fleet.status.nodes[node].round
        if not (fleet.oracle and wait.need == "all" and wait.deadline is None):
            return {}
        before, last = self._went_on.get(node, {}), fleet.scenario.rounds - 1
        nodes = ((other, own) for other, own in fleet.status.nodes.items() if before.get(other, first) < first)
        return {other: last if own.phase is Phase.FINISHED else own.round for other, own in nodes}

    def _first_of(self, node: NodeId) -> int:
        """Return the first round of `node`, which joins now: the first that no other node has begun."""
        others = (own.round for other, own in self.fleet.status.nodes.items() if other != node)
        return max(self.evaluation.joined[node], fresh_round(0, others))

    def _goes_on(self, node: NodeId) -> bool:
        """Return whether `node` is down and will, or may, restart with its state."""
        return self.hopes(node) or (node in self.due and self.backs[node].keep_state)

    def hopes(self, node: NodeId) -> bool:
        """Return whether `node`, which was lost with its machine, may still be restarted there."""
        return self.hoped.get(node, 0) > self.fleet.now_ns()

    def awaits_anybody(self) -> bool:
        """Return whether any node that is down will, or may, restart."""
        return bool(self.due) or any(map(self.hopes, self.hoped))

    def close(self) -> None:
        """Cancel all scheduled restarts."""
        for timer in self.due.values():
            if timer is not None:
                timer.cancel()
        self.due.clear()


def waits_on(scenario: Scenario) -> bool:
    """Return whether nodes wait for missing nodes forever, so that a returning node must repeat missed rounds."""
    return scenario.wait.deadline is None and scenario.failure_detector.kind == "none"


def caught_up(scenario: Scenario, back: Return, others: Iterable[NodeStatus], due: Iterable[NodeStatus] = ()) -> int:
    """Return the round in which a node that restarts with its state continues, after it repeats the round of its crash.

    `back` is the node's restart. The result is the earliest round of any of `others`, which may need a message of the
    node, or 0, which means the next round. If no node continues without a missing one, the nodes in `due`, which will
    return, count as others, too, because they continue where they were.
    """
    if not back.keep_state or back.replays or catches_up(scenario):
        return 0
    ends = {Phase.STARTING: 0, Phase.FINISHED: scenario.rounds}
    there = (Phase.STARTING, Phase.RUNNING, Phase.FINISHED)
    rounds = [ends.get(other.phase, other.round) for other in others if other.phase in there]
    if waits_on(scenario) and scenario.wait.need == "all":
        rounds += [other.round for other in due]
    return min(rounds, default=0)
