"""The launcher's probes: what it makes of answers that come, come late, or don't come."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

import pytest

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import Probe, ProbeReply
from netdfl.diagnosis.account import Account, WaitAccount
from netdfl.diagnosis.snapshot import State, What
from netdfl.fleet import stall_probes
from netdfl.fleet.stall_probes import StallProbes
from netdfl.record.status import FleetStatus, NodeStatus, Phase
from netdfl.scenario.load import loads

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


class Fleet:
    """What the probes need of a launcher: nodes 0 to 2 answer at once that they wait for 3, which does not answer."""

    def __init__(self) -> None:
        self.scenario = loads(json.dumps(TEXT))
        self.now, self.server, self.broke, self.server_done_ns = 100 * NS_PER_S, None, "", None
        self.status = FleetStatus("probed", "processes", "dpsgd", 1000)
        self.status.nodes = {node: NodeStatus(node, phase=Phase.RUNNING, round=50) for node in range(4)}
        self.live = set(range(4))
        self.returns = SimpleNamespace(due={}, backs={})
        self.attendees = {node: SimpleNamespace(order=partial(self.ask, node)) for node in range(4)}
        self.probes = StallProbes(self, [])  # type: ignore[arg-type]
        for round in range(51):
            for node in range(4):
                self.probes.on_progress(node, round, self.now - YOUNG_NS * (51 - round))

    def now_ns(self) -> int:
        return self.now

    def ask(self, node: int, probe: Probe) -> None:
        if node == 3:
            self.now += NS_PER_S  # while the others' answers are long there
            return
        wait = WaitAccount(
            what=What.MESSAGE,
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
        self.probes.on_probe_reply(node, ProbeReply(probe.id, account.to_json()))


async def test_waits_do_not_grow_long_while_the_launcher_waits_for_who_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stall_probes, "ANSWER_S", 0.01)
    assert await Fleet().probes.look() == []
