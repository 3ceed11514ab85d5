"""The notes on stalls: what comes back in every round is told once, and how often at the end."""

from __future__ import annotations

from netdfl.diagnosis.finding import Cause, Finding
from netdfl.supervisor.stalls import StallNotes


def circle(round: int, *, permanent: bool = True, culprit: int = 0) -> Finding:
    return Finding(
        cause=Cause.DEADLOCK,
        roots=(0, 1, 2) if round % 2 == 0 else (2, 1, 0),
        culprits=(culprit, 1, 2),
        told=f"stall {round}",
        round=round,
        permanent=permanent,
    )


def test_stalls_that_are_alike_are_told_once_and_counted_at_the_end() -> None:
    said: list[str] = []
    notes = StallNotes(said.append)
    for round in range(20):
        notes.tell([circle(round)])
    notes.tell([circle(20, culprit=3)])
    notes.tell([circle(21, permanent=False)])
    assert [each.partition(". Since")[0] for each in said] == ["stall 0", "stall 20", "stall 21"]
    notes.finish()
    notes.finish()
    assert said[3:] == [
        "and 19 more like that of nodes 0 to 2 in round 0 (deadlock), the last in round 19: result.json has them all"
    ]
