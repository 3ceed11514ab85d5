"""Strangers at nodes without a supervisor, which talk in plain text and have a secret."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdfl.record.judge import WELL, ExitCode
from netdfl.scenario.load import loads
from netdfl.scenario.loading.identity import scenario_hash
from netdfl.standalone.collect import collect
from tests.hostile.client import STRANGERS, Attacker, Known, Metadata, proof, stranger, try_all
from tests.standalone.hand_fleet import HandFleet

FLEET = """
schema: netdfl/1
name: attacked-by-hand
nodes: 3
rounds: 12
world: {kind: processes, fidelity: {relative: 100, slack: 100s}}
task: {kind: consensus, dim: 8}
algorithm: dpsgd
topology: full
links: {default: {latency: 20ms}}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[HandFleet]:
    made = HandFleet(tmp_path / "fleet", FLEET, 3)
    made.credentials = dict.fromkeys(range(3), made.secret)
    yield made
    made.kill_all()


def run_of(fleet: HandFleet) -> str:
    """The number of the run once two nodes listen, as the first one's record has it."""
    files = [fleet.directory(node) / "node.json" for node in (0, 1)]
    for _ in range(6000):
        if all(file.exists() for file in files):
            return str(json.loads(files[0].read_text(encoding="utf-8"))["run_id"])
        time.sleep(0.01)
    raise TimeoutError("the fleet does not listen")


def test_strangers_change_nothing_and_learn_nothing(fleet: HandFleet, tmp_path: Path) -> None:
    fleet.start(0, 1)
    known = Known(bytes.fromhex(run_of(fleet)), scenario_hash(loads(FLEET)), 3, 12)
    secret = fleet.secret.read_text(encoding="utf-8").strip()

    async def come() -> set[str]:
        heard: set[str] = set()
        for node, port in enumerate(fleet.ports[:2]):
            others: Metadata = (*stranger(node), ("netdfl-proof", proof(secret, f"node {(node + 1) % 3}")))
            for shown in (stranger(node), others):
                answers = await try_all(STRANGERS, Attacker(f"127.0.0.1:{port}", shown, None, node), known)
                heard |= set(answers.values())
        return heard

    assert asyncio.run(come()) == {"secret"}
    fleet.start(2)
    assert set(fleet.end().values()) == {ExitCode.PASS}, fleet.logs(range(3))
    gathered = collect(fleet.folder / "nodes", out=tmp_path / "run", page=False)
    assert gathered.result["verdict"] in WELL, gathered.result["reasons"]
    assert [(each["src"], each["reason"]) for each in gathered.result["refused"]] == [(None, "foreign")]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "credentials"]
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_a_node_with_another_secret_says_so(fleet: HandFleet) -> None:
    other = fleet.folder / "other.secret"
    other.write_text("another secret, which is long enough", encoding="utf-8")
    other.chmod(0o600)
    fleet.timeout, fleet.credentials[2] = "3s", other
    fleet.start(0, 1, 2)
    assert set(fleet.end().values()) == {ExitCode.UNUSABLE}
    assert "it has another secret; give all nodes the same --secret" in fleet.logs([2])


def test_an_open_fleet_says_so_in_its_record(fleet: HandFleet, tmp_path: Path) -> None:
    fleet.credentials.clear()
    fleet.start(0, 1, 2)
    assert set(fleet.end().values()) == {ExitCode.PASS}, fleet.logs(range(3))
    notes: list[str] = []
    collect(fleet.folder / "nodes", out=tmp_path / "run", page=False, note=notes.append)
    assert "nodes [0, 1, 2] had no secret of their fleet: whoever reached their ports could take part" in notes
