"""One cause is one finding, whichever nodes, rounds and links it met; what would end it is tried."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from ring import RING, kinds_of

import netdfl
from netdfl.core.errors import OwnPartError
from netdfl.core.whose import theirs
from netdfl.explore.acted import acted_of
from netdfl.explore.cause import FailureCause, cause_of
from netdfl.explore.command import explore
from netdfl.explore.ends import EndingSettings, find_ends
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.explore import Budget, Discovery, Exploration, ExplorationResult
from netdfl.explore.findings import SHRUNK
from netdfl.explore.journal import RUNS, SETTINGS
from netdfl.explore.pool import TrialResult
from netdfl.explore.rows import MemoryStore
from netdfl.explore.trial import Event, Trial, variant


def cause(text: dict[str, Any], *events: Event) -> FailureCause:
    found = cause_of(Executor().run(variant(netdfl.load(text), events, None)))
    assert found is not None
    return found


def test_a_ring_that_stalls_in_a_hundred_ways_has_few_causes() -> None:
    """Of these runs 47 stall; told apart by node, round, link and words they were 14 findings."""
    explored = Exploration(netdfl.load(RING), seed=0).run(Budget(runs=96))
    assert 1 <= len(explored.findings) <= 5
    assert all(len(kinds_of(found)) == 1 for found in explored.findings.values())
    most = max(explored.findings.values(), key=lambda found: len(found.numbers))
    assert len(most.numbers) > 30
    assert len(most.rounds) > 5
    assert sum(most.variants.values()) == len(most.numbers)
    assert {"lost:down", "lost:scripted"} <= set(most.variants)


LOST = ({"at_round": 2, "drop": "1->2"}, {"at_round": 4, "drop": "0->3"}, {"at_round": 5, "drop": "3->2"})
DOWN = ({"at_round": 2, "link": "1->2", "state": "down_drop"}, {"at": "21ms", "link": "1->2", "for": "9ms", "loss": 1})
DOWN_THEN = {"at_round": 2, "crash": 1, "restart_after": "20ms"}
PAST = {"at_round": 3, "crash": 1, "restart_after": "500ms", "state": "lost"}


def test_node_round_link_and_rule_make_no_other_cause(small: dict[str, Any]) -> None:
    found = [cause(small, event) for event in (*LOST, *DOWN)]
    assert {each.key for each in found} == {"stall lost_message lost"}
    assert [each.round for each in found] == [2, 4, 5, 2, 1]
    assert [each.variant for each in found] == ["lost:scripted"] * 3 + ["lost:down", "lost:loss"]


def test_what_is_another_cause_has_another_key(small: dict[str, Any]) -> None:
    alone = small | {"failure_detector": {"kind": "none"}}
    circle = {"name": "ad_psgd", "bipartite": False, "order": "successor"}
    found = [
        cause(small, LOST[0]),
        cause(alone, DOWN_THEN),
        cause(alone, PAST),
        cause(alone, {"at_round": 2, "crash": 1}),
        cause(alone, {"at_round": 2, "pause": 1}),
        cause(small, {"at": "20ms", "link": "1->2", "state": "down_hold"}),
        cause(small | {"algorithm": circle}),
    ]
    assert [each.key for each in found] == [
        "stall lost_message lost",
        "stall lost_message receiver_down",
        "stall unreachable returned_past",
        "stall unreachable crashed",
        "stall unreachable paused",
        "stall unreachable cut",
        "stall deadlock waiting",
    ]


def test_no_word_of_a_sentence_decides_what_is_a_cause(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    events = (LOST[0], {"at_round": 2, "crash": 1})
    small = small | {"failure_detector": {"kind": "none"}}
    before = [cause(small, event) for event in events]
    monkeypatch.setattr("netdfl.diagnosis.finding.say", lambda *parts, **more: "it is stuck")
    after = [cause(small, event) for event in events]
    assert [each.text for each in after] == ["it is stuck"] * 2
    assert [each._replace(text="") for each in after] == [each._replace(text="") for each in before]


def test_a_stall_that_is_expected_is_no_cause(small: dict[str, Any]) -> None:
    expecting = small | {"expect": {"stall": "some", "error": {"at_most": 0.0}}}
    assert not cause(expecting, LOST[0]).key.startswith("stall")


def test_what_the_verdict_misses_is_named_by_its_entry(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pushing = small | {"algorithm": "sgp", "wait": {"deadline": "20ms"}, "delivery": "plain"}
    losing = pushing | {"expect": {"weight_lost": "none"}}
    crash = {"at": "21ms", "crash": 1, "restart_after": "20ms", "state": "lost"}
    found = [cause(losing, event) for event in (LOST[0], crash)]
    assert len({each.text.partition(":")[0] for each in found}) == 2
    assert {each.key for each in found} == {"verdict weight_lost"}
    assert cause(small | {"wait": {"deadline": "20ms"}, "expect": {"error": {"at_most": 0.0}}}).key == "verdict error"
    monkeypatch.setattr("netdfl.mixing.gossip.Gossip.mix", lambda *parts: 1 / 0)
    assert "ZeroDivisionError" in cause(small).key


@pytest.mark.parametrize("wrapped", [lambda error: error, lambda error: ExceptionGroup("of tasks", [error])])
def test_a_part_of_ones_own_is_one_cause_in_whichever_node_and_round(
    small: dict[str, Any], wrapped: Callable[[Exception], Exception]
) -> None:
    """What such a part did is told by netdfl, so that there may be no line of it."""

    def key(did: str, where: str) -> str:
        error = theirs(wrapped(OwnPartError(did)), where)
        found = cause_of(ExploredRun(netdfl.load(small), MemoryStore(), error=error))
        assert found is not None
        return found.key

    assert key("train gave a list", "round 3: ") == key("train gave a list", "round 12: ")
    assert key("train gave a list", "round 3: ") != key("mix gave a list", "round 3: ")


@pytest.mark.parametrize(
    ("key", "is_old"),
    [
        ("stall lost_message [awaited waiter] last: mailbox", True),
        ("verdict push-sum weight was lost: the nodes hold # of what they began with", True),
        ("verdict weight_lost", False),
        ("verdict died training error: no such row #", False),
        ("broke ZeroDivisionError mailbox.py:close", False),
        ("predicate looks:late: looks:late holds", False),
    ],
)
def test_what_goes_by_words_is_run_again(key: str, is_old: bool) -> None:
    assert TrialResult(0, FailureCause(key, "it stands still")).is_of_old_form is is_old


def printed(text: dict[str, Any], folder: Path, runs: int, **more: Any) -> str:
    console = Console(file=StringIO(), width=500)
    explore(Exploration(netdfl.load(text), seed=5, folder=folder), Budget(runs=runs), console, **more)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def comment(path: Path) -> str:
    """The comment at the head of a file, in one line."""
    lines = path.read_text().partition("# Event log")[0].splitlines()
    return " ".join(line.removeprefix("# ") for line in lines)


@pytest.mark.parametrize("shrink", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_terminal_and_file_tell_of_one_run(small: dict[str, Any], tmp_path: Path, shrink: bool) -> None:
    told = printed(small | {"nodes": 3, "rounds": 4}, tmp_path / "it", 12, shrink=shrink)
    files = sorted((tmp_path / "it").glob("finding-*.yaml"))
    assert files
    for place, file in enumerate(files, start=1):
        (sentence,) = (line.partition(". ")[2] for line in told.splitlines() if line.startswith(f"{place}. "))
        assert comment(file).startswith(f"{sentence}. Found by ")
        result = netdfl.run(file, out=tmp_path / f"run-{place}", page=False).result
        assert any(each["text"].startswith(sentence) for each in (*result["stalls"], *result["deadlocks"]))
    assert "faults that acted, of those that were drawn: " in told


def found_in(*trials: Trial) -> Discovery:
    found = Discovery(FailureCause("stall lost_message lost", ""), trials[0])
    for number, trial in enumerate(trials):
        found.take(trial, FailureCause("stall lost_message lost", "", f"variant {number}", 0), "")
    return found


def test_a_setting_ends_a_kind_only_where_it_ends_each_of_its_variants(small: dict[str, Any]) -> None:
    short, for_good = (
        Trial(0, ({"at": "21ms", "link": "1->2", "state": "down_drop", "for": "9ms"},)),
        Trial(1, (DOWN[0],)),
    )
    one, both = (
        find_ends(found_in(*trials), netdfl.load(small), Executor()) for trials in ((short,), (short, for_good))
    )
    assert (one.trials, both.trials) == ((0,), (0, 1))
    assert set(one.settings) - set(both.settings) == {"wait.on_stall: resend", "delivery: acknowledged"}
    assert {"wait.deadline: auto", "wait.on_stall: skip"} <= set(both.settings)
    assert "`wait.deadline: auto`" in str(both)
    assert "all 2 runs in which it was tried" in str(both)


ACTS: list[tuple[Event, str, bool]] = [
    ({"at_round": 2, "crash": 1}, "crash", True),
    ({"at": "900ms", "crash": 1, "restart_after": "5ms"}, "crash_kept", False),
    ({"at": "33ms", "crash": 1, "restart_after": "5ms", "state": "lost"}, "crash_lost", True),
    ({"at_round": 2, "pause": 1, "for": "5ms"}, "pause", True),
    ({"at": "900ms", "pause": 1, "for": "5ms"}, "pause", False),
    ({"at_round": 2, "slow_down": 1, "factor": 2.0}, "slow", True),
    ({"at_round": 2, "for_rounds": 1, "link": "1->2", "state": "down_drop"}, "cut", True),
    ({"at": "1ms", "for": "2ms", "link": "1->2", "state": "down_drop"}, "cut", False),
    ({"at": "9ms", "for": "20ms", "link": "1->2", "state": "down_hold"}, "cut", True),
    ({"at": "12ms", "for": "8ms", "link": "1->2", "state": "down_hold"}, "cut", False),
    ({"at": "9ms", "for": "20ms", "partition": [[0, 1], [2, 3]], "mode": "down_drop"}, "partition", True),
    ({"at": "1ms", "for": "2ms", "partition": [[0, 1], [2, 3]], "mode": "down_drop"}, "partition", False),
    ({"at_round": 2, "drop": "1->2"}, "loss", True),
    ({"at_round": 2, "drop": "1->2", "attempt": 3}, "loss", False),
    ({"at_round": 2, "delay": "1->2", "by": "1ms"}, "delay", True),
    ({"at_round": 2, "delay": "1->2", "by": "1ms", "kind": "ack"}, "delay", False),
    ({"at": "0s", "delay": "1->*", "by": "1us"}, "schedule", True),
]


@pytest.mark.parametrize(("event", "kind", "acts"), ACTS, ids=str)
def test_whether_a_fault_acted_is_told(event: Event, kind: str, acts: bool, small: dict[str, Any]) -> None:
    run = Executor().run(variant(netdfl.load(small), [event], None))
    assert acted_of(run, [event]) == {kind: (1, int(acts))}


def test_faults_that_acted_are_counted_over_the_runs(small: dict[str, Any], tmp_path: Path) -> None:
    only = netdfl.load(small | {"explore": {"rates": {"pause": 1}, "depth": 0}})
    explored = Exploration(only, folder=tmp_path).run(Budget(runs=8))
    (counted,) = explored.acted.items()
    assert counted[0] == "pause"
    assert 0 < counted[1][1] <= counted[1][0]
    assert Exploration(only, folder=tmp_path).run(Budget(runs=8)).acted == explored.acted


def outcome(explored: ExplorationResult) -> dict[str, list[int]]:
    return {key: sorted(found.numbers) for key, found in explored.findings.items()}


def test_what_an_earlier_netdfl_kept_opens(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Netdfl 0.2.0 wrote causes by the words of sentences, and a finding for each: these runs are made again."""
    monkeypatch.setattr("netdfl.explore.findings.find_ends", lambda *parts: EndingSettings())
    small = small | {"nodes": 3, "rounds": 4}
    printed(small, tmp_path, 12, shrink=False)
    lines = [json.loads(line) for line in (tmp_path / RUNS).read_text().splitlines()]
    for line in lines:
        line.pop("acted")
        if line["cause"]:
            line["cause"] = ["stall lost_message [awaited waiter] between: ", line["cause"][1]]
    (tmp_path / RUNS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / SHRUNK).write_text('{"stall lost_message [awaited waiter] between: ": {"trial": 0, "scenario": {}}}')
    (tmp_path / "finding-17.yaml").write_text("# of a cause that is none any more\n")
    (tmp_path / "finding-mine.yaml").write_text("# not written by netdfl\n")
    printed(small, tmp_path, 12)
    again = Exploration(netdfl.load(small), seed=5, folder=tmp_path).run(Budget(runs=12))
    assert outcome(again) == outcome(Exploration(netdfl.load(small), seed=5).run(Budget(runs=12)))
    left = {path.name for path in tmp_path.glob("finding-*.yaml")}
    assert left == {f"finding-{place:02d}.yaml" for place in range(1, len(again.findings) + 1)} | {"finding-mine.yaml"}


def test_runs_of_another_version_are_kept_beside_and_made_again(small: dict[str, Any], tmp_path: Path) -> None:
    before = Exploration(netdfl.load(small), seed=5, folder=tmp_path).run(Budget(runs=6))
    text = (tmp_path / RUNS).read_text()
    settings = json.loads((tmp_path / SETTINGS).read_text())
    (tmp_path / SETTINGS).write_text(json.dumps(settings | {"netdfl": "../0.1.9"}))
    (tmp_path / RUNS).write_text(text.replace("stall", "other"))
    assert outcome(Exploration(netdfl.load(small), seed=5, folder=tmp_path).run(Budget(runs=6))) == outcome(before)
    assert (tmp_path / "runs-..0.1.9.jsonl").read_text() == text.replace("stall", "other")
