"""The limits by which fleets are judged, and what nodes, waits and findings are where nothing is said of them."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest

from netdfl.core.clock import Clock
from netdfl.diagnosis import (
    assemble,
    diagnose,
    ending,
    fidelity,
    finding,
    outgoing,
    probing,
    remedies,
    snapshot,
    trying,
    watch,
    why,
    words,
)
from netdfl.diagnosis.account import Account, WaitAccount
from netdfl.diagnosis.outages import EdgeOutage
from netdfl.diagnosis.outgoing import OutgoingMessages

S = 10**9

LIMITS: list[tuple[Any, dict[str, float]]] = [
    (watch, {"FIRST_NS": 30 * S, "FIRST_LOOK_NS": 2 * S, "LEAST_NS": S, "LEAST_LIVELOCK_NS": 30 * S}),
    (watch, {"ROUNDS_QUIET": 10, "ROUNDS_LIVELOCK": 100, "ROUNDS_KEPT": 15}),
    (ending, {"AFTER_SERVER_NS": S, "MOST_AFTER_SERVER_NS": 10 * S, "MOST_BY_ITSELF_NS": 60 * S}),
    (diagnose, {"LIVELOCK_MESSAGES": 3, "LONGEST_ROUND_NS": 3600 * S}),
    (remedies, {"GIVEN_UP_NS": 12 * S, "CALLED_GONE_NS": 7 * S}),
    (snapshot, {"MOST_RESENDS": 10}),
    (probing, {"TIMES": 2, "BACKOFF": 16, "AFTER_NS": 2 * S, "MOST_ATTEMPTS": 65_535, "MOST_WAITS": 4}),
    (fidelity, {"FEWEST": 10, "MOST_LATE_NS": 2**24, "MOST_UNREAD": 0.001}),
    (finding, {"SMALL_FLEET": 100}),
    (outgoing, {"MOST_KEPT": 256}),
    (assemble, {"MOST_FLYING": 4}),
    (why, {"FEW_LINKS": 2}),
    (words, {"MOST_NAMES": 8}),
    (trying, {"NEVER_NS": 2**63, "LATER_NS": 2**63 - 1}),
]


@pytest.mark.parametrize(("of", "limits"), LIMITS)
def test_a_fleet_is_judged_by_these_limits(of: Any, limits: dict[str, float]) -> None:
    assert {name: getattr(of, name) for name in limits} == limits


def said(cls: Any) -> dict[str, Any]:
    """What is so by default, but for what is nothing: None, or empty."""
    found = {each.name: each.default for each in fields(cls) if each.default is not MISSING}
    return {name: value for name, value in found.items() if value is not None and value not in ("", (), frozenset())}


ZERO: dict[str, Any] = dict.fromkeys(("sent", "delivered", "in_flight", "held"), 0)
DEFAULTS: list[tuple[Any, dict[str, Any]]] = [
    (
        snapshot.NodeNow,
        {"round": 0, "finished": -1, "since_ns": 0, "hoped": False, "step": 0, "steps": 1, "early": 0},
    ),
    (
        snapshot.WaitNow,
        {"step": 0, "essential": False, "cumulative": False, "since_ns": 0, "what": snapshot.WaitKind.MESSAGE},
    ),
    (snapshot.EdgeNow, ZERO | {"up": True}),
    (
        snapshot.AwaitedMessage,
        {"fate": snapshot.AwaitedFate.UNSENT, "kept": True, "since_ns": 0}
        | dict.fromkeys(("resent", "replaced", "notice", "in_vain", "passes_for_good"), False),
    ),
    (snapshot.Snapshot, {"detector": "none"}),
    (
        finding.Finding,
        {"round": 0, "began_ns": 0, "found_ns": 0, "permanent": False, "suspected": False, "over": False},
    ),
    (why.Reason, {"notice": False, "resent": False, "hoped": False, "source_round": 0, "since_ns": 0}),
    (why.Grounds, {"at_ns": 0, "room": False, "passed": 0, "window_ns": 0, "since_ns": 0}),
    (why.Need, {"short": 0, "room": False}),
    (why.Divide, {"one_way": False}),
    (assemble.DownNode, {"keeps": False, "hoped": False}),
    (Account, {"step": 0, "steps": 1, "mailbox_full": False, "early": 0, "serves": False, "born_ns": 0}),
    (WaitAccount, {"essential": False, "cumulative": False}),
    (
        fidelity.LinkTimes,
        dict.fromkeys(("messages", "nbytes", "first_nbytes", "scheduled_ns", "achieved_ns"), 0),
    ),
]


@pytest.mark.parametrize(("of", "defaults"), DEFAULTS)
def test_what_is_not_said_is_so(of: Any, defaults: dict[str, Any]) -> None:
    found = said(of)
    assert {name: found[name] for name in defaults} == defaults


def test_a_link_of_which_nothing_is_said_is_up_and_a_transport_keeps_nothing() -> None:
    assert EdgeOutage() == (True, None, False, None)
    inner: Any = None
    clock: Clock = inner
    assert OutgoingMessages(inner, clock).keep == 0
