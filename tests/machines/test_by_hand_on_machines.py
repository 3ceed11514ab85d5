"""Four nodes that nobody looks after, on four separated machines: one is killed and started again; all collected."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import netdfl
from tests.machines.separated import Separated, missing
from tests.machines.shell import Shell
from tests.warm import warm_python

pytestmark = [
    pytest.mark.soak,  # four machines, each of which imports torch twice
    pytest.mark.skipif(bool(missing()), reason=missing() or "they can be made here"),
]
PORT, PATIENCE_S = 5100, 120
SCENARIO = {
    "schema": "netdfl/1",
    "name": "four",
    "nodes": 4,
    "rounds": 300,
    "task": {"dataset": "digits", "model": "mlp", "batch_size": 32},
    "algorithm": {"name": "dfedavg", "lr": 0.1, "local_epochs": 1},
    "topology": "ring",
    "links": {"default": {"latency": "30ms"}},
    "wait": {"deadline": "500ms"},
    "checkpoint": {"every": 1},
    "evaluation": {"every": 50},
}
NODE = (
    "cd /tmp; {python} -m netdfl node --scenario scenario.yaml --id {id} --listen 0.0.0.0:{port} --peers peers.yaml "
    "--credentials {id}.pem --out out >> log 2>&1 & echo $!"
)


@pytest.fixture
def machines() -> Iterator[Separated]:
    with Separated(4) as machines:
        yield machines


def netdfl_here(*arguments: str | Path) -> str:
    command = [warm_python(), "-m", "netdfl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def until(holds: Callable[[], bool], shells: list[Shell]) -> None:
    since = time.monotonic()
    while not holds():
        assert time.monotonic() < since + PATIENCE_S, [shell.run("cat /tmp/log") for shell in shells]
        time.sleep(0.2)


def told(shell: Shell) -> dict[str, object]:
    text = shell.run("cat /tmp/out/node.json 2>/dev/null || echo '{}'")
    return json.loads(text)  # type: ignore[no-any-return]


def test_one_is_killed_and_begins_again_and_all_are_collected(machines: Separated, tmp_path: Path) -> None:
    scenario, peers = tmp_path / "scenario.yaml", tmp_path / "peers.yaml"
    scenario.write_text(json.dumps(SCENARIO), encoding="utf-8")
    peers.write_text("".join(f"{id}: {machines.address(id)}:{PORT}\n" for id in range(4)), encoding="utf-8")
    netdfl_here("credentials", scenario, "--out", tmp_path / "credentials")
    with ExitStack() as stack:
        shells = [Shell(machines, name) for name in machines.names]
        for shell in shells:
            stack.callback(shell.close)
        start = [NODE.format(python=sys.executable, id=id, port=PORT) for id in range(4)]
        pids = []
        for id, shell in enumerate(shells):
            for file in (scenario, peers, tmp_path / "credentials" / f"{id}.pem"):
                shell.put(file, f"/tmp/{file.name}")
            pids.append(shell.run(start[id]).strip())
        until(lambda: int(str(told(shells[2]).get("round") or 0)) >= 5, shells)
        shells[2].run(f"kill -9 {pids[2]}")
        pids[2] = shells[2].run(start[2]).strip()
        for shell, pid in zip(shells, pids, strict=True):
            assert shell.run(f"wait {pid}; echo $?").strip() == "0", shell.run("cat /tmp/log")
        for id, shell in enumerate(shells):
            shell.get("/tmp/out", tmp_path / "nodes" / str(id))
    subprocess.run(
        [warm_python(), "-m", "netdfl", "collect", tmp_path / "nodes", "--out", tmp_path / "run"], check=False
    )
    found = netdfl.open_run(tmp_path / "run").result
    assert [each["node"] for each in found["died"]] == [2]
    assert found["unfinished"] == []
    assert found["refused"] == []
    assert found["test_accuracy"]["average_model"]["last"] > 0.8
    assert (tmp_path / "run" / "report.html").exists()
