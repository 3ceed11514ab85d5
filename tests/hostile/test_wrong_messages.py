"""Members that send what no honest node sends: over edges that the graph lacks, of other rounds, of other kinds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import netdfl
from netdfl.record.judge import WELL
from netdfl.scenario.load import loads
from tests.hostile.attacked import Target, run_attacked
from tests.hostile.client import KINDS, Attacker, body_of, frame, greeting, header
from tests.hostile.table import shown_by

STAR = """
schema: netdfl/1
name: posed-as-the-server
nodes: 3
rounds: 20
world: {{kind: processes, tls: {tls}, fidelity: {{relative: 100, slack: 100s}}}}
task: {{kind: quadratic, dim: 8}}
algorithm: {{name: fedavg, lr: 0.1, local_steps: 1}}
topology: star
links: {{default: {{latency: 10ms}}}}
"""
ZEROS = {"x": np.zeros(8, np.float32)}


async def as_a_client(target: Target) -> dict[str, str]:
    """Node 1, a client of the star, at node 0, another one, and at the server."""
    known, body = target.known, body_of(ZEROS)
    server = known.num_nodes - 1
    client, hub = shown_by(target, 1, 0), shown_by(target, 1, server)

    async def say(caller: Attacker, *heads: bytes) -> str:
        return await caller.push(*(frame(head, body) for head in heads))

    return {
        "hello": await client.hello(**greeting(known, 1, 0)),
        "hello to the server": await hub.hello(**greeting(known, 1, server)),
        "a model to another client": await say(client, *(header(known, 1, round=round) for round in range(20))),
        "past the last round": await say(hub, header(known, 1, round=known.rounds, step=1)),
        "other kinds": await say(hub, *(header(known, 1, kind, step=1) for kind in KINDS if kind in UNUSED)),
    }


UNUSED = ("ack", "board", "request", "reply")


@pytest.mark.parametrize("tls", [pytest.param("false", marks=pytest.mark.soak), "true"])
def test_a_client_that_poses_as_the_server_changes_nothing_and_is_named(tls: str, tmp_path: Path) -> None:
    scenario = STAR.format(tls=tls)
    alone = netdfl.run(loads(scenario, on="simulated"), out=tmp_path / "alone", page=False)
    finished, heard = run_attacked(scenario, tmp_path / "run", as_a_client)
    assert [heard.pop("hello"), heard.pop("hello to the server")] == ["accepted"] * 2
    assert {fate for fates in heard.values() for fate in fates.split(", ")} == {"refused:foreign"}, heard
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    for figure in ("consensus_distance", "error"):
        assert finished.result[figure] == alone.result[figure]
    assert {(each["src"], each["reason"]) for each in finished.result["refused"]} == {(1, "foreign")}
    said = [what for (what,) in finished.run.rows("SELECT details->>'what' FROM events WHERE kind = 'refused'")]
    for words in ("no edge to this node", "and the run has 20", "which nobody uses in this run"):
        assert any(words in what for what in said)
