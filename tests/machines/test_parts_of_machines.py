"""What a fleet on machines is made of: what is sent along, who gets which nodes, the way to a relayed fork server."""

from __future__ import annotations

import asyncio
import json
import queue
from pathlib import Path

import pytest

from netdfl.core.errors import InputError, MachineError
from netdfl.host.luggage import pack, unpack
from netdfl.scenario.load import load
from netdfl.worlds.fork_client import ForkServer
from netdfl.worlds.machines import world
from netdfl.worlds.machines.relay import Relayed
from netdfl.worlds.machines.world import packed, shared_out


def _scenario(folder: Path) -> Path:
    (folder / "cellular.trace").write_text("2\n4\n6\n", encoding="utf-8")
    (folder / "mine.py").write_text("WORD = 'of my own'\n", encoding="utf-8")
    file = folder / "scenario.yaml"
    document = {
        "schema": "netdfl/1",
        "name": "sent",
        "nodes": 3,
        "rounds": 2,
        "task": {"kind": "consensus", "dim": 2},
        "algorithm": "dpsgd",
        "topology": "ring",
        "links": {"default": {"rate": {"kind": "mahimahi", "file": "cellular.trace"}}},
    }
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def test_scenario_modules_and_named_files_are_sent_along(tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    (there := tmp_path / "there").mkdir()
    scenario = load(_scenario(here))
    unpack(pack(scenario), there)
    for file in here.iterdir():
        file.unlink()
    assert str(there / "files" / "0-cellular.trace") in load(there / "scenario.yaml").model_dump_json()
    assert (there / "mine.py").read_text(encoding="utf-8") == "WORD = 'of my own'\n"
    (trace,) = (there / "files").iterdir()
    assert trace.read_text(encoding="utf-8").startswith("2\n4")


def test_too_much_to_send_is_refused_and_the_largest_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load(_scenario(tmp_path))
    assert packed(scenario)
    (tmp_path / "mine.py").write_text("#" * 5000, encoding="utf-8")
    monkeypatch.setattr(world, "MOST_BYTES", 4000)
    with pytest.raises(InputError, match=r"most of it mine\.py"):
        packed(scenario)


@pytest.mark.parametrize(
    ("machines", "nodes", "shares"),
    [(3, 10, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]), (2, 4, [[0, 1], [2, 3]]), (4, 2, [[0], [1]]), (1, 3, [[0, 1, 2]])],
)
def test_nodes_are_shared_out_in_runs(machines: int, nodes: int, shares: list[list[int]]) -> None:
    found = shared_out({f"m{i}": f"10.0.0.{i}" for i in range(machines)}, nodes)
    assert [list(machine.nodes) for machine in found] == shares
    assert [machine.address for machine in found] == [f"10.0.0.{i}" for i in range(len(shares))]


def test_without_a_machine_there_is_nothing_to_share() -> None:
    with pytest.raises(MachineError, match="no machine"):
        shared_out({}, 3)


async def test_lines_of_a_relayed_fork_server_go_both_ways_and_its_end_is_seen() -> None:
    heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    says: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    killed: list[bool] = []
    forks = ForkServer(Relayed(heard.put, says.get, lambda: killed.append(True)))
    ended: list[int] = []
    forks._on_exit = lambda how: ended.append(how.pid)
    forks._reading = asyncio.create_task(forks._read())
    forks.kill(7)
    assert json.loads(await asyncio.to_thread(heard.get)) == {"kill": 7}
    says.put(b'{"exited": {"pid": 7, "code": 0}}\n')
    says.put(b"")
    async with asyncio.timeout(10):
        await forks.ended.wait()
    assert ended == [7]
    await forks.aclose()
    assert killed
