"""What `netdfl blame` keeps for the page of a run: the table, and lanes of both runs from where they part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import netdfl
from netdfl.blame.keeping import keep_blame, page_runs
from netdfl.blame.lanes import lanes_of
from netdfl.blame.player import CounterfactualPlayer
from netdfl.blame.run import BlameLimits
from netdfl.blame.told import sentences_of, table_of
from netdfl.cli.commands import make_app
from netdfl.core.fates import LOSS, Fate
from netdfl.core.types import Kind, Message, Payload
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.record.directory import RunDirectory
from netdfl.record.kept_blame import (
    BARS,
    FILE,
    MOST_ITEMS,
    MOST_NODES,
    MOST_SHOWN,
    BlameForm,
    LanesForm,
    kept_blame,
)
from netdfl.record.plain_json import dump_json
from netdfl.record.run import open_run
from netdfl.record.store import StoreWriter
from netdfl.running.run import run
from netdfl.scenario.load import load, loads
from netdfl.scenario.model.schema import Scenario
from tests.blame.fleets import RING, listed, opened
from tests.blame.test_closed_forms import SLOW
from tests.record.outcomes import outcome_of

LOSSES = {"links": RING["links"] | {"0->1": listed(4), "2->1": listed(4)}}


def kept(plain: Any, where: Path, **more: Any) -> BlameForm:
    """Blame `plain`, keep it, and read it as the page does."""
    asked = opened(plain, where, **more)
    asked.play()
    keep_blame(asked)
    found = kept_blame(open_run(where / "run"))
    assert found is not None
    return found


def bars(lanes: LanesForm, what: str) -> list[tuple[int, float, float]]:
    """The bars of a kind: node, since, until."""
    columns = zip(*(lanes["bars"][name] for name in ("node", "since", "until", "what")), strict=True)  # type: ignore[literal-required]
    return [(node, since, until) for node, since, until, kind in columns if kind == BARS.index(what)]


def test_the_table_is_the_printed_one_and_each_cell_has_its_number(tmp_path: Path) -> None:
    found = kept(RING | SLOW | LOSSES, tmp_path)
    again = opened(RING | SLOW | LOSSES, tmp_path).play()
    assert [tuple(row["cells"]) for row in found["rows"]] == table_of(again)[1:]
    assert tuple(found["head"]) == table_of(again)[0]
    assert found["sentences"] == list(sentences_of(again))
    costs = [again.target.cost(row.outcome) for row in again.ordered() if row.outcome is not None]
    assert [row["order"] for row in found["rows"]] == [[None, cost, again.base.end_ns - (cost or 0)] for cost in costs]


def test_the_runs_part_where_netdfl_diff_says_and_the_lanes_begin_there(tmp_path: Path) -> None:
    """Node 2 takes 30 ms too long in each round, so that the first message of the other run comes 30 ms earlier."""
    found = kept(RING | SLOW, tmp_path)
    (shown,) = found["shown"]
    plain = RING | {"world": {**SLOW["world"], "as_others": [2]}}
    run(load(dict(plain)), out=tmp_path / "other", page=False)
    said = netdfl.diff(open_run(tmp_path / "run"), open_run(tmp_path / "other"))
    assert said.parting is not None
    assert (tuple(shown["words"]), shown["at_s"]) == (said.parting.words, said.parting.at_s)
    assert (shown["nodes"], shown["num_nodes"]) == ([0, 1, 2, 3], 4)
    first, other = shown["lanes"]
    assert (first["end_s"], other["end_s"]) == (0.205, 0.075)
    assert first["until_s"] == first["end_s"]
    began = [since for node, since, _ in bars(other, "training") if node == 2]
    assert began == pytest.approx([0.015 * round for round in range(1, 5)])
    for lanes in (first, other):
        assert min(until for what in BARS for _, _, until in bars(lanes, what)) >= said.parting.at_s
        assert min(at for at in lanes["messages"]["arrived"] if at is not None) >= said.parting.at_s


def test_a_lost_message_is_in_the_lanes_and_the_wait_that_has_no_end_too(tmp_path: Path) -> None:
    plain = RING | {"wait": {"deadline": "none"}, "links": RING["links"] | {"0->1": listed(2)}, "delivery": "plain"}
    found = kept(plain, tmp_path)
    (shown,) = found["shown"]
    first, other = shown["lanes"]
    lost = [each for each in zip(*first["messages"].values(), strict=True) if each[-1]]  # type: ignore[call-overload]
    assert [each[:2] for each in lost] == [(0, 1)]
    assert not any(other["messages"]["lost"])
    waits = bars(first, "waiting")
    assert {node for node, _, until in waits if until == first["end_s"]} >= {1}
    assert found["took"] == "not by its end"
    assert "dropped:loss" in shown["words"][1]


def test_a_pause_is_a_bar_of_its_own_until_it_ends(tmp_path: Path) -> None:
    found = kept(RING | {"events": [{"at": "20ms", "pause": 1, "for": "10ms"}]}, tmp_path)
    first, other = found["shown"][0]["lanes"]
    assert bars(first, "paused") == [(1, 0.02, 0.03)]
    assert bars(other, "paused") == []
    assert found["shown"][0]["words"][1:] == ["node 1, round 1: pause at 0.02 s", "nothing of the kind"]


def test_both_runs_part_at_a_crash_so_that_the_lanes_show_it(tmp_path: Path) -> None:
    """A node that restarts with its state acknowledges messages later from round 0 on; it still does without it."""
    events = [{"at": "40ms", "crash": 1, "restart_after": "20ms"}]
    found = kept(RING | {"delivery": "acknowledged", "events": events}, tmp_path)
    shown = found["shown"][0]
    first, other = shown["lanes"]
    assert shown["at_s"] == 0.04
    assert bars(first, "down") == [(1, 0.04, 0.06)]
    assert bars(other, "down") == []


def test_of_a_long_run_the_beginning_is_kept_and_it_says_until_when(tmp_path: Path) -> None:
    opened(RING, tmp_path)
    directory = open_run(tmp_path / "run")
    whole = lanes_of(directory, 0.0, 0.075, [0, 1, 2, 3], {})
    few = lanes_of(directory, 0.0, 0.075, [0, 1, 2, 3], {}, most=20)
    assert whole["until_s"] == 0.075
    assert 0 < few["until_s"] < 0.075
    for name, since in (("bars", "since"), ("messages", "sent")):
        assert few[name][since] == [at for at in whole[name][since] if at < few["until_s"]]  # type: ignore[literal-required]
    assert len(few["bars"]["node"]) + len(few["messages"]["src"]) <= 20
    assert lanes_of(directory, 0.0, 0.075, [0], {})["messages"]["src"] == []


def test_what_is_kept_of_all_lanes_together_stays_below_a_megabyte(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "many", 0, out=tmp_path / "many")
    directory.write("scenario.yaml", "name: many\n")
    with StoreWriter(directory.path, "fleet") as writer:
        for number in range(2 * MOST_ITEMS):
            message = Message(number % 24, (number + 1) % 24, Kind.DATA, 0, number, 0, 0, Payload())
            sent_ns = 12_345_678_901 + 7_654_321 * number
            writer.outcome(outcome_of(message, 96, sent_ns, sent_ns + 3_456_789, Fate.dropped(LOSS)))
    lanes = lanes_of(open_run(directory.path), 12.0, 100.0, list(range(MOST_NODES)), {})
    assert len(lanes["messages"]["src"]) == MOST_ITEMS
    assert 2 * MOST_SHOWN * len(dump_json(lanes)) < 10**6


def test_the_first_rows_alone_are_played_again_and_it_says_so_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = RING | {"events": [{"at_round": round, "pause": 1, "for": "5ms"} for round in range(MOST_SHOWN + 2)]}
    asked = opened(plain | {"rounds": 8}, tmp_path, limits=BlameLimits(set_runs=0))
    asked.play()
    played: list[Scenario] = []
    play = Executor.run

    def counted(self: Executor, scenario: Scenario) -> ExploredRun:
        played.append(scenario)
        return play(self, scenario)

    monkeypatch.setattr(Executor, "run", counted)
    keep_blame(asked)
    assert len(played) == page_runs(asked) == MOST_SHOWN + 1
    found = kept_blame(open_run(tmp_path / "run"))
    assert found is not None
    assert [each["row"] for each in found["shown"]] == list(range(MOST_SHOWN))
    assert len(found["rows"]) == MOST_SHOWN + 2
    assert page_runs(opened(plain | {"rounds": 8}, tmp_path, limits=BlameLimits(candidates=0))) == 0


def test_the_command_says_where_the_table_is_and_goes_on_where_it_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(RING | SLOW, tmp_path)
    monkeypatch.chdir(tmp_path)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    printed = CliRunner().invoke(make_app(), ["blame", "run", "--out", "blamed"])
    assert "at most 200 for the set, 2 for the page" in printed.output
    assert f"the page of the run has this table: netdfl report {tmp_path / 'run'}" in printed.output
    assert {path.name for path in (tmp_path / "run").iterdir()} == files | {FILE}
    (tmp_path / "run" / FILE).unlink()
    (tmp_path / "run" / FILE / "in the way").mkdir(parents=True)
    printed = CliRunner().invoke(make_app(), ["blame", "run", "--out", "blamed"])
    assert printed.exit_code == 0
    assert "the page of the run has no table: " in printed.output
    with monkeypatch.context() as patched:
        patched.setattr(CounterfactualPlayer, "record", lambda player, candidates: loads("no scenario"))
        printed = CliRunner().invoke(make_app(), ["blame", "run", "--out", "blamed"])
    assert "the page of the run has no table: " in printed.output
    assert printed.output.splitlines()[-1] == "netdfl run blamed/without.yaml"
