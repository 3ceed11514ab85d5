"""The watch for stalls: how stalls are reported and ended, and when a run has nothing left to wait for.

A stall is a wait of nodes that lasts unusually long, or that nothing will end. Watches differ in how they see the
fleet. In virtual time all of it is known at any moment; real nodes have to be asked (`netdfl.supervisor.probing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from typing_extensions import override

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import Again, ProbeReply
from netdfl.core.errors import ScenarioError
from netdfl.core.types import Json, NodeId
from netdfl.diagnosis.account import Account, WaitInBrief
from netdfl.diagnosis.assemble import DownNode, assemble
from netdfl.diagnosis.diagnose import diagnose
from netdfl.diagnosis.ending import AFTER_SERVER_NS, goes_on, is_over, lasts, time_is_up, unfinished
from netdfl.diagnosis.finding import Cause, Finding, keep_stall
from netdfl.diagnosis.outages import Outages
from netdfl.diagnosis.remedies import RESEND, SKIP, Allows, Recovery
from netdfl.diagnosis.snapshot import DOWN, Snapshot, State
from netdfl.diagnosis.watch import FindingHistory, Pace, Window
from netdfl.diagnosis.why import Grounds, ReasonKind
from netdfl.diagnosis.words import span
from netdfl.links.schedule.events import STANDING
from netdfl.links.schedule.returns import find_return
from netdfl.record.status import Phase, WaitingStatus
from netdfl.scenario.build import build_links
from netdfl.scenario.load import loads
from netdfl.scenario.loading.resolved import to_plain
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.fleet import FleetState
from netdfl.supervisor.restarts import Restarts
from netdfl.worlds.base import VirtualWorld

SHOWN_NS = NS_PER_S // 2
"""The shortest wait of a node for messages, in ns, that the status of a running fleet shows."""
NO_PACE = frozenset({Cause.DEADLOCK, Cause.LOST_MESSAGE, Cause.UNREACHABLE})
"""Causes of stalls by which a round takes unusually long, so that it does not count for the usual length of rounds."""
MOST_SHOWN = 6
"""The most waits that are shown at a time, and the most stalls of one kind that are reported at once."""


def settings_of(scenario: Scenario, *, launched: bool = True) -> Allows:
    """Return a function that tells whether a setting could be added to `scenario` as a remedy; each answer is cached.

    Without a supervisor (`launched` is false), settings are left out that only a supervisor can carry out.
    """
    plain = to_plain(scenario)

    @cache
    def allows(setting: str) -> bool:
        if setting in (RESEND, SKIP) and not launched:
            return False
        key, value = setting.split(": ", 1)
        if _has(plain, key, value):
            return False
        try:
            changed = to_plain(loads(plain, [f"{key}={value}"], directory=scenario.folder))
        except ScenarioError:
            return False
        return changed != plain

    return allows


def _has(plain: Json, key: str, kind: str) -> bool:
    """Return whether a scenario already has a part of that `kind` at `key`, so that a setting for it is no remedy."""
    part: object = plain
    for name in key.split("."):
        part = part.get(name) if isinstance(part, Mapping) else None
    return isinstance(part, Mapping) and part.get("kind") == kind


class StallNotes:
    """The notes about stalls that the display of a run shows; of stalls that are alike, only the first one is shown."""

    def __init__(self, note: Callable[[str], None]) -> None:
        """Show each note by calling `note`."""
        self._note = note
        self._alike: dict[Hashable, tuple[Finding, Finding, int]] = {}

    def tell(self, new: Sequence[Finding]) -> None:
        """Show the `new` stalls that are unlike all before; of many with one cause, show some and the number left."""
        told: Counter[Cause] = Counter()
        for finding in new:
            who = frozenset(finding.roots), frozenset(finding.culprits)
            alike = (finding.cause, *who, finding.permanent, finding.suspected)
            first, _, times = self._alike.get(alike, (finding, finding, 0))
            self._alike[alike] = first, finding, times + 1
            if times:
                continue
            told[finding.cause] += 1
            if told[finding.cause] <= MOST_SHOWN:
                self._note(("suspected: " if finding.suspected else "") + finding.text)
        for cause, num in told.items():
            if num > MOST_SHOWN:
                self._note(f"and {num - MOST_SHOWN} more of that kind ({cause}) at once: result.json has them all")

    def finish(self) -> None:
        """Show, at the end of the run, how many stalls were not shown because they were like an earlier one."""
        repeated = sorted((each for each in self._alike.values() if each[2] > 1), key=lambda each: -each[2])
        for first, last, times in repeated[:MOST_SHOWN]:
            like = f"like that of {span(first.roots)} in round {first.round} ({first.cause.replace('_', ' ')})"
            self._note(f"and {times - 1} more {like}, the last in round {last.round}: result.json has them all")
        self._alike.clear()


class StallWatch:
    """A watch that finds, reports and ends stalls of a fleet; `over`: whether the run has nothing left to wait for."""

    def __init__(self, fleet: FleetState, restarts: Restarts) -> None:
        """Prepare to watch `fleet`; `restarts` knows which nodes return."""
        self.fleet, self.restarts = fleet, restarts
        self.outages = Outages(fleet.schedule, build_links(fleet.scenario).link)
        self.pace = Pace(fleet.nodes)
        self.history = FindingHistory()
        self.recovery = Recovery(fleet.scenario.wait.on_stall, self._can_send_again)
        self.allows: Allows | None = settings_of(fleet.scenario) if fleet.directory.kept else None
        self.window = Window()
        self.over = self.awaits_links = False
        self.unfinished: list[str] = []
        self._notes = StallNotes(fleet.note)

    def begin(self) -> None:
        """Start to watch the fleet for stalls."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop watching the fleet."""

    def answered(self, node: NodeId, reply: ProbeReply) -> None:
        """Handle the answer of `node` to a probe, which asked it for its state."""

    def heard(self, node: NodeId, round: int, now_ns: int) -> None:
        """Record that `node` is in `round`; a round with a crash or pause does not count for its usual round length."""
        back = self.restarts.backs.get(node)
        if back is not None and back.at_ns >= self.pace.rounds[node][1]:
            self.pace.stalled((node,))
        self.pace.at(node, round, now_ns)

    def waits(self) -> Mapping[NodeId, WaitInBrief]:
        """Return the known waits of nodes that have been in their round for long."""
        return {}

    def may_be_stopped_ns(self) -> int:
        """Return the ns until the live node that has been silent longest counts as stopped for good."""
        return 0

    def waiting(self) -> list[WaitingStatus]:
        """Return the longest waits of nodes for messages, of those that have lasted for at least `SHOWN_NS`."""
        least_ns = self.fleet.now_ns() - SHOWN_NS
        waits = self.waits()
        longest = sorted((wait.since_ns, node) for node, wait in waits.items() if wait.since_ns <= least_ns)
        return [
            WaitingStatus(node, waits[node].round, waits[node].awaited, since_ns / NS_PER_S)
            for since_ns, node in longest[:MOST_SHOWN]
        ]

    def finished(self, node: NodeId) -> None:
        """Record that `node` has finished."""
        if node == self.fleet.server:
            self.server_done()

    def server_done(self) -> None:
        """Record that the server has finished: clients now end if they have nothing to do, or after a grace period."""

    def finish(self) -> None:
        """At the end of the run, mark stalls as over if no node runs any more, and list nodes that did not finish."""
        if not self.fleet.running:
            self.history.take(())
        found, snapshot = self._at_the_end()
        left = [finding for finding in found if not finding.over]
        self.unfinished = unfinished(self.fleet.status, self.fleet.server, left, snapshot)
        self._notes.finish()

    def _at_the_end(self) -> tuple[Sequence[Finding], Snapshot | None]:
        """Return the stalls diagnosed at the end of the run, and the final snapshot of the fleet if there is one."""
        return self.history.findings, None

    def _can_send_again(self, src: NodeId, message: Again) -> bool:
        return src in self.fleet.live

    def _judge(self, found: Sequence[Finding], snapshot: Snapshot) -> None:
        """Report the new stalls in `found`, end stalls as the scenario asks, and end the run if nothing can happen."""
        self._tell(found, snapshot)
        acted = self._recover(found, snapshot)
        self.awaits_links = self.recovery.waits(found, snapshot)
        if not (acted or self.awaits_links) and is_over(found, snapshot, self.fleet.running):
            self._end()

    def _awaits_anything(self) -> bool:
        """Return whether a node will return, or a message will be repeated once its link is up again."""
        return self.awaits_links or self.restarts.awaits_anybody()

    def _end(self) -> None:
        self.over = True
        self.fleet.changed.set()

    def _down(self, node: NodeId, round: int, now_ns: int, account: Account | None) -> DownNode | None:
        """Return the state of `node` if it is known to be absent, crashed or paused; None if it runs.

        `account` is the state that the node itself reported last, if any.
        """
        phase, since_ns = self.fleet.status.nodes[node].phase, self.pace.rounds[node][1]
        if phase is Phase.ABSENT:
            at_ns, event = (
                None if node not in self.restarts.due else self.restarts.backs[node].at_ns,
                self.fleet.joins[node],
            )
            back_ns = None if at_ns is None else max(at_ns, now_ns)
            return DownNode(State.ABSENT, 0, 0, back_ns, keeps=False, joins_in=event.at_round)
        if phase in (Phase.CRASHED, Phase.DIED):
            if (hoped_ns := self.restarts.hoped.get(node, now_ns)) > now_ns:
                return DownNode(State.CRASHED, round, since_ns, hoped_ns, hoped=True)
            if node not in self.restarts.due:
                return DownNode(State.CRASHED, round, since_ns)
            back = self.restarts.backs[node]
            return DownNode(State.CRASHED, round, since_ns, max(back.at_ns, now_ns), back.keep_state)
        if account is not None and account.state is State.PAUSED:
            return DownNode(State.PAUSED, round, since_ns, self._goes_on_ns(account, now_ns))
        return None

    def _goes_on_ns(self, account: Account, now_ns: int) -> int | None:
        """Return the time at which a paused node resumes, or returns after a scheduled crash; None: never."""
        node, crash_ns, whens = account.node, self.outages.ends_ns(account.node, now_ns), [account.resumes_ns]
        if crash_ns is not None:
            back = find_return(self.fleet.returns.get(node, ()), node, crash_ns, source=STANDING, at_round=None)
            whens += [] if back is None else [back.at_ns]
        return min((when for when in whens if when is not None and when > now_ns), default=None)

    # telling and acting

    def _tell(self, found: Sequence[Finding], snapshot: Snapshot) -> None:
        self.pace.stalled(node for node, now in snapshot.nodes.items() if now.state in DOWN)
        new = self.history.take(found, partial(lasts, snapshot))
        for finding in new:
            self._record("stall", finding, snapshot, suspected=finding.suspected)
            keep_stall(self.fleet.directory, finding, self._shown(finding, snapshot))
            if finding.cause in NO_PACE:
                self.pace.stalled((*finding.roots, *finding.culprits, *finding.behind))
        self._notes.tell(new)

    def _shown(self, finding: Finding, snapshot: Snapshot) -> Snapshot:
        """Return the fleet's snapshot to be stored with `finding`, a diagnosed stall."""
        return snapshot

    def _record(self, kind: str, finding: Finding, snapshot: Snapshot, **more: str | bool) -> None:
        details = finding.to_event() | more
        self.fleet.store.event(snapshot.at_ns, finding.roots[0], finding.round, kind, **details)

    def _recover(self, found: Sequence[Finding], snapshot: Snapshot) -> bool:
        """Send nodes the orders that end the stalls `found`, such as to repeat a message; return whether any exist."""
        acted = False
        for finding in found:
            orders = self.recovery.orders(finding, snapshot)
            for node, order in orders:
                self.fleet.world.order(node, order)
            if orders:
                acted = True
                self.history.close(finding, self.recovery.choice)
                self._record("recovered", finding, snapshot, how=self.recovery.choice)
        return acted


class ExactWatch(StallWatch):
    """A stall watch for virtual time, which sees the exact state of the whole fleet."""

    def __init__(self, fleet: FleetState, restarts: Restarts, world: VirtualWorld) -> None:
        """Prepare to watch the fleet in `world`, which simulates it in virtual time."""
        super().__init__(fleet, restarts)
        self.world = world
        self.due_ns, self._fewer = self.pace.look_ns, False

    @override
    def begin(self) -> None:
        self.world.watched_by(self)

    def look(self, now_ns: int) -> None:
        """Look for stalls if some node has begun no round for long, or if an earlier stall may be over."""
        self.due_ns = self.pace.next_look_ns(now_ns)
        if self._fewer or self.history.open or self.pace.quiet(now_ns, self.fleet.running, 2 * self.pace.look_ns):
            self._fewer = False
            self._look(now_ns)

    def idle(self) -> None:
        """Diagnose why every node waits while nothing can run and no timer is due; end the stall, or else the run."""
        snapshot, found = self.seen(idle=True)
        self._tell(found, snapshot)
        if not self._recover(found, snapshot):
            self._end()

    def seen(self, *, idle: bool) -> tuple[Snapshot, list[Finding]]:
        """Return a snapshot of the fleet and the stalls diagnosed in it. `idle`: nothing can run, no timer is due."""
        snapshot = self._snapshot(self.fleet.now_ns(), idle=idle)
        found = diagnose(snapshot, patience_ns=self.pace.patience_ns, allows=self.allows)
        return snapshot, found + (self._unnamed(found, snapshot) if idle else [])

    def finished(self, node: NodeId) -> None:
        """Record that `node` has finished; look again soon, because others may have nothing left to wait for."""
        if not self._fewer:
            self.due_ns, self._fewer = min(self.due_ns, self.fleet.now_ns() + self.pace.soon_ns), True
        super().finished(node)

    @override
    def server_done(self) -> None:
        self._after_server(self.fleet.now_ns())

    @override
    def waits(self) -> Mapping[NodeId, WaitInBrief]:
        return self.world.waits()

    def _look(self, now_ns: int) -> None:
        snapshot = self._snapshot(now_ns, idle=False)
        window = self.window.before(snapshot, self.pace)
        self._judge(diagnose(snapshot, patience_ns=self.pace.patience_ns, window=window, allows=self.allows), snapshot)

    def _after_server(self, done_ns: int) -> None:
        now = self.fleet.now_ns()
        if now > done_ns:
            self._look(now)
        if self._awaits_anything() or goes_on(self._snapshot(now, idle=False), self.fleet.running):
            done_ns = now  # who returns then, or goes on by itself, has its time too
        if time_is_up(done_ns, now, self.pace):
            self._end()
        if not self.over:
            self.fleet.world.clock.call_at(now + AFTER_SERVER_NS, ("end",), partial(self._after_server, done_ns))

    def _at_the_end(self) -> tuple[Sequence[Finding], Snapshot | None]:
        snapshot = self._snapshot(self.fleet.now_ns(), idle=False) if self.fleet.running else None
        return self.history.findings, snapshot

    def _unnamed(self, found: Sequence[Finding], snapshot: Snapshot) -> list[Finding]:
        """Return, in a list, a diagnosis of running nodes without progress that `found` leaves out; empty if none."""
        told = {node for finding in found for node in (*finding.roots, *finding.culprits, *finding.behind)}
        running = [node for node in self.fleet.running if snapshot.nodes[node].state is not State.PAUSED]
        left = tuple(node for node in running if node not in told)
        if not left:
            return []
        return [
            Finding(
                cause=Cause.DEADLOCK,
                roots=left,
                grounds=Grounds(at_ns=snapshot.at_ns, alone=ReasonKind.STANDING),
                round=min(snapshot.nodes[node].round for node in left),
                began_ns=max(snapshot.nodes[node].since_ns for node in left),
                found_ns=snapshot.at_ns,
                permanent=True,
            )
        ]

    def _snapshot(self, now_ns: int, *, idle: bool) -> Snapshot:
        """Return a snapshot of the fleet now: the state of each node, and of each message that a node awaits.

        If nothing can run (`idle`), a node that does not wait counts as standing still.
        """
        accounts = self.world.accounts()
        down = {i: self._seen(account, now_ns, idle=idle) for i, account in accounts.items()}
        detector = "none" if idle else self.fleet.scenario.failure_detector.kind
        known: Mapping[NodeId, DownNode] = {node: own for node, own in down.items() if own is not None}
        return assemble(now_ns, accounts, known, self.outages, detector=detector)

    def _seen(self, account: Account, now_ns: int, *, idle: bool) -> DownNode | None:
        down = self._down(account.node, account.round, now_ns, account)
        if down is None and idle and account.state is State.RUNNING:
            return DownNode(State.STANDING, account.round, self.pace.rounds[account.node][1])
        return down

    def _shown(self, finding: Finding, snapshot: Snapshot) -> Snapshot:
        held = {*finding.roots, *finding.culprits, *finding.behind} & set(self.fleet.running)
        stacks = {node: replace(snapshot.nodes[node], stack=self.world.stack(node)) for node in sorted(held)}
        return replace(snapshot, nodes={**snapshot.nodes, **stacks})

    def _can_send_again(self, src: NodeId, message: Again) -> bool:
        return super()._can_send_again(src, message) and self.world.can_send_again(src, message.sent)
