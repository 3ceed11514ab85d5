"""Stalls of a simulated fleet: looked for in virtual time, named exactly, ended as the scenario says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from netdfl.core.types import NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.account import give_account, stack_of
from netdfl.diagnosis.assemble import Down, assemble
from netdfl.diagnosis.diagnose import diagnose
from netdfl.diagnosis.ending import AFTER_SERVER_NS, is_over, time_is_up, unfinished
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.keep import keep_stall
from netdfl.diagnosis.outages import Outages
from netdfl.diagnosis.recover import Recovery, Resend, Skip
from netdfl.diagnosis.recover import RecoveryStep as Step
from netdfl.diagnosis.snapshot import Snapshot, State
from netdfl.diagnosis.watch import Pace, Watch, Window
from netdfl.fleet.advice import options_of
from netdfl.links.schedule.events import CompiledEvent
from netdfl.node.ledger import MessageKey as Key
from netdfl.record.status import Phase

if TYPE_CHECKING:
    from netdfl.fleet.simulated import SimulatedFleet
    from netdfl.fleet.simulated_node import SimulatedNode


class Stalls:
    """Watches a `SimulatedFleet`. A `Source` around the fabric: at the time of a look, it looks."""

    def __init__(self, fleet: SimulatedFleet, schedule: Sequence[CompiledEvent]) -> None:
        """Watch `fleet`, whose scripted events are `schedule`."""
        self.fleet = fleet
        self.outages = Outages(schedule, fleet.blueprint.links.link)
        self.pace = Pace(fleet.blueprint.node_ids)
        self.watch = Watch()
        self.recovery = Recovery(fleet.scenario.wait.on_stall, self._can_send_again)
        self.options = options_of(fleet.scenario)
        self._look_ns = self.pace.look_ns
        self.window = Window()
        self.unfinished: list[str] = []

    # a source of the loop

    def next_ns(self) -> int | None:
        """When the fabric has something due, or a look is; no look where nothing else is due."""
        due = self.fleet.fabric.next_ns()
        if due is None:
            return self._look_ns if self.fleet.loop.has_timers else None
        return min(due, self._look_ns)

    def run(self, now_ns: int) -> None:
        """Look where it is time to, then let the fabric do what is due."""
        if now_ns == self._look_ns:
            self._look_ns = now_ns + self.pace.look_ns
            if self.pace.quiet(now_ns, self._running(), 2 * self.pace.look_ns):
                self.look(now_ns)
            else:
                self.watch.take(())
            if self.fleet.fabric.next_ns() != now_ns:
                return
        self.fleet.fabric.run(now_ns)

    # looking

    def look(self, now_ns: int) -> None:
        """Diagnose the fleet as it is; act where the scenario wants that, and end a livelock."""
        snapshot = self._snapshot(now_ns, idle=False)
        window = self.window.before(snapshot, self.pace)
        found = diagnose(snapshot, patience_ns=self.pace.patience_ns, window=window, options=self.options)
        self._tell(found, snapshot)
        if not self._recover(found, snapshot) and is_over(found, snapshot, self._running()):
            self.fleet.end()

    def after_server(self, done_ns: int) -> None:
        """The server finished at `done_ns`: look now and each second, until its clients are done or had their time."""
        now = self.fleet.loop.now_ns
        if now > done_ns:
            self.look(now)
        if time_is_up(done_ns, now, self.pace):
            self.fleet.end()
        self.fleet.clock.call_at(now + AFTER_SERVER_NS, ("end",), partial(self.after_server, done_ns))

    def on_idle(self) -> None:
        """Nothing can run and nothing is due: name what holds every node that still waits, and end or free it."""
        snapshot = self._snapshot(self.fleet.loop.now_ns, idle=True)
        found = diagnose(snapshot, patience_ns=self.pace.patience_ns, options=self.options)
        found += self._unnamed(found, snapshot)
        self._tell(found, snapshot)
        if not self._recover(found, snapshot):
            self.fleet.end()

    def finish(self) -> None:
        """The run has ended: what held nodes that went on since is over; say who has not finished."""
        if not self._running():
            self.watch.take(())
        snapshot = self._snapshot(self.fleet.loop.now_ns, idle=False) if self._running() else None
        left = [finding for finding in self.watch.findings if not finding.over]
        self.unfinished = unfinished(self.fleet.status, self.fleet.blueprint.network.server, left, snapshot)

    def _unnamed(self, found: Sequence[Finding], snapshot: Snapshot) -> list[Finding]:
        """Nodes that stand still outside any wait, and are not paused: an algorithm awaits something of its own."""
        told = {node for finding in found for node in (*finding.roots, *finding.culprits, *finding.behind)}
        running = [node for node in self._running() if snapshot.nodes[node].state is not State.PAUSED]
        left = tuple(node for node in running if node not in told)
        if not left:
            return []
        return [
            Finding(
                cause=Cause.DEADLOCK,
                roots=left,
                what=f"{words.nodes(left)} {'stands' if len(left) == 1 else 'stand'} still outside any wait",
                round=min(snapshot.nodes[node].round for node in left),
                began_ns=max(snapshot.nodes[node].since_ns for node in left),
                found_ns=snapshot.at_ns,
                permanent=True,
            )
        ]

    def _running(self) -> list[NodeId]:
        return [i for i, node in self.fleet.nodes.items() if node.running]

    def _snapshot(self, now_ns: int, *, idle: bool) -> Snapshot:
        """The fleet now. Where it is idle, nobody computes any more: who does not wait stands still."""
        accounts, down, flying = {}, {}, self._flying()
        for i, node in self.fleet.nodes.items():
            finished = node.status.phase is Phase.FINISHED
            ended = node.status.phase is Phase.CRASHED
            account = give_account(node.node, node.outgoing, finished=finished, ended=ended, flying=flying[i])
            accounts[i] = account
            state = _state(node)
            if state is None and idle and account.state is State.RUNNING:
                state = State.STANDING
            if state is not None:
                back_ns, keeps = self._back(i, now_ns)
                down[i] = Down(state, account.round, self.pace.rounds[i][1], back_ns, keeps)
        detector = "none" if idle else self.fleet.scenario.failure_detector.kind
        return assemble(now_ns, accounts, down, self.outages, detector=detector)

    def _flying(self) -> defaultdict[NodeId, defaultdict[NodeId, list[tuple[Key, int]]]]:
        """What is under way, by source and destination."""
        flying: defaultdict[NodeId, defaultdict[NodeId, list[tuple[Key, int]]]]
        flying = defaultdict(lambda: defaultdict(list))
        for m, sent_ns in self.fleet.fabric.under_way():
            flying[m.src][m.dst].append(((m.kind, m.epoch, m.round, m.step, m.attempt), sent_ns))
        return flying

    def _back(self, node: NodeId, now_ns: int) -> tuple[int | None, bool]:
        """When `node` returns, and whether with its state."""
        due = ((at_ns, keeps) for at_ns, keeps in self.fleet.faults.returns[node] if at_ns > now_ns)
        return min(due, default=(None, False))

    # telling and acting

    def _tell(self, found: Sequence[Finding], snapshot: Snapshot) -> None:
        for finding in self.watch.take(found):
            now = snapshot.at_ns
            self.fleet.store.event(now, finding.roots[0], finding.round, "stall", **finding.to_event())
            self.fleet.note(finding.text)
            keep_stall(self.fleet.directory.path, finding, self._with_stacks(finding, snapshot))

    def _with_stacks(self, finding: Finding, snapshot: Snapshot) -> Snapshot:
        held = {*finding.roots, *finding.culprits, *finding.behind}
        running = [i for i in sorted(held) if self.fleet.nodes[i].running]
        stacks = {i: stack_of(self.fleet.nodes[i].gate.coroutine) for i in running}
        nodes = {i: replace(own, stack=stacks.get(i, "")) for i, own in snapshot.nodes.items()}
        return replace(snapshot, nodes=nodes)

    def _recover(self, found: Sequence[Finding], snapshot: Snapshot) -> bool:
        """Carry out what ends the findings; whether anything was done."""
        acted = False
        for finding in found:
            steps = self.recovery.steps(finding, snapshot)
            for step in steps:
                self._do(step)
            if steps:
                acted = True
                self.watch.close(finding, self.recovery.choice)
                details = finding.to_event() | {"how": self.recovery.choice}
                self.fleet.store.event(snapshot.at_ns, finding.roots[0], finding.round, "recovered", **details)
        return acted

    def _do(self, step: Step) -> None:
        if isinstance(step, Skip):
            self.fleet.nodes[step.node].node.waits.skip(step.sources)
        elif self.fleet.faults.group is not None:
            outgoing = self.fleet.nodes[step.src].outgoing
            self.fleet.faults.group.create_task(outgoing.send_again(step.sent))

    def _can_send_again(self, step: Resend) -> bool:
        source = self.fleet.nodes[step.src]
        return source.status.phase in (Phase.RUNNING, Phase.FINISHED) and source.outgoing.can_send_again(step.sent)


def _state(node: SimulatedNode) -> State | None:
    """Why a node gives no account of its own; None where it does."""
    if node.status.phase in (Phase.CRASHED, Phase.DIED):
        return State.CRASHED
    return State.PAUSED if node.running and node.gate.closed else None
