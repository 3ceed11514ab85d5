"""Who crashed as scripted, who lives again when, and how the others learn of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from operator import attrgetter

from netdfl.core.clock import SCHEDULED, Timer
from netdfl.core.control import Crashed, Gone, Hello, Life, Order, Peers, Rejoin, Returned, Start
from netdfl.core.types import NodeId
from netdfl.links.schedule.returns import Return, find_return, fresh_round
from netdfl.record.status import NodeStatus, Phase
from netdfl.scenario.checks.survival import catches_up
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.evaluation import Evaluation
from netdfl.supervisor.fleet import Fleet
from netdfl.supervisor.resumption import Resumption

_round_of = attrgetter("round")


class Restarts:
    """Takes the crash reports of nodes, and has them started again when the schedule says.

    `due` are nodes that are down and will be up again; `backs` how each came back last, or will; `hoped` until when
    those may be given another life that went with a machine.
    """

    def __init__(self, fleet: Fleet, evaluation: Evaluation) -> None:
        """Serve `fleet`; rounds that a node never gives a model of are told to `evaluation`."""
        self.fleet, self.evaluation = fleet, evaluation
        self.due: dict[NodeId, Timer | None] = {}
        self.backs: dict[NodeId, Return] = {}
        self.hoped: dict[NodeId, int] = {}
        self._crashed: dict[NodeId, int] = {}
        self._went_on: dict[NodeId, dict[NodeId, int]] = {}

    def resumed(self, resumption: Resumption) -> None:
        """All nodes live again after the whole run was killed, but for those that are down."""
        fleet = self.fleet
        joined = {node: max(own, resumption.at_least) for node, own in resumption.rounds.items()}
        self.evaluation.joined.update(joined)
        self.evaluation.skip(resumption.judged)
        fleet.store.event(resumption.at_ns, None, min(joined.values()), "resume", **resumption.to_json())
        for node in sorted(resumption.down):
            fleet.tell_gone(node, "gone before")

    def crashed(self, node: NodeId, event: Crashed) -> None:
        """`node` says that it crashes now, as scripted."""
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
        """Whether life `epoch` of `node` ended as scripted."""
        return self._crashed.get(node) == epoch

    def died(self, node: NodeId, within_ns: int | None) -> None:
        """`node` ended before it could live again, unless somebody else starts it `within_ns`."""
        self.due.pop(node, None)
        self.hoped.pop(node, None)
        if within_ns is not None:
            self.hoped[node] = self.fleet.now_ns() + within_ns

    def came_back(self, node: NodeId, keeps: bool) -> None:
        """Somebody else started `node` again: let it rejoin, with what it kept or anew."""
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
        """In which rounds the others are, but for those that `node` may join.

        Who has only just joined is in a round that the fleet has yet to begin. Where waits end by themselves, others
        that return meanwhile join it there: each in a round after the last one's would soon be beyond the fleet's end.
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
        """A node in a later life attends: let it join the others, and tell them."""
        fleet, node = self.fleet, hello.node
        assert fleet.start_ns is not None
        self.due.pop(node, None)
        self.hoped.pop(node, None)
        status = fleet.status.nodes[node]
        status.phase, status.address, status.pid = Phase.RUNNING, hello.address, hello.pid or status.pid
        status.returns = False
        catch_up = self._catch_up(node)
        status.round = max(status.round, catch_up)  # who attends next does not wait for rounds that it leaves out
        fleet.store.event(fleet.now_ns(), node, status.round, "restart", epoch=hello.epoch)
        fleet.note(f"node {node} is back")
        if hello.address:  # else its world knows where everybody is
            known = fleet.hellos.keys() & fleet.status.nodes.keys()  # who was down at a resumption never attended
            fleet.world.order(node, Peers({other: fleet.hellos[other].address for other in sorted(known - {node})}))
        if fleet.oracle:
            for gone in sorted(set(fleet.status.nodes) - fleet.live):
                fleet.world.order(node, Gone(gone, "gone before"))
        fleet.world.order(node, Start(fleet.start_ns, catch_up, self._begun_by(node, catch_up)))
        back, moved = Returned(node, hello.address, hello.epoch), Peers({node: hello.address})
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
        """The last rounds that others began without `node`, from that on in which it goes on: they sent it nothing.

        Only who waits for all, and without a deadline, needs to know.
        """
        fleet, wait = self.fleet, self.fleet.scenario.wait
        first = catch_up or fleet.status.nodes[node].round
        if not (fleet.oracle and wait.need == "all" and wait.deadline is None):
            return {}
        before, last = self._went_on.get(node, {}), fleet.scenario.rounds - 1
        nodes = ((other, own) for other, own in fleet.status.nodes.items() if before.get(other, first) < first)
        return {other: last if own.phase is Phase.FINISHED else own.round for other, own in nodes}

    def _goes_on(self, node: NodeId) -> bool:
        """Whether `node` is down and will go on, or may, with the state that it had."""
        return self.hopes(node) or (node in self.due and self.backs[node].keep_state)

    def hopes(self, node: NodeId) -> bool:
        """Whether `node` may yet be given another life by whoever has its machine."""
        return self.hoped.get(node, 0) > self.fleet.now_ns()

    def awaits_anybody(self) -> bool:
        """Whether somebody who is down has a life before it, or may."""
        return bool(self.due) or any(map(self.hopes, self.hoped))

    def close(self) -> None:
        """Nobody returns any more."""
        for timer in self.due.values():
            if timer is not None:
                timer.cancel()
        self.due.clear()


def waits_on(scenario: Scenario) -> bool:
    """Whether nobody goes on without a node that is gone, so that one that returns has each of its rounds to make."""
    return scenario.wait.deadline is None and scenario.failure_detector.kind == "none"


def caught_up(scenario: Scenario, back: Return, others: Iterable[NodeStatus], due: Iterable[NodeStatus] = ()) -> int:
    """In which round a node that kept its state goes on, once it has made anew the one in which it crashed.

    That is the earliest in which any of `others` is, for somebody may need its message of that; 0: the next. Where
    nobody goes on without a node that is gone, those that are `due` to return count too: they go on where they were.
    """
    if not back.keep_state or back.replays or catches_up(scenario):
        return 0
    ends = {Phase.STARTING: 0, Phase.FINISHED: scenario.rounds}
    there = (Phase.STARTING, Phase.RUNNING, Phase.FINISHED)
    rounds = [ends.get(other.phase, other.round) for other in others if other.phase in there]
    if waits_on(scenario) and scenario.wait.need == "all":
        rounds += [other.round for other in due]
    return min(rounds, default=0)
