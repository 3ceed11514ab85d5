"""Small parts of the diagnosis at their bounds: stalls that are kept, stray replies, names, and a fleet's patience."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from wait_graphs import fleet, is_, waits

from netdfl.core.errors import RunError
from netdfl.diagnosis import words
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.finding import keep_stall
from netdfl.diagnosis.probes import AndDetector, EdgeChasingProbe, OrDetector
from netdfl.diagnosis.snapshot import AwaitedMessage, EdgeNow, Snapshot, State, WaitKind, WaitNow
from netdfl.diagnosis.watch import (
    FIRST_LOOK_NS,
    FIRST_NS,
    LEAST_LIVELOCK_NS,
    LEAST_NS,
    ROUNDS_KEPT,
    ROUNDS_LIVELOCK,
    ROUNDS_QUIET,
    Pace,
    Window,
)
from netdfl.record.directory import RunDirectory
from netdfl.record.kept_stalls import FOLDER, MOST_KEPT

SECOND = 10**9
KNOT = fleet(waits(0, [1]), waits(1, [0]))
(FOUND,) = find_stuck(KNOT)


def test_stalls_are_kept_by_number_until_the_folder_is_full(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    kept = [keep_stall(run, FOUND, KNOT) for _ in range(MOST_KEPT + 1)]
    assert [path and path.name for path in kept] == [*(f"{n:03d}.json" for n in range(MOST_KEPT)), None]
    assert len(list((tmp_path / FOLDER).iterdir())) == MOST_KEPT


def test_a_run_that_is_not_kept_keeps_no_stall_and_one_that_can_not_says_so(tmp_path: Path) -> None:
    assert keep_stall(RunDirectory(tmp_path, kept=False), FOUND, KNOT) is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / FOLDER).write_text("in the way")
    with pytest.raises(RunError, match="can't be made"):
        keep_stall(RunDirectory(tmp_path), FOUND, KNOT)


# probes


def probe(kind: Any, src: int, number: int = 1, initiator: int = 0, dst: int = 0, path: Any = ()) -> EdgeChasingProbe:
    return EdgeChasingProbe(kind, initiator, number, src, dst, path)


def test_a_reply_to_what_was_never_asked_proves_nothing() -> None:
    detector = OrDetector(0)
    detector.wait([1])
    assert detector.receive(probe("reply", 1)) == []
    assert not detector.deadlocked
    assert detector.start() == [probe("query", 0, dst=1)]
    assert detector.receive(probe("reply", 1, number=2)) == []
    assert not detector.deadlocked
    assert detector.receive(probe("reply", 1, path=((1, 4),))) == []
    assert (detector.deadlocked, detector.members) == (True, ((1, 4),))
    detector.wait([1])
    assert not detector.deadlocked


def test_only_a_nodes_last_computation_proves_a_deadlock() -> None:
    for detector, kind in ((AndDetector(0), "probe"), (OrDetector(0), "reply")):
        detector.wait([1])
        detector.start()
        detector.start()
        assert detector.receive(probe(kind, 1, number=1)) == []
        assert not detector.deadlocked
        assert detector.receive(probe(kind, 1, number=2)) == []
        assert detector.deadlocked


# words


def test_what_a_wait_lacks_is_named_by_how_many_it_needs() -> None:
    def lacks(need: int, what: WaitKind = WaitKind.MESSAGE) -> str:
        on = {node: AwaitedMessage() for node in (5, 1, 2)}
        return words.for_whom(WaitNow(round=0, need=need, awaited=on, have=frozenset([7]), what=what))

    assert [lacks(need) for need in (2, 3, 4)] == ["1, 2 or 5", "2 of 1, 2 and 5", "1, 2 and 5"]
    assert lacks(4, WaitKind.ROOM) == "room at 1, 2 and 5"


# pace


def test_a_fleets_patience_follows_the_median_round_of_its_slowest_node() -> None:
    pace = Pace([0, 1])
    assert (pace.round_ns, pace.patience_ns, pace.look_ns) == (None, FIRST_NS, FIRST_LOOK_NS)
    assert pace.livelock_ns == LEAST_LIVELOCK_NS
    at = 0
    for round, took in enumerate((5, 1, 9), start=1):
        at += took * SECOND
        pace.at(0, round, at)
    pace.at(1, 4, 4 * SECOND)
    assert pace.round_ns == 5 * SECOND
    assert (pace.patience_ns, pace.look_ns) == (ROUNDS_QUIET * 5 * SECOND, ROUNDS_QUIET * 5 * SECOND // 2)
    assert pace.livelock_ns == ROUNDS_LIVELOCK * 5 * SECOND
    assert pace.last_ns == 15 * SECOND
    for round in range(4, 4 + ROUNDS_KEPT):
        at += SECOND // 100
        pace.at(0, round, at)
    assert pace.round_ns == SECOND, "node 1 took a second a round"
    assert Pace([]).round_ns is None


def test_what_held_a_node_up_is_no_pace_and_going_back_is_none_either() -> None:
    pace = Pace([0])
    pace.stalled([0])
    pace.at(0, 1, 9 * SECOND)
    assert (pace.round_ns, pace.rounds[0]) == (None, (1, 9 * SECOND))
    pace.at(0, 1, 10 * SECOND)
    assert pace.rounds[0] == (1, 9 * SECOND)
    pace.at(0, 0, 11 * SECOND)
    assert (pace.round_ns, pace.rounds[0]) == (None, (0, 11 * SECOND))
    pace.at(0, 2, 12 * SECOND)
    assert pace.round_ns is None, "it had been held up in that round"
    pace.at(0, 4, 13 * SECOND)
    assert (pace.round_ns, pace.patience_ns) == (SECOND // 2, ROUNDS_QUIET * SECOND // 2)
    pace.at(0, 5, 13 * SECOND + 1)
    pace.at(0, 6, 13 * SECOND + 2)
    assert pace.patience_ns == LEAST_NS


def test_in_a_first_round_of_hours_looks_become_seldom() -> None:
    pace = Pace([0])
    assert [pace.next_look_ns(now) - now for now in (0, FIRST_NS, FIRST_NS + 2 * FIRST_LOOK_NS)] == [FIRST_LOOK_NS] * 3
    assert pace.next_look_ns(FIRST_NS + 10 * SECOND) == FIRST_NS + 15 * SECOND
    pace.at(0, 1, SECOND)
    assert pace.next_look_ns(3600 * SECOND) == 3600 * SECOND + pace.look_ns


QUIET = [([0], None, True), ([1], None, False), ([1, 0], None, True), ([], None, False), ([1], 5, True)]


@pytest.mark.parametrize(("among", "for_ns", "quiet"), QUIET)
def test_quiet_is_who_began_no_round_for_as_long(among: list[int], for_ns: int | None, quiet: bool) -> None:
    pace = Pace([0, 1])
    pace.at(1, 1, 10)
    now = pace.patience_ns
    assert pace.quiet(now, among, for_ns) is quiet
    assert not pace.quiet(now - 1, [0])


def test_a_livelock_is_judged_from_the_first_look_after_a_round_began() -> None:
    pace, window = Pace([0]), Window()

    def look(at_ns: int) -> Snapshot:
        return fleet(is_(0, State.RUNNING), edges={(0, 1): EdgeNow()}, at_ns=at_ns)

    first = look(7)
    assert window.before(first, pace) is None
    assert window.before(look(7 + pace.livelock_ns - 1), pace) is None
    assert window.before(look(7 + pace.livelock_ns), pace) is first
    pace.at(0, 1, 8)
    anew = look(2 * pace.livelock_ns)
    assert window.before(anew, pace) is None
    assert window.before(look(3 * pace.livelock_ns), pace) is anew
