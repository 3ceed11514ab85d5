"""Lost is not late: every message is in one class, under one name, wherever it is counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdfl
from netdfl.core.fates import MEANINGS, Fate, FateClass, FateKind
from netdfl.core.types import Kind, Message, Payload
from netdfl.record.base import WaitEnd, WaitRecord
from netdfl.record.directory import RunDirectory
from netdfl.record.messages import count_by_link, count_messages
from netdfl.record.run import open_run
from netdfl.record.store import StoreWriter
from netdfl.report.html import render
from netdfl.report.words import not_delivered
from netdfl.running.judged import FinishedRun
from netdfl.scenario.load import loads
from tests.record.outcomes import outcome_of

ROOT = Path(__file__).resolve().parents[2]
LOSS_AND_LATENESS = """
schema: netdfl/1
name: lost-and-late
nodes: 4
rounds: 20
world: simulated
task: {kind: consensus}
algorithm: {name: dpsgd}
topology: ring
wait: {deadline: 100ms}
links:
  default: {latency: 5ms}
  "0->1": {loss: 30%}
  "2->3": {latency: 150ms}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return netdfl.run(loads(LOSS_AND_LATENESS), out=tmp_path_factory.mktemp("runs") / "run", page=False)


def test_every_fate_is_in_a_class_that_is_defined() -> None:
    assert {Fate(kind).counts_as for kind in FateKind} == set(FateClass) == set(MEANINGS)
    assert Fate.read("dropped:loss, late").counts_as is FateClass.LOST
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for name, meaning in MEANINGS.items():
        assert f"| `{name}` | {meaning}" in page


def test_what_was_sent_is_the_sum_of_its_classes(finished: FinishedRun) -> None:
    messages = finished.result["messages"]
    assert messages["sent"] == sum(messages[name.value] for name in FateClass)
    for name, reasons in messages["why"].items():
        assert sum(reasons.values()) == messages[name]


def test_a_message_that_a_rule_dropped_is_lost_and_one_that_came_after_the_wait_is_late(finished: FinishedRun) -> None:
    messages = finished.result["messages"]
    assert messages["why"] == {"lost": {"loss": messages["lost"]}, "late": {"deadline": messages["late"]}}
    rows = finished.run.rows(
        "SELECT DISTINCT src, dst, fate FROM messages WHERE fate NOT IN ('delivered', 'in_flight')"
    )
    assert sorted(rows) == [(0, 1, "dropped:loss"), (2, 3, "late")]


def test_a_link_without_a_rule_does_not_head_those_that_lost_most(finished: FinishedRun) -> None:
    first, *others = count_by_link(finished.run)
    assert first.edge == (0, 1)
    assert not any(link.counts.lost for link in others)
    page = render(finished.run)
    assert re.findall(r"<td>(\d → \d)</td>", page)[0] == "0 → 1"
    assert "those that lost most first" in page


def test_where_nothing_was_lost_no_link_lost_most(tmp_path: Path) -> None:
    scenario = loads(LOSS_AND_LATENESS.replace("loss: 30%", "latency: 5ms"))
    page = render(netdfl.run(scenario, out=tmp_path / "run", page=False).run).partition("<script")[0]
    assert "lost most" not in page
    assert ">late</th>" in page


def test_the_summary_and_the_page_say_each_under_its_name(finished: FinishedRun) -> None:
    messages = finished.result["messages"]
    words = not_delivered(messages)
    assert words.startswith(f"{messages['lost']} lost (loss), {messages['late']} late (deadline)")
    assert words in render(finished.run)


def test_a_late_message_whose_receiver_had_gone_on_is_told_from_one_it_waited_for(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "q", 7, out=tmp_path / "run")
    directory.write("scenario.yaml", "")
    with StoreWriter(directory.path, "001") as writer:
        for round in range(3):
            writer.outcome(
                outcome_of(Message(0, 1, Kind.DATA, 0, round, 0, 0, Payload()), 9, round, round + 5, Fate.read("late"))
            )
        for round, ended in enumerate((WaitEnd.DEADLINE, WaitEnd.GONE)):
            writer.wait(WaitRecord(1, round, 0, Kind.DATA, 0, 3, 3, ended, None, (0,)))
    found = count_messages(open_run(directory.path))
    assert dict(found.why[FateClass.LATE]) == {"deadline": 1, "went_on": 2}


@pytest.mark.parametrize(("fate", "name"), [("refused:foreign", "refused"), ("failed:gone", "undeliverable")])
def test_reasons_stay_within_their_class(tmp_path: Path, fate: str, name: str) -> None:
    directory = RunDirectory.create(tmp_path, "q", 7, out=tmp_path / "run")
    directory.write("scenario.yaml", "")
    with StoreWriter(directory.path, "001") as writer:
        writer.outcome(outcome_of(Message(0, 1, Kind.DATA, 0, 0, 0, 0, Payload()), 9, 0, None, Fate.read(fate)))
    told = count_messages(open_run(directory.path)).to_json()
    assert (told["sent"], told[name], told["why"]) == (1, 1, {name: {fate.partition(":")[2]: 1}})
