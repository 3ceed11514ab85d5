"""Strangers at a fleet's ports: nothing of what they send is read, and training goes on as if nobody had come."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import netdfl
from netdfl.record.judge import WELL
from netdfl.scenario.load import loads
from tests.hostile.attacked import FLEET, Target, run_attacked
from tests.hostile.client import STRANGERS, Attacker, member, stranger, try_all

TOP = Path(__file__).parents[2]
FIGURES = ("consensus_distance", "error", "messages")


async def come(target: Target) -> dict[str, Counter[str]]:
    """What each attack gets to hear at the ports of all nodes and of the supervisor, by what is shown."""
    heard: dict[str, Counter[str]] = {}
    for address in {*target.addresses.values(), target.control}:
        callee = next((node for node, where in target.addresses.items() if where == address), -2)
        overheard = member(target.secret, 3, target.addresses[3])  # whoever takes a port that a node has left
        shown = {"nothing": (), "no secret": stranger(callee), "a guess": member("a guess", callee, address)}
        if address != target.addresses[3]:
            shown["another's proof"] = (stranger(callee)[0], *overheard[1:])
        shown["version 1"] = member(target.secret, callee, address, version=1)
        for what, metadata in shown.items():
            answers = await try_all(STRANGERS, Attacker(address, metadata), target.known)
            heard.setdefault(what, Counter()).update(answers.values())
    return heard


def test_strangers_change_nothing_and_learn_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = netdfl.run(loads(FLEET), out=tmp_path / "alone", page=False)
    finished, heard = run_attacked(FLEET, tmp_path / "run", come, monkeypatch)
    assert {what: set(answers) for what, answers in heard.items()} == {
        "nothing": {"version"},
        "no secret": {"secret"},
        "a guess": {"secret"},
        "another's proof": {"secret"},
        "version 1": {"version"},
    }
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    assert {figure: finished.result[figure] for figure in FIGURES} == {each: alone.result[each] for each in FIGURES}
    (refused,) = finished.result["refused"]
    assert (refused["src"], refused["reason"]) == (None, "foreign")
    assert refused["messages"] >= sum(sum(answers.values()) for answers in heard.values())


def of_another_user(target: Target) -> subprocess.CompletedProcess[str]:
    """Let a user without any right come to the fleet's ports, all of which the kernel lists."""
    known, ports = target.known, {where.rpartition(":")[2] for where in (*target.addresses.values(), target.control)}
    words = known.run_id.hex(), known.scenario_hash, str(known.num_nodes), str(known.rounds), *ports
    command = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        sys.executable,
        "-m",
        "tests.hostile.client",
    ]
    environment = {"PYTHONPATH": str(TOP), "GRPC_VERBOSITY": "NONE", "PATH": os.environ["PATH"]}
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, env=environment, cwd="/")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can be another user")
def test_another_user_of_the_machine_gets_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def come_as_nobody(target: Target) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(of_another_user, target)

    finished, came = run_attacked(FLEET, tmp_path / "run", come_as_nobody, monkeypatch)
    if "Permission denied" in came.stderr:
        pytest.skip("the other user can't read Python here")
    rows = [json.loads(line) for line in came.stdout.splitlines()]
    assert len(rows) == 3 * 3, came.stderr  # two processes of nodes, and the supervisor
    assert {answer for row in rows for answer in row["heard"].values()} == {"version", "secret"}
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    assert [(each["src"], each["reason"]) for each in finished.result["refused"]] == [(None, "foreign")]


async def secrets_in_sight(target: Target) -> tuple[str, list[str]]:
    """The secret of the fleet, and the command lines where it stands."""
    lines = await asyncio.to_thread(lambda: {str(path): read(path) for path in Path("/proc").glob("[0-9]*/cmdline")})
    return target.secret, [path for path, line in lines.items() if target.secret.encode() in line]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""


def test_the_secret_is_in_no_file_and_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, (secret, seen) = run_attacked(FLEET, tmp_path / "run", secrets_in_sight, monkeypatch)
    assert len(secret) >= 32
    assert seen == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
