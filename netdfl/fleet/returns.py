"""The launcher's side of scripted crashes: who crashed as planned, and who lives again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import Crashed, Gone, Order, Peers, Returned, Start
from netdfl.core.types import NodeId
from netdfl.fleet.rejoining import caught_up
from netdfl.fleet.script import Return, find_return, fresh_round
from netdfl.record.status import Phase
from netdfl.scenario.build import compile_schedule
from netdfl.transport.control import Attendee

if TYPE_CHECKING:
    from netdfl.fleet.processes import Launcher
    from netdfl.fleet.resume import Resumption


class Returns:
    """Takes the crash reports of nodes, and has them started again when the schedule says."""

    def __init__(self, launcher: Launcher) -> None:
        """Serve `launcher`, whose scenario's schedule is compiled and written to the run here."""
        self.launcher = launcher
        self.events = compile_schedule(launcher.scenario)
        self.due: dict[NodeId, asyncio.Task[None]] = {}
        self.backs: dict[NodeId, Return] = {}
        self.epochs: dict[NodeId, int] = {}
        if self.events:
            launcher.directory.write_events([event.to_json() for event in self.events])

    def resumed(self, resumption: Resumption) -> None:
        """All nodes live again after the whole run was killed, but for those that are down."""
        launcher, at_ns = self.launcher, resumption.at_ns
        self.epochs = dict.fromkeys(resumption.rounds, resumption.epoch)
        joined = {node: max(own, resumption.at_least) for node, own in resumption.rounds.items()}
        launcher.evaluation.joined.update(joined)
        launcher.evaluation.skip(resumption.judged)
        launcher.store.event(at_ns, None, min(joined.values()), "resume", **resumption.to_json())
        for node in sorted(resumption.down):
            launcher.tell_gone(node, "gone before")

    def crashed(self, node: NodeId, event: Crashed) -> None:
        """`node` says that it crashes now, as scripted."""
        launcher = self.launcher
        status = launcher.status.nodes[node]
        status.phase, status.round = Phase.CRASHED, event.round
        launcher.store.event(event.at_ns, node, event.round, "crash", **event.details())
        launcher.note(f"node {node} crashed in round {event.round}, as scripted")
        for nodes in launcher.pids.values():
            if node in nodes:
                nodes.remove(node)
        launcher.tell_gone(node, "crashed")
        back = find_return(self.events, node, event.at_ns, source=event.source, at_round=event.at_round)
        if back is not None:
            self.backs[node] = back
            self.due[node] = asyncio.create_task(self._start(node, back, event.round))
        launcher.evaluation.look()

    async def _start(self, node: NodeId, back: Return, round: int) -> None:
        launcher = self.launcher
        await asyncio.sleep(max(0, back.at_ns - launcher.now_ns()) / NS_PER_S)
        self.epochs[node] = epoch = self.epochs.get(node, 0) + 1
        if not back.keep_state:
            others = (status.round for other, status in launcher.status.nodes.items() if other != node)
            round = launcher.evaluation.joined[node] = fresh_round(round, others)
        rejoin = {"keep_state": back.keep_state, "round": round, "weight": back.weight}
        pid = await launcher.nursery.spawn(
            [node], launcher.devices[node], epoch, place=launcher.place([node]), rejoin=rejoin
        )
        launcher.pids[pid] = [node]
        launcher.status.nodes[node].pid = pid

    def attends(self, attendee: Attendee) -> None:
        """A node in a later life attends: let it join the others, and tell them."""
        launcher, hello = self.launcher, attendee.hello
        node = hello.node
        assert launcher.start_ns is not None
        self.due.pop(node, None)
        status = launcher.status.nodes[node]
        status.phase, status.address = Phase.RUNNING, hello.address
        launcher.store.event(launcher.now_ns(), node, status.round, "restart", epoch=hello.epoch)
        launcher.note(f"node {node} is back")
        others = launcher.live - {node}
        known = launcher.attendees.keys() & launcher.status.nodes.keys()  # who was down at a resumption never attended
        addresses = {other: launcher.attendees[other].hello.address for other in known if other != node}
        attendee.order(Peers(addresses))
        if launcher.oracle:
            for gone in sorted(set(launcher.status.nodes) - launcher.live):
                attendee.order(Gone(gone, "gone before"))
        attendee.order(Start(launcher.start_ns, self._catch_up(node)))
        back, moved = Returned(node, hello.address, hello.epoch), Peers({node: hello.address})
        order: Order = back if launcher.oracle else moved
        for other in others:
            launcher.attendees[other].order(order)

    def _catch_up(self, node: NodeId) -> int:
        back, launcher = self.backs.get(node), self.launcher
        if back is None:
            return 0
        others = (status for other, status in launcher.status.nodes.items() if other != node)
        round = caught_up(launcher.scenario, back, others)
        launcher.evaluation.joined[node] = max(round, launcher.evaluation.joined.get(node, 0))
        return round

    def forget(self, node: NodeId) -> None:
        """`node` ended before it could live again."""
        self.due.pop(node, None)

    def close(self) -> None:
        """Nobody returns any more."""
        for task in self.due.values():
            task.cancel()
        self.due.clear()
