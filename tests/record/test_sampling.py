"""A record of some messages: the run is the same, counts stay exact, and it is said that not all messages are there."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import InputError
from netdfl.core.fates import Fate
from netdfl.core.outcome import Outcome
from netdfl.core.types import Kind, MessageId, StepId
from netdfl.exports.export import graphml
from netdfl.record.messages import count_by_link
from netdfl.record.remarks import count_given_up, read_shares
from netdfl.record.run import Run, open_run
from netdfl.record.sampling import GROWN, SAMPLING, Sampling, ordinal
from netdfl.record.store import StoreWriter
from netdfl.replaying.diff import diff
from netdfl.replaying.replay import Replay
from netdfl.report.data.whole import page_data
from netdfl.report.html import render
from netdfl.report.words import remarks
from netdfl.scenario.load import load, loads

SCENARIO = """
schema: netdfl/1
name: sampled
seed: 2
nodes: 5
rounds: 30
world: simulated
task: {kind: consensus, dim: 4, dtype: float64}
algorithm: dpsgd
topology: ring
wait: {deadline: 40ms}
links: {default: {latency: {dist: uniform, low: 5ms, high: 60ms}, loss: 30%}}
delivery: {kind: acknowledged, attempts: 2, timeout: 12ms}
report: {targets: [{metric: error, at_most: 10}]}
"""
COUNTED = ("event_log_hash", "messages", "bytes_sent", "given_up", "targets", "timeouts", "warnings", "verdict")
NAME = "src, dst, kind, epoch, round, step, attempt, nbytes, sent_s, arrived_s, fate"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    found = {}
    for messages in ("all", "every 5th", "per_link"):
        text = f"{SCENARIO}record: {{messages: {messages}}}\n"
        found[messages] = netdfl.run(loads(text), out=tmp_path_factory.mktemp("runs") / "run", page=False).run
    return found


@pytest.mark.parametrize("messages", ["every 5th", "per_link"])
def test_the_run_and_all_that_is_counted_are_the_same(messages: str, runs: dict[str, Run]) -> None:
    every, some = runs["all"].result, runs[messages].result
    assert every["given_up"]["messages"] > every["given_up"]["lost"] > 0
    assert every["messages"]["late"]
    assert every["messages"]["lost"]
    assert {name: some[name] for name in COUNTED} == {name: every[name] for name in COUNTED}
    for totals in ("link_totals", "round_totals"):
        columns = "src, dst, fate" if totals == "link_totals" else "kind, epoch, round, fate, until_s"
        rows = f"SELECT {columns}, messages, nbytes FROM {totals} ORDER BY ALL"
        assert runs[messages].rows(rows) == runs["all"].rows(rows)
    links = {link.edge: (link.counts, link.nbytes) for link in count_by_link(runs[messages])}
    assert links == {link.edge: (link.counts, link.nbytes) for link in count_by_link(runs["all"])}


@pytest.mark.parametrize("messages", ["every 5th", "per_link"])
def test_what_was_not_delivered_at_once_has_its_row(messages: str, runs: dict[str, Run]) -> None:
    sampling = Sampling.of(messages)
    every = Counter(runs["all"].rows(f"SELECT {NAME} FROM messages"))
    some = Counter(runs[messages].rows(f"SELECT {NAME} FROM messages"))
    assert some == Counter({row: n for row, n in every.items() if sampling.records(row[0], row[1], *row[4:7], row[-1])})
    assert 0 < some.total() < every.total()


def test_that_not_all_are_there_is_said(runs: dict[str, Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = runs["every 5th"]
    (said,) = [text for text in remarks(run.result) if "recorded" in text]
    assert said.startswith("the record: every 5th message recorded")
    assert "every 5th message recorded" in run.result["time"]["text"]
    assert run.result["recorded"]["messages"] == run.rows("SELECT count(*) FROM messages")[0][0]
    page = page_data(run)
    assert page["messages"]["recorded"] == "every 5th message recorded"
    assert page["messages"]["every"] > 1
    assert said in page["head"]["reasons"]
    assert page["counts"]["sent"][-1] == run.result["messages"]["sent"] == sum(page["links"]["sent"])
    assert page["time_by_node"] is None
    assert "recorded" not in runs["all"].result
    assert "every 5th message recorded" in render(run)
    assert graphml(run).count("<edge ") == graphml(runs["all"]).count("<edge ")


def test_two_runs_are_compared_by_what_both_may_have(runs: dict[str, Run]) -> None:
    found = diff(runs["all"], runs["every 5th"])
    assert found.equal
    assert "not all are compared: every 5th message recorded" in found.text
    assert not diff(runs["all"], runs["all"]).compared


def test_a_run_that_was_sampled_is_replayed(runs: dict[str, Run]) -> None:
    run = runs["every 5th"]
    with Replay(run, load(run.path / "scenario.yaml")) as replay:
        replay.until("round 12")  # raises where it parts from the record
        replay.until("end")


def test_the_share_is_kept_whatever_the_names(runs: dict[str, Run]) -> None:
    for every in (2, 10, 100):
        keeps = Sampling(every).keeps
        for edges in ([(n, n + 1) for n in range(400)], [(n, 7) for n in range(400)], [(3, 4)]):
            names = [(src, dst, round) for src, dst in edges for round in range(20_000 // len(edges))]
            kept = sum(keeps(*name, 0) for name in names)
            mean = len(names) / every
            assert abs(kept - mean) < 5 * mean**0.5, (every, edges[:2])


def test_totals_are_written_as_they_grow_and_not_with_every_flush(tmp_path: Path) -> None:
    links, rounds = 4, 200
    with StoreWriter(tmp_path, "000", Sampling(0)) as store:
        for round in range(rounds):
            for dst in range(1, 1 + links):
                store.outcome(outcome(0, dst, round))
            store.flush()
            assert (tmp_path / "store" / "link_totals-000.jsonl").stat().st_size  # the first are there at once
    lines = (tmp_path / "store" / "link_totals-000.jsonl").read_text().splitlines()
    assert len(lines) <= links * (2 + rounds / GROWN)
    assert sum(json.loads(line)["messages"] for line in lines) == links * rounds
    assert not (tmp_path / "store" / "messages-000.jsonl").exists()


def outcome(src: int, dst: int, round: int, fate: Fate = Fate.DELIVERED) -> Outcome:
    id = MessageId(Kind.DATA, 0, StepId(round, 0), 0, 0)
    return Outcome(((src, dst),), id, 10, 1000 * round, 1000 * round + 5, fate)


def test_what_was_written_before_a_kill_is_read(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("name: killed\n")
    (tmp_path / SAMPLING).write_text('{"messages": "per_link"}')
    child = os.fork()
    if not child:
        store = StoreWriter(tmp_path, "000", Sampling(0))
        for round in range(50):
            store.outcome(outcome(0, 1, round))
        store.flush()
        store.outcome(outcome(0, 1, 50, Fate.read("dropped:loss")))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with (tmp_path / "store" / "link_totals-000.jsonl").open("a") as file:
        file.write('{"src":0,"dst":1,"fate":"deliv')
    assert open_run(tmp_path).rows("FROM link_totals") == [(0, 1, "delivered", 50, 500)]
    assert count_given_up(read_shares(open_run(tmp_path))) == (0, 0, 0.0)


def test_a_damaged_word_of_the_sampling_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("name: damaged\n")
    (tmp_path / SAMPLING).write_text('{"messages": "every -3th"}')
    with pytest.raises(InputError, match=SAMPLING):
        open_run(tmp_path).rows("FROM messages")


@pytest.mark.parametrize("words", ["every", "every 0th", "10", "some", "every 10"])
def test_other_words_are_refused_with_a_remedy(words: str) -> None:
    with pytest.raises(InputError, match="every 10th"):
        loads(f"{SCENARIO}record: {{messages: {words}}}\n")


def test_numbers_are_read_as_people_write_them() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == (
        "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th".split()
    )
    assert Sampling.of("every 22nd") == Sampling(22)
