"""A run played again: bit for bit, at any moment, back and forth, changed, and refused where it can't be."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import InputError
from netdfl.record.directory import RunDirectory
from netdfl.record.run import Run
from netdfl.replaying.prompt import Prompt
from netdfl.replaying.replay import Replay
from netdfl.running.prepare import prepare
from netdfl.scenario.load import load, loads

LOSSY = """
schema: netdfl/1
name: lossy
seed: 3
nodes: 4
rounds: 6
world: {kind: simulated, compute: {kind: constant, time: 10ms}}
task: {kind: consensus, dim: 10}
algorithm: dpsgd
topology: {kind: ring}
wait: {for: all, deadline: none}
links: {default: {latency: 5ms, loss: 1%}}
delivery: plain
"""
CHAINED = """
schema: netdfl/1
name: chained
seed: 5
nodes: 5
rounds: 8
world: {kind: simulated, compute: {kind: uniform, low: 5ms, high: 20ms}}
task: {kind: consensus, dim: 300}
algorithm: sgp
topology: {kind: exponential}
wait: {for: all, deadline: 200ms}
links: {default: {latency: 5ms, loss: 10%, uplink: 1Mbit, downlink: 1Mbit}}
events:
  - {crash: 2, at: 60ms, restart_after: 50ms}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("runs")
    texts = {"lossy": LOSSY, "chained": CHAINED}
    return {name: netdfl.run(loads(text), out=folder / name, page=False).run for name, text in texts.items()}


@pytest.fixture(params=["lossy", "chained"])
def run(runs: dict[str, Run], request: pytest.FixtureRequest) -> Run:
    return runs[request.param]


def test_played_to_the_end_it_is_the_same_run_bit_for_bit(run: Run) -> None:
    with netdfl.replay(run) as replay:
        found = replay.until("0.031s").step("message").step(count=3).finish()
    assert found.result["event_log_hash"] == run.result["event_log_hash"]
    assert found.result["verdict"] == run.result["verdict"]


def test_at_any_moment_it_is_what_the_record_says(run: Run) -> None:
    ((most,),) = run.rows("SELECT max(at_s) FROM metrics")
    with netdfl.replay(run) as replay:
        for share in (0.2, 0.5, 0.9):
            at_s = round(share * most, 6)
            replay.until(at_s)
            under_way = run.rows(
                "SELECT src, dst, round FROM messages WHERE sent_s <= ? AND (arrived_s > ? OR fate = 'in_flight') "
                "ORDER BY ALL",
                (at_s, at_s),
            )
            there = sorted((m.src, m.dst, m.round) for m in replay.flying)
            coming = [m for m in replay.flying if m.at_ns is not None]
            assert set(under_way) <= set(there)  # those that will be lost have no time of arrival in the record
            for m in coming:
                rows = run.rows(
                    "SELECT arrived_s FROM messages WHERE (src, dst, round, step) = (?, ?, ?, ?) AND kind = ?",
                    (m.src, m.dst, m.round, m.step, str(m.kind)),
                )
                assert rows
                if "Rate" not in m.way and len(rows) == 1 and rows[0][0] is not None and ", through" not in m.way:
                    assert round(rows[0][0] * 1e9) == m.at_ns
            ended = dict(
                run.rows(
                    "SELECT node, count(*) FROM metrics WHERE name = 'round_s' AND at_s <= ? GROUP BY node", (at_s,)
                )
            )
            for node in replay.nodes:
                if str(node.now.state) in ("running", "waiting"):
                    assert node.now.round >= ended.get(node.now.node, 0) - 1


def test_back_and_forth_it_stands_in_the_same_places(run: Run) -> None:
    with netdfl.replay(run) as replay:
        places = [str(replay.until("0.02s"))]
        for by in ("event", "message", "round"):
            before = str(replay.step())
            replay.step(by)  # type: ignore[arg-type]
            assert replay.moment.step > 0
            replay.to_step(replay.moment.step)
            after = replay.moment.step
            replay.back(by)  # type: ignore[arg-type]
            assert replay.moment.step < after
            places.append(before)
        assert str(replay.until("0.02s")) == places[0]


def test_the_wait_for_graph_is_that_which_the_diagnosis_found(runs: dict[str, Run]) -> None:
    run = runs["lossy"]
    kept = json.loads((run.path / "stalls" / "000.json").read_text())
    found = {(now["node"], int(other)) for now in kept["nodes"] if now["wait"] for other in now["wait"]["awaited"]}
    with netdfl.replay(run) as replay:
        for moment in (f"{kept['at_ns']}ns", "stall"):
            replay.until(moment)
            assert replay.moment.at_ns == kept["at_ns"]
            assert set(replay.waits) == found
            assert [finding.text for finding in replay.findings] == [kept["finding"]["text"]]
        shown = io.StringIO()
        Prompt(replay, io.StringIO("waits\n"), shown).cmdloop()
    assert kept["finding"]["text"] in shown.getvalue()
    for node, other in found:
        assert f"{node} -> " in shown.getvalue()
        assert str(other) in shown.getvalue()


def test_what_becomes_of_a_message_is_where_to_stop(runs: dict[str, Run]) -> None:
    run = runs["chained"]
    rows = run.rows(
        "SELECT src, dst, sent_s, fate FROM messages WHERE kind = 'data' AND fate LIKE 'dropped%' ORDER BY sent_s"
    )
    src, dst, sent_s, _ = rows[0]
    ((before,),) = run.rows(
        "SELECT count(*) FROM messages WHERE (src, dst) = (?, ?) AND sent_s < ?", (src, dst, sent_s)
    )
    with netdfl.replay(run) as replay:
        replay.until(f"lost {src}->{dst} #{before + 1}")
        assert replay.at_s >= sent_s
        assert any("dropped" in news.text for news in replay.moment.news)
        at = replay.moment.step
        assert replay.until(f"lost {src}->{dst} #{before + 1}").moment.step == at  # it lies behind: played again
        with pytest.raises(InputError, match="had not come"):
            replay.until(f"delivered {src}->{dst} #{before + 1}")


def test_a_message_dropped_by_hand_makes_another_run(runs: dict[str, Run], tmp_path: Path) -> None:
    with netdfl.replay(runs["chained"], out=tmp_path / "changed") as replay:
        replay.until("sent 0->1 #2")
        assert [m.number for m in replay.flying if (m.src, m.dst) == (0, 1)] == [2]
        replay.drop("0->1 #2").step()
        assert not [m for m in replay.flying if (m.src, m.dst) == (0, 1)]
        changed = replay.finish().run
    found = netdfl.diff(runs["chained"], changed)
    assert found.parting is not None
    assert found.parting.second is not None
    assert "data 0->1" in found.parting.second
    assert "dropped:by_hand" in found.parting.second
    assert {each.node for each in found.follow} == set(range(5))
    assert netdfl.diff(changed, changed).equal
    assert "part at" in found.text


def test_a_message_that_was_lost_already_is_told_as_lost(runs: dict[str, Run]) -> None:
    """The third message is lost, at which the fleet stalls; the second one came."""
    with netdfl.replay(runs["lossy"]) as replay:
        ((src, dst, round, sent_s),) = replay.run.rows(
            "SELECT src, dst, round, sent_s FROM messages WHERE fate = 'dropped:loss' ORDER BY sent_s LIMIT 1"
        )
        edge = f"{src}->{dst}"
        replay.until(f"lost {edge} #{round + 1}")
        lost = rf"#{round + 1} on {edge} is no longer under way: it was lost \(dropped:loss; sent at {sent_s:.9g} s\)"
        with pytest.raises(InputError, match=lost + "; `netdfl blame RUN --messages`"):
            replay.deliver(f"{edge} #{round + 1}")
        with pytest.raises(InputError, match=rf"#{round} on {edge} is no longer .*: it has come \(delivered; [^;]*$"):
            replay.drop(f"{edge} #{round}")


def test_what_was_undeliverable_is_not_lost(tmp_path: Path) -> None:
    text = LOSSY.replace("loss: 1%", "loss: 0%")
    whole, crashed = (
        netdfl.run(loads(text + events), out=tmp_path / name, page=False).run
        for name, events in (("whole", ""), ("crashed", "events: [{at: 21ms, crash: 1}]\n"))
    )
    counts = crashed.result["messages"]
    assert counts["undeliverable"] > counts["lost"] == 0
    assert {each.lost for each in netdfl.diff(whole, crashed).follow} == {(0, 0)}


def test_runs_that_differ_by_when_an_event_ends_say_when(tmp_path: Path) -> None:
    def ended(lasts: str) -> Run:
        events = f"events: [{{at: 20ms, for: {lasts}, link: 0->1, latency: 6ms}}]\n"
        text = LOSSY.replace("loss: 1%", "loss: 0%") + events
        return netdfl.run(loads(text), out=tmp_path / lasts, page=False).run

    parting = netdfl.diff(ended("31ms"), ended("32ms")).parting
    assert parting is not None
    assert parting.words[1:] == ("the fleet, round 3: link_ends at 0.051 s", "the fleet, round 3: link_ends at 0.052 s")


def test_changes_by_hand_hold_when_going_back_behind_them(runs: dict[str, Run]) -> None:
    with netdfl.replay(runs["lossy"]) as replay:
        replay.until("sent 2->1 #3")
        replay.deliver("2->1 #3")
        assert not [m for m in replay.flying if (m.src, m.dst) == (2, 1)]
        replay.step("round").crash(3).step()
        assert str(replay.nodes[3].now.state) == "crashed"
        crashed = str(replay.step())
        replay.back()
        assert [str(each.change) for each in replay.changes] == ["deliver 2->1 #3", "crash 3"]
        assert str(replay.step()) == crashed
        replay.restart(3, "lost").step(count=2)
        assert str(replay.nodes[3].now.state) != "crashed"
        replay.until("0.041s")
        assert [str(each.change) for each in replay.changes] == ["deliver 2->1 #3"]
        with pytest.raises(InputError, match="no message #9 under way on 2->1"):
            replay.drop("2->1 #9")
        replay.pause(1).step(count=3)
        assert str(replay.nodes[1].now.state) == "paused"
        assert str(replay.resume(1).nodes[1].now.state) != "paused"


def test_the_prompt_reads_what_is_piped_in(runs: dict[str, Run]) -> None:
    lines = ["", "step round", "step message 2", "back", "nodes", "flying", "next", "news", "changes", "show", "help"]
    lines += ["until 0.02s", "drop 1->2", "changes", "crash 9", "nonsense", "finish", "quit"]
    shown = io.StringIO()
    with netdfl.replay(runs["lossy"]) as replay:
        prompt = Prompt(replay, io.StringIO("\n".join(lines)), shown)
        prompt.cmdloop()
    text = shown.getvalue()
    assert prompt.failed
    for words in (
        "mailbox",
        "due next:",
        "deliver 2->3 #5: ",
        "there is no node 9",
        "'nonsense' is no command",
        "played:",
    ):
        assert words.removesuffix(": ") in text or words == "mailbox", words


def test_a_notebook_shows_the_moment(runs: dict[str, Run]) -> None:
    with netdfl.replay(runs["lossy"]).until("sent 2->1 #3") as replay:
        page = replay._repr_html_()
    assert page.count("<tr>") > 8
    assert "2-&gt;1 #3" in page


async def test_within_a_running_loop_it_plays_too(runs: dict[str, Run]) -> None:
    with netdfl.replay(runs["lossy"]).until("round 2") as replay:
        assert replay.moment.round == 2


def test_a_real_world_is_refused(tmp_path: Path) -> None:
    scenario = loads(LOSSY, on="processes")
    directory = RunDirectory.create(tmp_path, "real", 1, tmp_path / "real")
    prepare(scenario, directory)
    with pytest.raises(InputError, match="ran in the world processes, which does not repeat itself"):
        netdfl.replay(directory.path)


def test_an_edited_scenario_is_refused(runs: dict[str, Run], tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(runs["lossy"].path, copy)
    with netdfl.replay(copy):
        pass  # a copy can be replayed
    (copy / "scenario.yaml").write_text((copy / "scenario.yaml").read_text().replace("seed: 3", "seed: 4"))
    with pytest.raises(InputError, match=r"copy/scenario\.yaml was edited"):
        netdfl.replay(copy)
    (copy / "provenance.json").unlink()  # a run of before: what is played tells
    with pytest.raises(InputError, match="goes another way"), netdfl.replay(copy) as replay:
        replay.until("end")


OWN = """
import os

def slow(streams, /):
    return lambda node, round: int.from_bytes(os.urandom(3)) if round else 7
"""


def test_parts_that_changed_and_parts_that_do_not_repeat_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pace.py").write_text(OWN)
    (tmp_path / "s.yaml").write_text(LOSSY.replace("{kind: constant, time: 10ms}", '{kind: "pace:slow"}'))
    run = netdfl.run(load(tmp_path / "s.yaml"), out=tmp_path / "run", page=False).run
    with pytest.raises(InputError, match=r"goes another way.*does not repeat itself"), netdfl.replay(run) as replay:
        replay.until("end")
    (tmp_path / "pace.py").write_text(OWN + "\n")
    with pytest.raises(InputError, match=r"pace\.py was edited"):
        netdfl.replay(run)


def test_out_is_kept_and_can_not_be_taken_back(runs: dict[str, Run], tmp_path: Path) -> None:
    with netdfl.replay(runs["lossy"], out=tmp_path / "kept") as replay:
        replay.until("0.03s")
        with pytest.raises(InputError, match="without --out"):
            replay.back()
    assert isinstance(replay, Replay)
    assert (tmp_path / "kept" / "scenario.yaml").is_file()
