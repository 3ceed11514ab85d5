"""Who waits for whom is shown while a fleet runs: exactly in virtual time, by asking slow nodes in real time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netdfl
from netdfl.record.status import FleetStatus
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: waits
nodes: 3
rounds: 4
world: {kind: WORLD}
task: {kind: consensus, dim: 5}
algorithm: dpsgd
topology: ring
wait: {for: all, deadline: none}
events:
  - {pause: 1, at_round: 2, for: 2s}
"""


class Seen:
    """A view that remembers who was shown waiting for whom, in which round."""

    def __init__(self) -> None:
        self.waits: set[tuple[int, int, tuple[int, ...]]] = set()

    def __enter__(self) -> Seen:
        return self

    def __exit__(self, *exc: Any) -> None:
        pass

    def update(self, status: FleetStatus) -> None:
        self.waits |= {(wait.node, wait.round, wait.awaited) for wait in status.waiting}

    def note(self, text: str) -> None:
        pass


def test_real_nodes_say_for_whom_they_wait(tmp_path: Path) -> None:
    seen = Seen()
    netdfl.run(loads(SCENARIO.replace("WORLD", "processes")), out=tmp_path / "run", page=False, view=seen)
    assert {(0, 2, (1,)), (2, 2, (1,))} <= seen.waits


def test_in_virtual_time_every_wait_of_half_a_second_is_known(tmp_path: Path) -> None:
    run = netdfl.run(loads(SCENARIO.replace("WORLD", "simulated")), out=tmp_path / "run", page=False).run
    ((since_s,),) = run.rows("SELECT min(since_s) FROM waits WHERE until_s - since_s > 1")
    with netdfl.replay(run) as replay:
        replay.until(since_s + 0.4)
        assert replay.waiting == []
        replay.until(since_s + 0.6)
        assert [(wait.node, wait.round, wait.awaited, wait.since_s) for wait in replay.waiting] == [
            (0, 2, (1,), since_s),
            (2, 2, (1,), since_s),
        ]
