"""What is sent at once over links that are alike travels as one thing, and nothing can tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import netdfl
from netdfl.core.types import Kind, MessageId, Multicast, Payload, StepId
from netdfl.record.run import Run
from netdfl.record.store import STORE
from netdfl.transport.simulated.edge_queues import Due
from netdfl.transport.simulated.instants import Instants, ScheduledMulticast, apart
from netdfl.transport.simulated.transport import SimulatedTransport
from tests.agreeing import agreeing_fleet

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "redrawn": {"topology": {"kind": "random_sym", "neighbors": 4, "redraw_every": 1}},
    "several steps": {"algorithm": {"name": "dfedsam_mgs", "gossip_steps": 3}},
    "push-sum": {"algorithm": {"name": "sgp"}},
    "compressed": {"algorithm": {"name": "choco_sgd"}, "compression": {"kind": "top_k", "fraction": 0.5}},
    "acknowledged": {"delivery": {"kind": "acknowledged"}, "algorithm": {"name": "sgp"}},
    "a pause": {"events": [{"at": "30ms", "for": "90ms", "pause": 2}]},
    "a crash": {"events": [{"at": "70ms", "crash": 3}], "wait": {"deadline": "300ms"}},
    "a return": {"events": [{"at_round": 2, "crash": 3, "restart_after": "1s"}], "wait": {"deadline": "300ms"}},
    "compute": {"world": {"kind": "simulated", "compute": "10ms"}},
    "asynchronous": {"algorithm": {"name": "asyng"}},
}


def play(out: Path, case: str) -> Run:
    return netdfl.run(agreeing_fleet(12, 6, 4) | CASES[case], out=out, page=False).run


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_the_same_where_each_message_is_scheduled_alone(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[int] = []

    def counted(self: Instants, multicast: ScheduledMulticast, at_ns: int) -> None:
        fired.append(len(multicast.multicast.dsts))
        schedule(self, multicast, at_ns)

    def taken_apart(self: Instants, multicast: ScheduledMulticast, at_ns: int) -> None:
        self.entries(at_ns).extend(multicast.dues())

    schedule = Instants.schedule
    monkeypatch.setattr(Instants, "schedule", counted)
    together = play(tmp_path / "together", case)
    assert sum(fired) > 100
    monkeypatch.setattr(Instants, "schedule", taken_apart)
    apart = play(tmp_path / "apart", case)
    assert together.result["event_log_hash"] == apart.result["event_log_hash"]
    for table in ("messages", "metrics", "waits"):
        rows = [(run.path / STORE / f"{table}-fleet.jsonl").read_text() for run in (together, apart)]
        assert rows[0] == rows[1], table


def test_to_look_at_what_is_under_way_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    async def looking(self: SimulatedTransport, multicasts: Sequence[Multicast]) -> None:
        await send(self, multicasts)
        if self.node % 5 == 0:
            looked_at.append(len(list(self.fabric.under_way.flights())))

    unseen = play(tmp_path / "unseen", "plain")
    send = SimulatedTransport.send
    monkeypatch.setattr(SimulatedTransport, "send", looking)
    seen = play(tmp_path / "seen", "plain")
    assert max(looked_at) > 4
    assert min(looked_at) >= 4
    assert seen.result["event_log_hash"] == unseen.result["event_log_hash"]


def due(number: int) -> Due:
    return (number, None, None, 10, 0, None, 0)  # type: ignore[return-value]


def multicast(*ties: int) -> ScheduledMulticast:
    sent = Multicast(0, ties, MessageId(Kind.DATA, 0, StepId(0, 0), 0, 0), (Payload(),) * len(ties))
    return ScheduledMulticast(sent, [SimpleNamespace(tie=tie) for tie in ties], 10, 0, 0)  # type: ignore[misc]


def test_an_instant_holds_multicasts_or_single_messages_in_the_order_in_which_they_came() -> None:
    instants = Instants()
    instants.schedule(multicast(1, 2), 5)
    instants.schedule(multicast(3, 4), 5)
    instants.schedule(first := multicast(8), 4)
    assert instants.next_ns() == 4
    assert instants.pop(4) == ([first], [])
    instants.entries(5).append(due(5))
    instants.schedule(multicast(6, 7), 5)
    assert instants.next_ns() == 5
    assert [each[0] for each in instants.pop(5)[1]] == [1, 2, 3, 4, 5, 6, 7]
    assert instants.next_ns() is None
    assert [each[0] for each in apart([multicast(2, 1), multicast(3)])] == [2, 1, 3]
