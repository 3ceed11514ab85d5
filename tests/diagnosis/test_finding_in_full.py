"""A finding as it is told and kept: its text, its plain data, and which two are one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from wait_graphs import fleet, is_, lost, waits

from netdfl.diagnosis.finding import SMALL_FLEET, Cause, Finding, keep_stall
from netdfl.diagnosis.snapshot import EdgeNow, State
from netdfl.diagnosis.why import Grounds, Reason, ReasonKind
from netdfl.record.directory import RunDirectory

SECOND = 10**9
REASON = Reason(waiter=0, source=1, round=4, why=ReasonKind.LOST, edge=(1, 0))
FOUND = Finding(
    cause=Cause.LOST_MESSAGE,
    roots=(0,),
    grounds=Grounds(at_ns=3 * SECOND, reasons=(REASON,)),
    round=4,
    culprits=(1,),
    behind=(2,),
    witness=((0, 1),),
    began_ns=SECOND,
    found_ns=3 * SECOND,
    permanent=True,
    remedies=("wait.deadline: auto",),
)
WHAT = "node 0 waits in round 4 for node 1, whose message was lost on 1->0; 2 waits behind it"


def test_a_finding_is_plain_data() -> None:
    assert FOUND.to_json() == {
        "text": f"{WHAT}. Since 1 s. `wait.deadline: auto` would go on.",
        "remedies": ["wait.deadline: auto"],
        "cause": "lost_message",
        "round": 4,
        "roots": [0],
        "culprits": [1],
        "behind": [2],
        "witness": [[0, 1]],
        "reasons": [REASON.to_json()],
        "began_s": 1.0,
        "found_s": 3.0,
        "seen_s": 3.0,
        "detection_s": 2.0,
        "until_s": None,
        "permanent": True,
        "suspected": False,
        "over": False,
    }
    assert replace(FOUND, until_ns=5 * SECOND).to_json()["until_s"] == 5.0
    event = FOUND.to_event()
    assert event == {key: FOUND.to_json()[key] for key in event if key != "what"} | {"what": WHAT}
    assert list(event) == ["cause", "roots", "culprits", "behind", "what", "remedies", "text"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"remedies": ()}, ". Since 1 s. No setting of the scenario would end it."),
        ({"remedies": ("a", "b", "c")}, ". Since 1 s. `a`, `b` or `c` would go on."),
        ({"ended_by": "skip"}, " (skip). Since 1 s. `wait.deadline: auto` would go on."),
        ({"found_ns": 2 * SECOND}, ". Since 1 s, last seen so at 3 s. `wait.deadline: auto` would go on."),
        ({"found_ns": 4 * SECOND}, ". Since 1 s. `wait.deadline: auto` would go on."),
        ({"permanent": False}, ". Since 1 s. It ends by itself; `wait.deadline: auto` would not wait for it."),
        ({"permanent": False, "suspected": True}, ". Since 1 s. `wait.deadline: auto` would go on."),
        ({"permanent": False, "remedies": ()}, ". Since 1 s. It ends by itself."),
        (
            {"permanent": False, "over": True},
            ". Since 1 s. It is over; `wait.deadline: auto` would not have waited for it.",
        ),
        ({"permanent": False, "over": True, "remedies": (), "until_ns": 9 * SECOND}, ". Since 1 s. It is over."),
        ({"permanent": False, "remedies": (), "until_ns": 9 * SECOND}, ". Since 1 s. It ends at 9 s at the latest."),
        (
            {"cause": Cause.BLOCKED_LOOP},
            ". Since 1 s. It ends once node 1 answers again; `wait.deadline: auto` would go on.",
        ),
        (
            {"cause": Cause.BLOCKED_LOOP, "culprits": (1, 3), "permanent": False},
            ". Since 1 s. It ends once nodes 1 and 3 answer again; `wait.deadline: auto` would not wait for it.",
        ),
        ({"cause": Cause.BLOCKED_LOOP, "remedies": ()}, ". Since 1 s. It ends once node 1 answers again."),
    ],
)
def test_a_finding_says_since_when_and_what_would_end_it(changes: dict[str, Any], text: str) -> None:
    assert replace(FOUND, **changes).text == WHAT + text


def test_words_from_a_journal_stand_for_the_sentence() -> None:
    assert replace(FOUND, told="somebody waits").what == "somebody waits"


SLOW = replace(FOUND, permanent=False)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (SLOW, replace(SLOW, began_ns=9, behind=(3,)), True),
        (SLOW, replace(SLOW, cause=Cause.UNREACHABLE), False),
        (SLOW, replace(SLOW, round=5), False),
        (SLOW, replace(SLOW, witness=((0, 1), (0, 3))), True),
        (SLOW, replace(SLOW, witness=((0, 3),)), False),
        (SLOW, replace(SLOW, witness=()), False),
        (replace(SLOW, witness=()), replace(SLOW, witness=()), True),
        (replace(SLOW, witness=()), replace(SLOW, witness=(), roots=(5,)), False),
        (FOUND, replace(FOUND, cause=Cause.UNREACHABLE, round=5), True),
        (FOUND, replace(SLOW, cause=Cause.UNREACHABLE), False),
        (SLOW, replace(FOUND, cause=Cause.UNREACHABLE), False),
        (FOUND, replace(FOUND, cause=Cause.UNREACHABLE, grounds=Grounds()), False),
    ],
)
def test_two_looks_show_one_stall_where_somebody_still_waits_for_the_same(
    one: Finding, other: Finding, same: bool
) -> None:
    assert one.is_same(other) is same
    assert other.is_same(one) is same


@pytest.mark.parametrize("cause", Cause)
def test_deadlocks_and_losses_are_of_one_round_and_others_go_on_with_new_waiters(cause: Cause) -> None:
    of_one_round = cause in (Cause.DEADLOCK, Cause.LOST_MESSAGE)
    finding = replace(SLOW, cause=cause)
    assert finding.of_one_round == of_one_round
    assert finding.is_same(replace(finding, round=9)) != of_one_round
    assert finding.is_kin(replace(finding, round=9, witness=((7, 1),))) != of_one_round
    assert not finding.is_kin(replace(finding, culprits=(3,)))
    assert not finding.is_kin(replace(finding, cause=Cause.UNREACHABLE, culprits=(3,)))
    assert finding.waits == {(0, 1, 4)}


def kept(run: RunDirectory, size: int) -> dict[str, Any]:
    nodes = [waits(0, {1: lost(1, 0), 4: lost(4, 0)}, need=2), *(is_(node, State.RUNNING) for node in range(1, size))]
    edges = {edge: EdgeNow(sent=edge[0]) for edge in ((1, 0), (0, 1), (4, 0), (5, 0))}
    path = keep_stall(run, FOUND, fleet(*nodes, edges=edges, at_ns=7))
    assert path is not None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_what_proves_a_stall_is_kept_of_a_small_fleet_all_of_a_large_one_who_is_named_or_awaited(tmp_path: Any) -> None:
    run = RunDirectory.create(tmp_path, "it", 0)
    small, large = kept(run, SMALL_FLEET), kept(run, SMALL_FLEET + 1)
    assert small["finding"] == json.loads(json.dumps(FOUND.to_json()))
    assert small["at_ns"] == 7
    assert [each["node"] for each in small["nodes"]] == list(range(SMALL_FLEET))
    assert [(each["src"], each["dst"], each["sent"]) for each in small["edges"]] == [
        (0, 1, 0),
        (1, 0, 1),
        (4, 0, 4),
        (5, 0, 5),
    ]
    assert [each["node"] for each in large["nodes"]] == [0, 1, 2, 4]
    assert [(each["src"], each["dst"]) for each in large["edges"]] == [(0, 1), (1, 0), (4, 0)]
