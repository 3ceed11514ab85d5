"""Runs of the command line on a real cluster of tests, Slurm's or Ray's, to which something happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netdfl
from netdfl.testing.world_bench import Keys, nodes_of
from netdfl.testing.world_links import SHARED_CORE, hold_core_link

SCENARIO = {
    "schema": "netdfl/1",
    "name": "dies",
    "nodes": 6,
    "task": {"kind": "consensus", "dim": 10},
    "algorithm": "dpsgd",
    "topology": "full",
    "links": {"default": {"latency": "20ms"}},
    "evaluation": {"every": 1000},
    "wait": {"deadline": "500ms"},
}
PATIENCE_S = 120


class Running:
    """A run on the cluster."""

    def __init__(self, cluster: Any, folder: Path, keys: Keys, **world: object) -> None:
        self.path, environment, through = folder / "run", dict(os.environ), []
        kind = {"kind": cluster.kind, "fidelity": {"relative": 100, "slack": "100s"}, **world}
        if cluster.kind == "slurm":
            environment, through = cluster.environment, ["salloc", "--quiet", "--no-kill", "--nodes=3"]
        else:
            kind["address"] = cluster.address
        file = folder / "dies.json"
        file.write_text(json.dumps(SCENARIO | keys | {"world": kind}), encoding="utf-8")
        command = [*through, sys.executable, "-m", "netdfl", "run", str(file), "--no-page", "--out", str(self.path)]
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def until(self, holds: Callable[[list[dict[str, Any]]], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not ((self.path / "fleet.json").exists() and holds(nodes_of(self.path))):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.1)

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)

    def interrupt(self) -> int:
        """Ctrl-C, for the run alone."""
        pid = self.process.pid
        if "salloc" in str(self.process.args):
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0])
        os.kill(pid, signal.SIGINT)
        return self.ended()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")


def in_round(number: int) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda nodes: all((each["round"] or 0) >= number for each in nodes)


def nodes_on(path: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = netdfl.open_run(path).result["links"]["machines"]
    return found


def vanished_is_named(cluster: Any, folder: Path) -> None:
    """Cut the cable of a cluster's last machine: it is named by what ends, though its engine says nothing of it yet."""
    running = Running(cluster, folder, {"rounds": 100}, gone_after="2s")
    running.until(in_round(3))
    name = cluster.machines.names[-1]
    cluster.machines.unplug(name)
    code = running.ended()
    cluster.machines.plug_in(name)
    assert code == 1, running.said()
    result = netdfl.open_run(running.path).result
    gone = nodes_on(running.path)[name]
    assert [(each["node"], each["reason"]) for each in result["died"]] == [
        (node, f"machine {name} is gone") for node in gone
    ]
    assert f"machine {name} is gone, and {', '.join(f'node {node}' for node in gone)} with it: its" in running.said()
    assert "its system has answered nothing for 2 s" in running.said()
    assert "Traceback" not in running.said()
    assert result["unfinished"] == []


def core_link_is_shared(cluster: Any, folder: Path) -> None:
    """Run a fleet whose messages share a core link, whose rate the supervisor divides among a cluster's machines."""
    running = Running(cluster, folder, SHARED_CORE["shared-core"])
    assert running.ended() in (0, 3), running.said()
    hold_core_link(netdfl.open_run(running.path))


def attacked(cluster: Any, out: Path, fleet: str, *attacks: str, tls: bool) -> None:
    """Let strangers come with `attacks` to a fleet on a cluster's machines, from this one; a member without attacks."""
    ray = cluster.kind == "ray"
    world = f"kind: ray, address: '{cluster.address}'" if ray else "kind: slurm"
    through, environment = ([], dict(os.environ)) if ray else (["salloc", "--quiet", "--nodes=3"], cluster.environment)
    command = [
        *through,
        sys.executable,
        "-m",
        "tests.hostile.table",
        world,
        str(tls).lower(),
        str(out),
        fleet,
        *attacks,
    ]
    root = str(Path(__file__).parents[2])
    path = {"PYTHONPATH": root, "GRPC_VERBOSITY": "NONE"}
    done = subprocess.run(command, cwd=root, env=environment | path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
