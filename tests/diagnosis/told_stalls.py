"""A supervisor of stalls that notes what it is told, for the tests of this folder."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import Order, Probe, ProbeReply
from netdfl.core.types import NodeId
from netdfl.diagnosis.account import Account, WaitAccount
from netdfl.diagnosis.snapshot import State, WaitKind
from netdfl.record.directory import RunDirectory
from netdfl.record.status import FleetStatus, NodeStatus, Phase
from netdfl.scenario.load import loads
from netdfl.supervisor.fleet import FleetState
from netdfl.supervisor.probing import ProbingWatch

TEXT = {
    "schema": "netdfl/1",
    "name": "probed",
    "nodes": 4,
    "rounds": 1000,
    "task": {"kind": "consensus"},
    "algorithm": "dpsgd",
    "topology": "ring",
    "wait": {"deadline": "none"},
}

YOUNG_NS = NS_PER_S // 20


class Told:
    """What the probes need of a world: nodes 0 to 2 answer at once that they wait for 3, which does not answer."""

    def __init__(self, path: Path) -> None:
        self.now = 100 * NS_PER_S
        self.clock = SimpleNamespace(now_ns=lambda: self.now)
        status = FleetStatus("probed", "processes", "dpsgd", 1000)
        status.nodes = {node: NodeStatus(node, phase=Phase.RUNNING, round=50) for node in range(4)}
        world: Any = self
        store: Any = SimpleNamespace()
        fleet = FleetState(
            scenario=loads(json.dumps(TEXT)),
            directory=RunDirectory(path),
            world=world,
            status=status,
            store=store,
            note=lambda text: None,
            start_ns=0,
        )
        self.notes: list[str] = []
        fleet.note = self.notes.append
        store.event = lambda *_, **more: self.events.append(more)
        self.events: list[dict[str, Any]] = []
        restarts: Any = SimpleNamespace(due={}, backs={})
        self.probes = ProbingWatch(fleet, restarts, stopped_after_ns=60 * NS_PER_S)
        for round in range(51):
            for node in range(4):
                self.probes.heard(node, round, self.now - YOUNG_NS * (51 - round))

    def order(self, node: NodeId, order: Order) -> None:
        assert isinstance(order, Probe)
        self.ask(node, order)

    def ask_slow(self, probe: Probe) -> None:
        """Node 3 is asked."""

    def ask(self, node: int, probe: Probe) -> None:
        if node == 3:
            self.now += NS_PER_S  # while the others' answers are long there
            self.ask_slow(probe)
            return
        wait = WaitAccount(
            what=WaitKind.MESSAGE,
            round=50,
            step=0,
            sources=(3,),
            need=1,
            have=(),
            left_out=(),
            since_ns=self.now - YOUNG_NS,
            deadline_ns=None,
        )
        account = Account(
            node=node, epoch=0, at_ns=self.now, state=State.WAITING, round=50, since_ns=wait.since_ns, wait=wait
        )
        self.probes.answered(node, ProbeReply(probe.id, account.to_json()))
