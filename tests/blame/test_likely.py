"""Which possible causes get a run of their own where there are more than runs."""

from __future__ import annotations

from netdfl.blame.candidates import Candidate
from netdfl.blame.likely import by_likelihood
from netdfl.core.types import Kind
from netdfl.explore.rows import MemoryStore
from netdfl.record.base import WaitEnd, WaitRecord
from tests.blame.fleets import MS


def test_a_deadline_comes_by_its_time_on_the_critical_path() -> None:
    """Node 0 computes for 10 ms, and its deadline ends the run after 100; node 1's deadline delayed nobody."""
    rows = MemoryStore()
    for node, until_ms in ((0, 110), (1, 50)):
        waited = (10 * MS, until_ms * MS, until_ms * MS, WaitEnd.DEADLINE, None, (2,))
        rows.wait(WaitRecord(node, 0, 0, Kind.DATA, *waited))
    nodes = [Candidate("deadline", (1,), "1"), Candidate("slowness", (0,), "slow"), Candidate("deadline", (0,), "0")]
    event = Candidate("event", (0,), "event")
    assert [each.text for each in by_likelihood([*nodes, event], rows)] == ["event", "0", "slow", "1"]
