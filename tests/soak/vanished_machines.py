"""Machines of a real Slurm and a real Ray cluster that die, vanish, or are only slow: named within 10 s, or not at all.

python -m tests.soak.vanished_machines [slurm] [ray]

A machine has a network of its own, with an address of IPv6 under Slurm. It is killed with its daemons, and comes back
later, or before its engine can have noticed; its cable is cut; or all its processes are stopped, or starved, for 15 s.
Who is gone is named, comes back by `rejoin`, and nothing of an earlier life lives on; who is slow is not named.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from netdfl.testing.world_bench import nodes_of
from tests.machines import ray_cluster, slurm_cluster
from tests.machines.on_cluster import Running, in_round
from tests.machines.separated import Separated, ip
from tests.soak.tally import append, repeat

ENGINES: Mapping[str, Any] = {"slurm": slurm_cluster, "ray": ray_cluster}
NAMED_WITHIN_S, AWAY_S, SLOW_S, BACK_WITHIN_S = 10.0, 20.0, 15.0, 120.0
ROUNDS = {"rounds": 1_000_000}
BUSY = "while True: pass"


class Trials:
    """What is done to the last machine of a cluster, in turn. `took` says how long each took to be named, and back."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        """On `cluster`, whose machines are left as they were found."""
        self.cluster, self.machines, self.folder = cluster, cluster.machines, folder
        self.name = self.machines.names[-1]
        self.took: dict[str, str] = {}
        self.all = {
            "killed": self._killed,
            "killed and back at once": self._back_at_once,
            "cut off": self._cut_off,
            "stopped": self._stopped,
            "starved": self._starved,
        }

    def one(self, rng: Random, number: int) -> str | None:
        """Do one of them to a run; what is wrong of what came of it."""
        what = list(self.all)[number]
        folder = self.folder / what.replace(" ", "-")
        folder.mkdir()
        running = Running(self.cluster, folder, ROUNDS, rejoin=True)
        try:
            running.until(in_round(3))
            self.all[what](running)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return f"{what}: {error}"
        finally:
            if running.process.poll() is None:
                running.interrupt()
        return None

    def _killed(self, running: Running) -> None:
        self.machines.kill(self.name)
        self._is_named(running, "killed", time.monotonic())
        time.sleep(AWAY_S)
        self.cluster.boot(self.name)
        self._is_back(running, "killed", time.monotonic())

    def _back_at_once(self, running: Running) -> None:
        since_s = time.monotonic()
        self.machines.kill(self.name)
        with ThreadPoolExecutor() as pool:
            pool.submit(self.cluster.boot, self.name)  # which takes Ray seconds
            self._is_named(running, "killed and back at once", since_s)
        self._is_back(running, "killed and back at once", since_s)

    def _cut_off(self, running: Running) -> None:
        pids = self._pids_of_nodes(running)
        self.machines.unplug(self.name)
        self._is_named(running, "cut off", time.monotonic())
        assert all(Path(f"/proc/{pid}").exists() for pid in pids), "its nodes did not outlive the cable"
        time.sleep(AWAY_S if self.cluster.kind == "slurm" else 0)  # so long Ray's daemon would end, and stay so
        self.machines.plug_in(self.name)
        self._is_back(running, "cut off", time.monotonic())
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids), "nodes of an earlier life live on"

    def _stopped(self, running: Running) -> None:
        pids = [int(pid) for pid in ip("netns", "pids", self.name).split()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self._is_slow(running, pids)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        self._goes_on(running)

    def _starved(self, running: Running) -> None:
        pids = [int(pid) for pid in ip("netns", "pids", self.name).split()]
        with _busy():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
            self._is_slow(running, pids)
        self._goes_on(running)

    def _pids_of_nodes(self, running: Running) -> list[int]:
        here = set(ip("netns", "pids", self.name).split())
        return [each["pid"] for each in nodes_of(running.path) if str(each["pid"]) in here]

    def _is_named(self, running: Running, what: str, since_s: float) -> None:
        while f"machine {self.name} is gone" not in running.said():
            assert time.monotonic() < since_s + BACK_WITHIN_S, f"never named: {running.said()[-500:]}"
            time.sleep(0.02)
        took_s = time.monotonic() - since_s
        self.took[what] = f"named after {took_s:.1f} s"
        assert took_s <= NAMED_WITHIN_S, f"named after {took_s:.1f} s"
        died = [each["node"] for each in nodes_of(running.path) if each["phase"] == "died"]
        assert len(died) <= 2, f"{died} died"

    def _is_back(self, running: Running, what: str, since_s: float) -> None:
        while f"machine {self.name} is back" not in running.said():
            assert time.monotonic() < since_s + BACK_WITHIN_S, f"not back: {running.said()[-500:]}"
            time.sleep(0.1)
        running.until(lambda nodes: all(each["phase"] == "running" for each in nodes))
        self.took[what] += f" and back after {time.monotonic() - since_s:.0f} s"
        self._goes_on(running)

    def _is_slow(self, running: Running, pids: Sequence[int]) -> None:
        time.sleep(SLOW_S)
        assert pids
        assert " is gone" not in running.said(), running.said()[-500:]

    def _goes_on(self, running: Running) -> None:
        reached = max(each["round"] or 0 for each in nodes_of(running.path))
        running.until(in_round(reached + 10))


@contextmanager
def _busy() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main(asked: Sequence[str]) -> None:
    """Try the engines that are asked for, and write down how many failed, and what it took."""
    failed = False
    for engine in [name for name in ENGINES if not asked or name in asked]:
        kind = ENGINES[engine]
        if reason := kind.missing():
            sys.exit(f"{engine}: {reason}")
        with Separated(3, six=engine == "slurm") as machines, kind.Cluster(machines) as cluster:
            with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
                trials = Trials(cluster, Path(folder))
                counted = repeat(trials.one, count=len(trials.all), seed=1)
        took = "; ".join(f"{what}: {how}" for what, how in trials.took.items())
        append(f"machines of {engine} that vanish are named within 10 s, slow ones not ({took})", counted, 1)
        failed = failed or bool(counted.failures)
    sys.exit(failed)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main(sys.argv[1:])
