"""Reports of large fleets, and of fleets in which no time passes: nothing empty, units that show something."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.record.run import open_run
from netdfl.report.data import page_data
from netdfl.report.html import render
from netdfl.report.words import round_words, say_rounds
from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.agreeing import agreeing

BARE = agreeing("bare", 6, 3, topology="{kind: random_sym, neighbors: 2}")


def test_a_round_has_a_length_in_units_that_show_it() -> None:
    spent = {"rounds": {"median_s": [1e-3, None, 1e-3], "longest_s": [2e-3, None, 4e-3], "deadline_s": []}}
    assert say_rounds(spent) == "A round took 1 ms at the median, 4 ms at most (round 2)."


def test_the_page_gives_rounds_the_length_that_the_terminal_does(tmp_path: Path) -> None:
    slow = "slow_down: 3, factor: 7"
    text = LARGE.replace("nodes: 250", "nodes: 6") + f"events: [{{at_round: 2, {slow}}}]\n"
    made = run(loads(text), out=tmp_path / "run", page=False).run
    words = round_words(made.result["time"])
    assert f"A round took {words}." in render(made)
    (tmp_path / "run/result.json").unlink()
    assert f"A round took {words.partition(';')[0]}." in render(open_run(tmp_path / "run"))


def test_where_no_virtual_time_passes_that_is_said_and_nothing_is_drawn(tmp_path: Path) -> None:
    bare = run(loads(BARE), out=tmp_path / "run", page=False).run
    page, data = render(bare), page_data(bare)
    assert "none: the scenario has neither" not in page, "it is said once"
    assert "Rounds took no virtual time" in page
    assert "took 0" not in page
    assert "<h2>What happened when</h2>" in page
    assert data["frame"]["by_round"]
    assert data["frame"]["moments"] == [0, 1, 2, 3]
    assert data["counts"]["sent"] == [0, 12, 24, 36]


def test_a_redrawn_graph_is_called_one_and_its_edges_are_counted_as_they_are_drawn(tmp_path: Path) -> None:
    page = render(run(loads(BARE), out=tmp_path / "run", page=False).run)
    assert "The graph, random_sym: 6 nodes, 6 edges, each both ways (12 links) in round 0; redrawn every round." in page
    static = run(loads(BARE, ["topology={kind: ring}"]), out=tmp_path / "ring", page=False)
    assert "The graph, ring: 6 nodes, 6 edges, each both ways (12 links)." in render(static.run)


LARGE = agreeing("large", 250, 6, "links: {default: {latency: 5ms}}", compute="10ms")


def test_of_a_large_fleet_some_nodes_and_messages_are_in_the_page_and_all_in_its_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdfl.report.data.frame.MOST_NODES", 100)
    monkeypatch.setattr("netdfl.report.data.frame.MOST_CELLS", 250)
    monkeypatch.setattr("netdfl.report.data.traffic.MOST_MESSAGES", 200)
    monkeypatch.setattr("netdfl.report.data.traffic.MOST_LINKS", 50)
    data = page_data(run(loads(LARGE), out=tmp_path / "run", page=False).run)
    frame = data["frame"]
    assert frame["num_nodes"] == 250
    assert frame["nodes"] == list(range(0, 250, 3))
    assert frame["rounds"] == [0, 3, 5]
    assert len(data["by_node"]["train_loss"]) == len(frame["nodes"]) * len(frame["rounds"])
    assert data["messages"]["total"] == 3000
    assert data["messages"]["every"] == 15
    assert len(data["messages"]["src"]) == 200
    assert (len(data["links"]["src"]), data["links"]["total"]) == (50, 500)
    assert data["counts"]["sent"][-1] == data["counts"]["delivered"][-1] == 3000
