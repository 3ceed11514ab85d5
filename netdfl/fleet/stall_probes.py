"""The launcher's watch over stalls: it probes quiet fleets, and trusts only what two probes in a row say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from netdfl.core.control import Again, Probe, ProbeReply, Recover
from netdfl.core.errors import RunError
from netdfl.core.types import NodeId
from netdfl.diagnosis.account import Account
from netdfl.diagnosis.assemble import Down, assemble
from netdfl.diagnosis.diagnose import confirm, diagnose
from netdfl.diagnosis.ending import AFTER_SERVER_NS, is_over, time_is_up, unfinished
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.keep import keep_stall
from netdfl.diagnosis.outages import Outages
from netdfl.diagnosis.recover import Recovery, Resend, Skip
from netdfl.diagnosis.recover import RecoveryStep as Step
from netdfl.diagnosis.snapshot import Snapshot, State
from netdfl.diagnosis.watch import LEAST_NS, Pace, Watch, Window
from netdfl.fleet.advice import options_of
from netdfl.links.schedule.events import CompiledEvent
from netdfl.record.status import Phase
from netdfl.scenario.build import build_links

if TYPE_CHECKING:
    from netdfl.fleet.processes import Launcher

LOOK_S = 0.2
ANSWER_S = 1.0
BETWEEN_S = 0.3


class StallProbes:
    """Watches the fleet of a `Launcher`. `over`: nothing can happen any more that is worth waiting for."""

    def __init__(self, launcher: Launcher, schedule: Sequence[CompiledEvent]) -> None:
        """Watch the fleet of `launcher`, whose scripted events are `schedule`."""
        self.launcher, self.schedule = launcher, schedule
        self.outages = Outages(schedule, build_links(launcher.scenario).link)
        self.pace = Pace(range(launcher.scenario.num_nodes))
        self.watch = Watch()
        self.recovery = Recovery(launcher.scenario.wait.on_stall, lambda step: step.src in launcher.live)
        self.options = options_of(launcher.scenario)
        self.over = False
        self.unfinished: list[str] = []
        self.accounts: dict[NodeId, Account] = {}
        self.heard_ns: dict[NodeId, int] = {}
        world: Any = launcher.scenario.world
        self._stopped_after_ns: int = world.stopped_after
        self.window = Window()
        self._probe = 0
        self._answered: set[NodeId] = set()
        self._news = asyncio.Event()
        self._pause_ns = LEAST_NS

    # news

    def on_progress(self, node: NodeId, round: int, now_ns: int) -> None:
        """`node` is in `round`, and its event loop is alive."""
        self.heard_ns[node] = now_ns
        self.pace.at(node, round, now_ns)

    def on_probe_reply(self, node: NodeId, reply: ProbeReply) -> None:
        """Take a node's account, if it answers the latest probe."""
        if reply.id == self._probe:
            self.accounts[node] = Account.from_json(reply.account)
            self._answered.add(node)
            self.heard_ns[node] = self.launcher.now_ns()
            self._news.set()

    # the clockwork

    async def run(self) -> None:
        """Watch to the end of the run, which a full disk brings about."""
        try:
            await self._watch()
        except RunError as error:
            self.launcher.broke = self.launcher.broke or str(error)
            self.launcher.changed.set()

    async def _watch(self) -> None:
        """Probe the fleet whenever a node has been quiet for long; less and less often while nothing is found."""
        looked_ns = 0
        while not self.over:
            await asyncio.sleep(LOOK_S)
            now, done_ns = self.launcher.now_ns(), self.launcher.server_done_ns
            if done_ns is not None:
                if now - max(looked_ns, done_ns) >= AFTER_SERVER_NS:
                    await self._after_server(done_ns)
                    looked_ns = self.launcher.now_ns()
            elif not self.pace.quiet(now, self._running(), LEAST_NS):
                self._pause_ns = LEAST_NS
                self.watch.take(())
            elif now - looked_ns >= self._pause_ns:
                found = await self.look()
                looked_ns = self.launcher.now_ns()
                self._pause_ns = LEAST_NS if found else min(2 * self._pause_ns, self.pace.patience_ns)

    async def look(self) -> list[Finding]:
        """Take a snapshot, a second one where the first shows something, and act on what both say."""
        first = await self._snapshot()
        found = diagnose(first, patience_ns=self.pace.patience_ns, window=self.window.before(first, self.pace))
        if not found and not is_over(found, first, self._running()):
            self.watch.take(())
            return []
        await asyncio.sleep(BETWEEN_S)
        second = await self._snapshot()
        window = self.window.before(second, self.pace)
        found = diagnose(second, patience_ns=self.pace.patience_ns, window=window, options=self.options)
        found = confirm(found, first, second)
        self._tell(found, second)
        if not self._recover(found, second) and is_over(found, second, self._running()):
            self._end(found, second)
        return found

    async def _after_server(self, done_ns: int) -> None:
        """The server finished at `done_ns`: end the run once its clients have nothing to do, or had their time."""
        found = await self.look()
        if not self.over and time_is_up(done_ns, self.launcher.now_ns(), self.pace):
            self._end(found, await self._snapshot())

    def _end(self, found: Sequence[Finding], snapshot: Snapshot) -> None:
        """End the run; say who has not finished."""
        self.unfinished = unfinished(self.launcher.status, self.launcher.server, found, snapshot)
        self.over = True
        self.launcher.changed.set()

    def finish(self) -> None:
        """The run has ended: what held nodes that went on since is over; a server may be missing."""
        if not self._running():
            self.watch.take(())
            self.unfinished = unfinished(self.launcher.status, self.launcher.server)

    def _running(self) -> list[NodeId]:
        return [node for node, status in self.launcher.status.nodes.items() if status.phase is Phase.RUNNING]

    # snapshots

    async def _snapshot(self) -> Snapshot:
        """Probe every live node; one that does not answer in time has a blocked event loop.

        The snapshot is of the moment when they were asked: those who answer at once have not waited since.
        """
        launcher, asked_ns = self.launcher, self.launcher.now_ns()
        self._probe += 1
        self._answered.clear()
        asked = set(launcher.live)
        for node in asked:
            launcher.attendees[node].order(Probe(self._probe))
        try:
            async with asyncio.timeout(ANSWER_S):
                while not asked & launcher.live <= self._answered:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        owns = {node: self._down(node, asked_ns, asked=node in asked) for node in launcher.status.nodes}
        down = {node: own for node, own in owns.items() if own is not None}
        detector = launcher.scenario.failure_detector.kind
        return assemble(asked_ns, self.accounts, down, self.outages, detector=detector)

    def _down(self, node: NodeId, now_ns: int, *, asked: bool) -> Down | None:
        """Why `node` gives no account of itself, or none that counts; who was not `asked` has only just begun."""
        status, since_ns = self.launcher.status.nodes[node], self.pace.rounds[node][1]
        if status.phase in (Phase.CRASHED, Phase.DIED):
            if node not in self.launcher.returns.due:
                return Down(State.CRASHED, status.round, since_ns)
            back = self.launcher.returns.backs[node]
            return Down(State.CRASHED, status.round, since_ns, max(back.at_ns, now_ns), back.keep_state)
        if node not in self._answered:
            heard_ns = self.heard_ns.get(node, since_ns)
            stopped = self.launcher.now_ns() - heard_ns >= self._stopped_after_ns
            state = State.RUNNING if not asked else State.STOPPED if stopped else State.BLOCKED
            return Down(state, status.round, heard_ns)
        if self.accounts[node].state is State.PAUSED:
            return Down(State.PAUSED, status.round, since_ns, self._resumes_ns(node, since_ns, now_ns))
        return None

    def _resumes_ns(self, node: NodeId, since_ns: int, now_ns: int) -> int | None:
        events = [event for event in self.schedule if event.action == "resume" and node in event.nodes]
        whens = [since_ns + event.after_ns if event.at_ns is None else event.at_ns for event in events]
        return min((when for when in whens if when > now_ns), default=None)

    # telling and acting

    def _tell(self, found: Sequence[Finding], snapshot: Snapshot) -> None:
        for finding in self.watch.take(found):
            self._record("stall", finding, snapshot, suspected=finding.suspected)
            self.launcher.note(("suspected: " if finding.suspected else "") + finding.text)
            keep_stall(self.launcher.directory.path, finding, snapshot)

    def _record(self, kind: str, finding: Finding, snapshot: Snapshot, **more: Any) -> None:
        details = finding.to_event() | more
        self.launcher.store.event(snapshot.at_ns, finding.roots[0], finding.round, kind, **details)

    def _recover(self, found: Sequence[Finding], snapshot: Snapshot) -> bool:
        """Order what ends the findings; whether anything was ordered."""
        acted = False
        for finding in found:
            steps = self.recovery.steps(finding, snapshot)
            for step in steps:
                self._order(step)
            if steps:
                acted = True
                self.watch.close(finding, self.recovery.choice)
                self._record("recovered", finding, snapshot, how=self.recovery.choice)
        return acted

    def _order(self, step: Step) -> None:
        attendees = self.launcher.attendees
        if isinstance(step, Skip):
            attendees[step.node].order(Recover(skip=tuple(sorted(step.sources))))
        elif isinstance(step, Resend):
            again = Again(step.dst, step.round, step.step, step.kind)
            attendees[step.src].order(Recover(again=(again,)))
