"""Of what a member repeats with ever other numbers, nodes and supervisor remember no more if it comes often."""

from __future__ import annotations

import asyncio
import gc
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import pytest

import netdfl
from netdfl.core.control import AskClock, FilePart, Happened, Hello, ModelSaved, ProbeReply, Progress, Report
from netdfl.core.types import Kind, Message, Payload
from netdfl.host.node import NodeHost
from netdfl.record.event_log import EventLog
from netdfl.record.store import RowTable
from netdfl.transport.base import Fate
from netdfl.transport.simulated.ends import FabricEnd
from netdfl.transport.simulated.fabric import Fabric
from netdfl.worlds.simulated.loop import VirtualLoop
from tests.hostile.test_reports import Desk, account, crash, part

FEW, MANY = 100, 1000
"""How many copies of each of its messages the member sends."""
MEMBER, ROUNDS = 1, 8
MARGIN = (MANY - FEW) // 2
"""The objects that nodes may hold more with MANY copies than with FEW. If copies of one message are kept, each is more
than one."""
CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType)
NOT_HELD = (*CODE, VirtualLoop, Fabric, EventLog, RowTable, asyncio.Task)
"""Code, what is on its way, what is written to disk, and answers of this instant (`tests/node/test_background.py`)."""
PROBES = {"deadline": "none", "probes": "30ms", "on_stall": "skip"}
ACKNOWLEDGED = {"delivery": "acknowledged", "wait": {"deadline": "none"}}
CRASH = {"at_round": 2, "crash": 2, "restart_after": "10ms"}
PUSH = {"kind": "random_push", "out_neighbors": 2}
FLEETS: Mapping[str, tuple[set[Kind], Mapping[str, Any]]] = {
    "queries, heartbeats": (
        {Kind.DATA, Kind.HEARTBEAT, Kind.QUERY},
        {"wait": {"deadline": "auto"}, "failure_detector": {"kind": "heartbeat", "every": "20ms", "misses": 300}},
    ),
    "probes": ({Kind.DATA, Kind.PROBE}, {"wait": PROBES, "events": [{"at_round": 2, "drop": "1->2", "kind": "data"}]}),
    "acknowledged": ({Kind.DATA, Kind.ACK}, ACKNOWLEDGED),
    "state kept": ({Kind.DATA, Kind.ACK}, {**ACKNOWLEDGED, "events": [CRASH | {"state": "kept"}]}),
    "notices": (
        {Kind.DATA, Kind.NOTICE, Kind.ACK},
        {"topology": PUSH, "algorithm": {"name": "dfedsgpsm_s", "neighbors": 1}},
    ),
    "push-sum": ({Kind.DATA, Kind.ACK}, {"algorithm": {"name": "sgp"}, "topology": PUSH}),
    "pairwise": ({Kind.REQUEST, Kind.DATA}, {"algorithm": {"name": "ad_psgd"}}),
}


def numbers_of(number: random.Random, value: Any) -> Any:
    """Return `value` with other whole numbers, in texts too, each as before, near it, small or large."""
    if type(value) is int:
        return number.choice((value, value, value + 1, number.randrange(6), number.randrange(1 << 31)))
    if isinstance(value, Mapping):
        return {key: numbers_of(number, each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [numbers_of(number, each) for each in value]
    if isinstance(value, str):
        return re.sub(r"\d+", lambda found: str(numbers_of(number, int(found[0]))), value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: numbers_of(number, getattr(value, each.name)) for each in fields(value)})
    return value


def held(roots: Iterable[object]) -> int:
    """Return the number of objects that `roots` hold, code aside."""
    seen, left = dict[int, object](), list(roots)
    while left:
        each = left.pop()
        if id(each) not in seen and not isinstance(each, NOT_HELD):
            seen[id(each)] = each
            left += gc.get_referents(each)
    return len(seen)


@dataclass
class Flood:
    """The member's copies, and what they come to."""

    copies: int
    hosts: list[NodeHost] = field(default_factory=list)
    kinds: Counter[Kind] = field(default_factory=Counter)
    most: int = 0

    def send(self, deliver: Any, end: FabricEnd, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Deliver messages, and after each message of the member its copies; count first what the last ones left."""
        fates = deliver(end, messages)
        for message in messages:
            if message.src == MEMBER:
                self.most = max(self.most, held(self.hosts))
                self.kinds[message.kind] += 1
                for number in range(self.copies):
                    deliver(end, [self._copy(random.Random(number), message)])
        return fates

    def _copy(self, number: random.Random, message: Message) -> Message:
        epoch, round, step, attempt = (
            numbers_of(number, each) for each in (message.epoch, message.round, message.step, message.attempt)
        )
        meta = numbers_of(number, message.payload.meta)
        payload = Payload(message.payload.arrays, meta)
        return Message(MEMBER, message.dst, message.kind, epoch % 2**32, round % ROUNDS, step, attempt % 2**16, payload)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] * (name in ("acknowledged", "push-sum"))) for name in FLEETS]
)  # where state is kept, the same is acknowledged; where there are notices, they go over the same graphs
def test_a_node_holds_no_more_of_many_messages_than_of_few(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds, more = FLEETS[name]
    base = {
        "schema": "netdfl/1",
        "name": "grows",
        "nodes": 6,
        "rounds": ROUNDS,
        "task": {"kind": "consensus", "dim": 4},
        "algorithm": {"name": "dpsgd"},
        "topology": "ring",
        "links": {"default": {"latency": "20ms", "loss": "10%"}},
        "world": {"kind": "simulated"},
        "expect": {"stall": "any", "deadlock": "any", "unfinished": "any"},
    }
    prepare, deliver = NodeHost.__init__, FabricEnd.deliver
    floods = []
    for copies in (FEW, MANY):
        flood = Flood(copies)
        floods.append(flood)

        def known(host: NodeHost, *given: Any, flood: Flood = flood) -> None:
            prepare(host, *given)
            flood.hosts.append(host)

        monkeypatch.setattr(NodeHost, "admits", True)
        monkeypatch.setattr(NodeHost, "__init__", known)
        monkeypatch.setattr(FabricEnd, "deliver", lambda end, came, flood=flood: flood.send(deliver, end, came))
        netdfl.run({**base, **more}, out=tmp_path / str(copies), page=False)
    few, many = floods
    assert set(few.kinds) >= kinds
    assert many.most <= few.most + MARGIN


REPORTS: Sequence[Report] = (
    Hello(node=1, role="client", pid=7, address="10.0.0.1:700", epoch=0, versions={"torch": "2.0"}),
    Progress(round=1, at_ns=5),
    ModelSaved(1),
    ProbeReply(1, account(1, 0)),
    crash(0),
    Happened(3, 1, "failed", {"reason": "error 1"}),
    AskClock(1),
    part("store/events-001.jsonl"),
    FilePart("models/001.safetensors", 0, b"x", grows=False),
)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_a_supervisor_holds_no_more_of_many_reports_than_of_few(report: Report, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.tell(*REPORTS[:2])
    counts = []
    for copies in (range(FEW), range(FEW, FEW + MANY)):
        for number in copies:
            desk.tell(numbers_of(random.Random(number), report))
        desk.rows.clear()
        desk.orders.clear()
        counts.append(held([desk.supervisor]))
    assert counts[1] <= counts[0] + MARGIN
