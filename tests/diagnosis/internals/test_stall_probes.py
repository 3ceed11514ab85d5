"""The supervisor's probes: what it makes of answers that come, come late, or don't come."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from netdfl.core.control import Probe, ProbeReply
from netdfl.diagnosis.account import Account
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.snapshot import State
from netdfl.diagnosis.watch import Pace
from netdfl.supervisor import probing
from tests.diagnosis.told_stalls import Told


class Behind(Told):
    """This process stands still while node 3 answers, and reads the answer after that."""

    def ask_slow(self, probe: Probe) -> None:
        loop = asyncio.get_running_loop()

        def answer() -> None:
            account = Account(node=3, epoch=0, at_ns=self.now, state=State.RUNNING, round=50, since_ns=self.now)
            self.probes.answered(3, ProbeReply(probe.id, account.to_json()))

        def stand_still() -> None:
            time.sleep(5 * probing.ANSWER_S)
            loop.call_later(probing.ANSWER_S / 10, answer)

        loop.call_soon(stand_still)


async def test_who_answered_while_the_supervisor_stood_still_is_not_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "ANSWER_S", 0.1)
    probes = Behind(tmp_path).probes
    snapshot = await probes._snapshot()
    assert snapshot.nodes[3].state is State.RUNNING


async def test_many_stalls_of_one_kind_at_once_are_all_recorded_and_few_of_them_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "ANSWER_S", 0.01)
    told = Told(tmp_path)
    kinds = [Cause.BLOCKED_LOOP] * 20 + [Cause.DEADLOCK]
    told.probes.pace = Pace(range(len(kinds)))
    found = [
        Finding(cause=cause, roots=(root,), culprits=(root,), told=f"stall {root}") for root, cause in enumerate(kinds)
    ]
    told.probes._tell(found, await told.probes._snapshot())
    assert len(told.events) == len(found)
    assert [note.partition(". Since")[0] for note in told.notes] == [
        *(f"stall {root}" for root in (*range(6), 20)),
        "and 14 more of that kind (blocked_loop) at once: result.json has them all",
    ]
