"""A sample of the fleets with decided truth (`tests.soak.decided_fleets` has all), and what their judging notices."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import netdfl
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.remedies import RESEND
from tests.soak import decided_fleets
from tests.soak.decided_fleets import is_right, read, row_of
from tests.soak.fleets.drawing import draw_fleet
from tests.soak.fleets.judging import compared, remedies, tell
from tests.soak.fleets.playing import Patient, Played, Player
from tests.soak.fleets.truth import Truth, decide

SEED, FLEETS = 11, range(5, 20)


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    yield Player()
    gc.unfreeze()


def test_what_runs_say_of_random_fleets_is_true(player: Player) -> None:
    rows = [row_of(SEED, number, player) for number in FLEETS]
    assert [row for row in rows if row["wrong"]] == []
    assert any(row["ends"] for row in rows)
    assert any(not row["ends"] for row in rows)
    assert sum(row["tried"] for row in rows) > 2


@pytest.fixture(scope="module")
def stalled(player: Player) -> tuple[Played, Played, Truth]:
    """A fleet in which a message is lost by an entry of its events, as it is told, and as it is."""
    scenario = draw_fleet(SEED, LOST).scenario
    on = player.play(scenario, Patient)
    return player.play(scenario, remedies=True), on, decide(scenario, on)


LOST = 11


def told(ran: Played, **changes: object) -> Played:
    """What was told with one stall alone, or none, or another verdict."""
    return replace(ran, run=replace(ran.run, **changes))  # type: ignore[arg-type]


def wrong(ran: Played, on: Played, truth: Truth) -> list[str]:
    return [kind for kind, _ in compared(ran, on, truth)]


def with_reasons(stall: Finding, **changes: object) -> Finding:
    reasons = tuple(replace(each, **changes) for each in stall.grounds.reasons)  # type: ignore[arg-type]
    return replace(stall, grounds=replace(stall.grounds, reasons=reasons))


def test_the_judging_notices_what_is_wrong(stalled: tuple[Played, Played, Truth], player: Player) -> None:
    ran, on, truth = stalled
    assert wrong(ran, on, truth) == []
    (stall,) = (each for each in ran.run.stalls if each.permanent)
    other = next(node for node in ran.stands if node not in truth.roots)
    assert wrong(ran, on, Truth(True)) == ["healthy ended"]
    assert wrong(told(ran, verdict="done"), on, truth) == ["passed"]
    assert wrong(told(ran, stalls=()), on, truth) == ["root"]
    assert wrong(told(ran, stalls=(with_reasons(stall, waiter=other),)), on, truth) == ["root"]
    assert "rule" in wrong(told(ran, stalls=(with_reasons(stall, event=17),)), on, truth)
    assert "rule" in wrong(told(ran, stalls=(with_reasons(stall, loss="queue"),)), on, truth)
    assert wrong(replace(ran, ended_ns=ran.ended_ns + 10**12), on, truth) == ["too long"]
    useless = told(ran, stalls=(replace(stall, remedies=("evaluation.every: 7",)),))
    assert [kind for kind, _ in remedies(useless, player, tell(ran.run.scenario, ran))] == ["remedy"]
    skipped = told(useless, stalls=(replace(useless.run.stalls[0], ended_by="skip"),))
    assert [kind for kind, _ in remedies(skipped, player, tell(ran.run.scenario, ran))] == ["remedy"]


def test_to_stand_in_the_same_round_for_another_reason_is_no_help(player: Player) -> None:
    """Node 1 lacks a message of its round's first step, and of the second one that of a node that has crashed then."""
    events = [{"at_round": 1, "drop": "0->1", "attempt": 0}, {"at": "25ms", "crash": 2}]
    ran = player.play(netdfl.load(STEPS | {"events": events}), remedies=True)
    lost = next(stall for stall in ran.run.stalls if stall.roots == (1,))
    assert RESEND not in lost.remedies
    offered = told(ran, stalls=(replace(lost, remedies=(RESEND,)),))
    assert [kind for kind, _ in remedies(offered, player, tell(ran.run.scenario, ran))] == ["remedy"]


STEPS = {
    "schema": "netdfl/1",
    "name": "steps",
    "seed": 5,
    "nodes": 4,
    "rounds": 4,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 2},
    "algorithm": {"name": "dfedsam_mgs", "gossip_steps": 2},
    "topology": "ring",
    "wait": {"for": "all", "deadline": "none"},
    "delivery": "plain",
    "failure_detector": {"kind": "none"},
    "links": {"default": {"latency": "2ms"}},
    "evaluation": {"every": 1000},
}


def test_rows_go_on_where_they_were_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decided_fleets, "FOLDER", tmp_path)
    made: list[int] = []

    def row(seed: int, number: int, player: Player) -> dict[str, object]:
        made.append(number)
        return {"number": number, "family": "", "wrong": "", "what": "", "ends": True, "tried": 0, "cpu_s": 0.1}

    monkeypatch.setattr(decided_fleets, "row_of", row)
    decided_fleets.hunt(3, 2)
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text() + '{"number": 2, "fam')
    assert [each["number"] for each in decided_fleets.hunt(3, 4)] == [0, 1, 2, 3]
    assert (made, len(list(read(file)))) == ([0, 1, 2, 3], 4)


def test_what_netdfl_raises_is_wrong_of_one_fleet_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*parts: object, **more: object) -> Played:
        raise RuntimeError("it broke")

    monkeypatch.setattr(Player, "play", raises)
    row = row_of(SEED, LOST, Player())
    assert (row["wrong"], row["what"]) == ("broke", "RuntimeError('it broke')")


@pytest.mark.parametrize(("kinds", "right"), [(["root"] * 16, True), (["root"] * 17, False), (["passed"], False)])
def test_few_may_be_wrong_and_some_never(kinds: list[str], right: bool) -> None:
    rows = [{"wrong": kind} for kind in [*kinds, *[""] * (5000 - len(kinds))]]
    assert is_right(rows) is right
