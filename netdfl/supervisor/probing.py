"""The detection of stalls among real nodes: a fleet without progress is probed; two equal probes confirm a stall."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from typing_extensions import override

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import Probe, ProbeReply
from netdfl.core.errors import RunError
from netdfl.core.types import NodeId
from netdfl.diagnosis.account import Account, WaitInBrief
from netdfl.diagnosis.assemble import DownNode, assemble
from netdfl.diagnosis.diagnose import confirm, diagnose
from netdfl.diagnosis.ending import AFTER_SERVER_NS, goes_on, is_over, lasts, time_is_up
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.snapshot import SILENT, Snapshot, State, WaitKind
from netdfl.diagnosis.watch import LEAST_NS
from netdfl.supervisor.fleet import FleetState
from netdfl.supervisor.reports import check_account
from netdfl.supervisor.restarts import Restarts
from netdfl.supervisor.stalls import MOST_SHOWN, SHOWN_NS, StallWatch

LOOK_S = 0.2
ANSWER_S = 1.0
BETWEEN_S = 0.3
ASK_AGAIN_NS = 7 * NS_PER_S // 10
FOR_SHOW = 0
"""The id of probes whose answers only serve the status display, and no snapshot of the fleet."""


class ProbingWatch(StallWatch):
    """A stall watch over real nodes, which asks them for their state by messages called probes.

    A process that does not answer for `stopped_after_ns` counts as stopped.
    """

    def __init__(self, fleet: FleetState, restarts: Restarts, stopped_after_ns: int) -> None:
        """Prepare to watch `fleet`; a process that does not answer for `stopped_after_ns` counts as stopped."""
        super().__init__(fleet, restarts)
        self.accounts: dict[NodeId, Account] = {}
        self.heard_ns: dict[NodeId, int] = {}
        self._stopped_after_ns = stopped_after_ns
        self._server_done_ns: int | None = None
        self._last: tuple[Sequence[Finding], Snapshot | None] = ((), None)
        self._seen_last: Snapshot | None = None
        self._probe = 0
        self._answered: set[NodeId] = set()
        self._news = asyncio.Event()
        self._pause_ns = LEAST_NS
        self._looking: asyncio.Task[None] | None = None
        self._slow: dict[NodeId, WaitInBrief] = {}
        self._asked_ns: dict[NodeId, int] = {}

    @override
    def begin(self) -> None:
        self._looking = asyncio.create_task(self._run())

    @override
    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    def heard(self, node: NodeId, round: int, now_ns: int) -> None:
        """Record that a report came from `node`, which is in `round`, and so that its event loop runs."""
        self.heard_ns[node] = now_ns
        if node in self._slow and self._slow[node].round < round:
            del self._slow[node]
        super().heard(node, round, now_ns)

    def answered(self, node: NodeId, reply: ProbeReply) -> None:
        """Store the state that a node reports: for the display, and for the snapshot if it answers the latest probe.

        Raises ValueError if that can't be the node's state.
        """
        try:
            account = Account.from_json(reply.account)
        except ValueError as error:
            raise ValueError("an account that is none") from error
        check_account(account, node, self.fleet)
        self._note(account)
        if reply.id == self._probe and reply.id != FOR_SHOW:
            self.accounts[node] = account
            self._answered.add(node)
            self.heard_ns[node] = self.fleet.now_ns()
            self._news.set()

    @override
    def waits(self) -> Mapping[NodeId, WaitInBrief]:
        running = set(self.fleet.running)
        return {node: wait for node, wait in self._slow.items() if node in running}

    @override
    def may_be_stopped_ns(self) -> int:
        now = self.fleet.now_ns()
        silent_ns = max((now - self._heard_of(node) for node in self.fleet.live), default=0)
        return self._stopped_after_ns - silent_ns

    def _heard_of(self, node: NodeId) -> int:
        return self.heard_ns.get(node, self.pace.rounds[node][1])

    def _note(self, account: Account) -> None:
        """Store, for the status display, the wait of a node from `account`, the state that the node reported."""
        self._slow.pop(account.node, None)
        wait = account.wait
        if wait is not None and wait.what is not WaitKind.ROOM:
            awaited = set(wait.sources or ()) - set(wait.have) - set(wait.left_out)
            self._slow[account.node] = WaitInBrief(wait.round, tuple(sorted(awaited)), wait.since_ns)

    def _ask_slow(self, now_ns: int) -> None:
        """Ask the nodes that have been longest in their round what they wait for, each about once a second."""
        rounds = self.pace.rounds
        slow = sorted((rounds[node][1], node) for node in self.fleet.running if rounds[node][1] <= now_ns - SHOWN_NS)
        for _, node in slow[:MOST_SHOWN]:
            if now_ns - self._asked_ns.get(node, -ASK_AGAIN_NS) >= ASK_AGAIN_NS:
                self._asked_ns[node] = now_ns
                self.fleet.world.order(node, Probe(FOR_SHOW))

    @override
    def server_done(self) -> None:
        self._server_done_ns = self.fleet.now_ns()

    async def _run(self) -> None:
        """Watch the fleet until the end of the run; a full disk ends the run."""
        try:
            await self._watch()
        except RunError as error:
            self.fleet.broke(error)

    async def _watch(self) -> None:
        """Probe the fleet when a node has begun no round for long, and less often while no stall is found."""
        looked_ns = 0
        while not self.over:
            await asyncio.sleep(LOOK_S)
            now, done_ns = self.fleet.now_ns(), self._server_done_ns
            self._ask_slow(now)
            if done_ns is not None and (self._awaits_anything() or self._goes_on()):
                done_ns = self._server_done_ns = now  # who returns then, or goes on by itself, has its time too
            if done_ns is not None:
                if now - max(looked_ns, done_ns) >= AFTER_SERVER_NS:
                    found = await self.look()
                    if not self.over and time_is_up(done_ns, self.fleet.now_ns(), self.pace):
                        self._last = found, await self._snapshot()
                        self._end()
                    looked_ns = self.fleet.now_ns()
            elif not self.history.open and not self.pace.quiet(now, self.fleet.running, LEAST_NS):
                self._pause_ns = LEAST_NS
            elif now - looked_ns >= self._pause_ns:
                found = await self.look()
                looked_ns = self.fleet.now_ns()
                self._pause_ns = LEAST_NS if found else min(2 * self._pause_ns, self.pace.patience_ns)

    def _goes_on(self) -> bool:
        """Return whether some client can still continue by itself, according to the last snapshot."""
        return self._seen_last is not None and goes_on(self._seen_last, self.fleet.running)

    async def look(self) -> Sequence[Finding]:
        """Take a snapshot, and a second one if the first shows a stall; report and end the stalls that both show.

        Return these stalls.
        """
        first = await self._snapshot()
        found = diagnose(first, patience_ns=self.pace.patience_ns, window=self.window.before(first, self.pace))
        if not found and not is_over(found, first, self.fleet.running):
            self.history.take((), partial(lasts, first))
            return ()
        await asyncio.sleep(BETWEEN_S)
        second = await self._snapshot()
        window = self.window.before(second, self.pace)
        found = diagnose(second, patience_ns=self.pace.patience_ns, window=window, allows=self.allows)
        found = confirm(found, first, second)
        self._last = found, second
        self._judge(found, second)
        return found

    def finish(self) -> None:
        """Record unfinished nodes that do not answer, because a stopped process can't report itself."""
        super().finish()
        now_ns, seen = self.fleet.now_ns(), {} if self._seen_last is None else self._seen_last.nodes
        for node in sorted(self.fleet.running):
            if node in seen and seen[node].state in SILENT:
                since_ns = self._heard_of(node)
                seconds = (now_ns - since_ns) / NS_PER_S
                self.fleet.store.event(now_ns, node, self.pace.rounds[node][0], "silent", seconds=seconds)

    def _at_the_end(self) -> tuple[Sequence[Finding], Snapshot | None]:
        """Return the stalls diagnosed last and the snapshot that showed them, if they ended the run."""
        return self._last if self.over else ((), None)

    async def _snapshot(self) -> Snapshot:
        """Probe every live node, and return a snapshot of the fleet at the moment of the probe.

        The state that a node answers was the same at that moment, as nodes answer at once. If only some nodes do not
        answer, their event loops are blocked.
        """
        fleet, asked_ns = self.fleet, self.fleet.now_ns()
        self._probe += 1
        self._answered.clear()
        asked = set(fleet.live)
        for node in asked:
            fleet.world.order(node, Probe(self._probe))
        await self._listen(asked)
        live = fleet.live
        owns = {node: self._seen(node, asked_ns, node in asked, node in live) for node in fleet.status.nodes}
        down = {node: own for node, own in owns.items() if own is not None}
        detector = fleet.scenario.failure_detector.kind
        self._seen_last = assemble(asked_ns, self.accounts, down, self.outages, detector=detector)
        return self._seen_last

    async def _listen(self, asked: Collection[NodeId]) -> None:
        """Return when all of `asked` have answered, or when none has answered for `ANSWER_S` seconds.

        If this process itself was delayed, it waits again: answers may have come unread.
        """
        clock = asyncio.get_running_loop().time
        while not set(asked) & self.fleet.live <= self._answered:
            self._news.clear()
            due_s = clock() + ANSWER_S
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._news.wait()
            if not self._news.is_set() and clock() < due_s + ANSWER_S / 2:
                return

    def _seen(self, node: NodeId, now_ns: int, asked: bool, lives: bool) -> DownNode | None:
        """Return the state of `node` if it is absent, crashed or paused, or left the last probe unanswered; else None.

        Args:
            node: the node.
            now_ns: the time at which the probe of all live nodes was sent.
            asked: whether the probe was sent to `node`; if not, a live node has only just started, and counts as
                running.
            lives: whether `node` is running or has finished: it is not absent (yet to join) and has not crashed.
        """
        round = self.fleet.status.nodes[node].round
        if node in self._answered or not lives:
            return self._down(node, round, now_ns, self.accounts.get(node))
        heard_ns = self._heard_of(node)
        stopped = self.fleet.now_ns() - heard_ns >= self._stopped_after_ns
        state = State.RUNNING if not asked else State.STOPPED if stopped else State.BLOCKED
        return DownNode(state, round, heard_ns)
