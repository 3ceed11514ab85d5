"""A fleet of processes with `world.tls`: it computes what it computes without, and strangers change nothing."""

from __future__ import annotations

from pathlib import Path

import netdfl
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: certified
nodes: 3
rounds: 8
world: {kind: processes, tls: true, nodes_per_process: 2, fidelity: {relative: 100, slack: 100s}}
task: {kind: consensus, dim: 8}
algorithm: dpsgd
topology: full
links: {default: {latency: 10ms}}
events: [{at_round: 2, crash: 2, restart_after: 50ms, state: kept}]
"""


def test_with_tls_it_computes_what_the_simulated_world_computes(tmp_path: Path) -> None:
    scenario = SCENARIO.replace("events:", "# ")
    certified = netdfl.run(loads(scenario), out=tmp_path / "run", page=False)
    simulated = netdfl.run(loads(scenario, on="simulated"), out=tmp_path / "simulated", page=False)
    assert certified.result["refused"] == []
    for figure in ("consensus_distance", "error"):
        assert certified.result[figure] == simulated.result[figure]
    data = "SELECT src, dst, round, step, nbytes FROM messages WHERE kind = 'data' ORDER BY ALL"
    assert certified.run.rows(data) == simulated.run.rows(data)
