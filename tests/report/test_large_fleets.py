"""Reports of large fleets, and of fleets in which no time passes: nothing empty, units that show something."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from netdfl.report.figures import Curve, Mark, draw_curves
from netdfl.report.html import render
from netdfl.report.node_times import MOST_BARS, NodeTime, blocks, draw_node_times, say_rounds
from netdfl.report.timeline import draw_timeline
from netdfl.running.run import run
from netdfl.scenario.load import loads

BARE = """
schema: netdfl/1
name: bare
nodes: 6
rounds: 3
world: simulated
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: {kind: random_sym, neighbors: 2}
"""


def times(num: int, longest_s: float) -> list[NodeTime]:
    return [NodeTime(node, 0.2 * t, 0.5 * t, t) for node in range(num) for t in (longest_s * (node + 1) / num,)]


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_a_round_has_a_length_in_units_that_show_it() -> None:
    assert say_rounds(times(1000, 2e-3)) == "A round took 1 ms at the median node, 2 ms at the slowest, node 999."
    drawn = draw_node_times(times(1000, 2e-3))
    assert drawn is not None
    assert "milliseconds per round" in texts(drawn[0])


def test_a_thousand_nodes_are_drawn_in_groups_that_keep_their_sum() -> None:
    drawn = draw_node_times(times(1000, 1.0))
    assert drawn is not None
    svg, caption = drawn
    assert caption == "Mean over the rounds of 7 nodes each: all 1,000 nodes by the length of their rounds."
    assert svg.count("<path d=") < 6 * MOST_BARS


def test_few_nodes_with_high_numbers_are_no_large_drawing() -> None:
    drawn = draw_node_times([NodeTime(node, 0.0, 1.0, 1.0) for node in (0, 999_999)])
    assert drawn is not None
    assert drawn[1] == "Mean over the rounds of each node: all 2 nodes by the length of their rounds."


def test_where_no_virtual_time_passes_that_is_said_and_nothing_is_drawn(tmp_path: Path) -> None:
    assert draw_node_times(times(3, 0.0)) is None
    page = render(run(loads(BARE), out=tmp_path / "run", page=False).run)
    assert "Rounds took no virtual time" in page
    assert "took 0" not in page
    assert "seconds per round" not in page
    assert "<h2>What happened when</h2>" in page


def test_a_redrawn_graph_is_called_one_and_its_edges_are_counted_as_they_are_drawn(tmp_path: Path) -> None:
    page = render(run(loads(BARE), out=tmp_path / "run", page=False).run)
    assert "The graph of round 0, random_sym: 6 nodes, 6 edges, each both ways (12 links); redrawn every round." in page
    static = run(loads(BARE, ["topology={kind: ring}"]), out=tmp_path / "ring", page=False)
    assert "The graph, ring: 6 nodes, 6 edges, each both ways (12 links)." in render(static.run)


def test_the_traffic_of_a_large_fleet_is_summed_in_blocks() -> None:
    sent = np.full((400, 400), np.nan)
    sent[0, 1], sent[1, 0], sent[399, 0] = 1.0, 2.0, 4.0
    matrix, size = blocks(sent)
    assert (matrix.shape, size) == ((134, 134), 3)
    assert (matrix[0, 0], matrix[133, 0], np.nansum(matrix)) == (3.0, 4.0, 7.0)
    assert np.isnan(matrix[5, 5])
    assert blocks(sent[:9, :9])[1] == 1


def test_logarithmic_axes_are_labelled_in_plain_numbers() -> None:
    for values in ([1e-7, 1e-3, 2.0], [0.2, 0.3, 1.4]):
        svg = draw_curves([Curve("c", [0, 1, 2], values)], "consensus distance", log=True)
        assert "$" not in svg
        assert len(texts(svg)) > 5


def test_shares_are_percentages_on_their_axis() -> None:
    svg = draw_curves([Curve("c", [0, 1], [0.2, 0.9])], "test accuracy", percent=True)
    assert any(text.endswith("%") for text in texts(svg))


def test_the_fleet_has_a_row_of_its_own_however_many_nodes_there_are() -> None:
    svg = draw_timeline([Mark("stop", [1.0], [-1]), Mark("crash", [0.5], [700])], 1000)
    assert {"fleet", "0"} <= set(texts(svg))
    assert "fleet" not in texts(draw_timeline([Mark("crash", [0.5], [700])], 1000))
