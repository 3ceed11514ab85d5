"""Core links of real processes: they are shared by what crosses them, and a stall names the one whose cut caused it."""

from __future__ import annotations

from pathlib import Path

from netdfl.running.run import run
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: core-links
nodes: 4
rounds: 2
task: {kind: consensus, dim: 10000}
algorithm: dpsgd
topology: full
wait: {for: all, deadline: none}
world: {kind: processes, fidelity: {relative: 100, slack: 100s}}
underlay: {links: {a--b: {rate: 8Mbit}}, place: {0..1: a, 2..3: b}}
events: [{at_round: 1, cut: a->b}]
expect: {deadlock: any}
"""


def test_core_links_are_shared_by_real_nodes_and_named_where_their_cut_stalls_them(tmp_path: Path) -> None:
    finished = run(loads(SCENARIO), out=tmp_path / "run", page=False)
    (stall,) = finished.result["stalls"]
    assert stall["culprits"] == [0, 1]
    assert "the core link a->b" in stall["text"]
    (spent,) = finished.run.rows(
        "SELECT max(arrived_s) - min(sent_s) FROM messages WHERE round = 0 AND src < 2 AND dst > 1 AND kind = 'data'"
    )
    least_s = 4 * 8 * 10_000 * 8 / 8e6
    assert spent[0] > least_s / 2, "without sharing each of the four would take a quarter of it"
