"""Studies whose runs an engine makes on its machines: each result is the local one, and nobody's death changes that.

Real Ray takes half a minute of all cores and is for `tests.soak.in_full`; `tests/study/test_on_ray.py` has its runner.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.explore.conftest import SMALL
from tests.machines import ray_cluster, slurm_cluster
from tests.machines.separated import Separated, ip
from tests.warm import warm_python

CLUSTERS: Mapping[str, Any] = {"slurm": slurm_cluster, "ray": ray_cluster}
PATIENCE_S = 200
DISK_NBYTES = 64 << 20
PARTS = '''
"""A dataset that a machine of the cluster reads once the gate is open."""

import socket
import time
from pathlib import Path

import numpy as np

from netdfl.training.data.dataset import Dataset


def noise(root, /):
    """Two classes of pictures."""
    while socket.gethostname().startswith({machines!r}) and Path({gate!r}).exists():
        time.sleep(0.05)
    rng = np.random.default_rng(0)

    def split(n):
        return rng.standard_normal((n, 1, 4, 4)).astype(np.float32), (np.arange(n) % 2).astype(np.int64)

    return Dataset(*split(80), *split(20), 2)
'''
SCENARIO = {
    "schema": "netdfl/1",
    "name": "trained",
    "nodes": 4,
    "rounds": 3,
    "world": "simulated",
    "task": {"dataset": "parts:noise", "model": {"name": "mlp", "hidden": [3]}, "batch_size": 10},
    "algorithm": {"name": "dfedavg", "lr": 0.05, "local_steps": 2},
    "topology": "ring",
    "evaluation": {"keep_models": True},
}
DIFFERS = ("duration_s", "versions", "wall", "cpu")
"""Figures of a run's own time and place."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A small disk that machines see under the same name, and may write to, if they begin after it."""
    path = Path("/dev/shm") / f"netdfl-study-{os.getpid()}"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_NBYTES}", "tmpfs", str(path)]
    subprocess.run(mount, check=True, capture_output=True, timeout=60)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True, capture_output=True, timeout=60)
    path.rmdir()


@pytest.fixture(scope="module", params=["slurm", pytest.param("ray", marks=pytest.mark.soak)])
def cluster(request: pytest.FixtureRequest, shared: Path) -> Iterator[Any]:
    kind = CLUSTERS[request.param]
    if reason := kind.missing():
        pytest.skip(reason)
    lean = {"lean": True} if request.param == "ray" else {}
    with Separated(2) as machines, kind.Cluster(machines, **lean) as cluster:
        yield cluster


@pytest.fixture
def folder(shared: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder on the small disk."""
    path = shared / f"{len(request.node.name)}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


class Study:
    """A sweep in `folder`, on a cluster or here; the gate keeps its runs in their middle."""

    def __init__(self, folder: Path, cluster: Any = None, name: str = "") -> None:
        """Write its scenario."""
        self.cluster, self.gate = cluster, folder / "gate"
        self.file, self.out = folder / "trained.yaml", folder / (name or (cluster.kind if cluster else "local"))
        machines = cluster.machines.names[0].rpartition("-")[0] if cluster else "no machine"
        (folder / "parts.py").write_text(PARTS.format(gate=str(self.gate), machines=machines))
        self.file.write_text(json.dumps(SCENARIO))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the command."""
        runner = ["--runner", self.cluster.kind, "--memory", "200MiB"] if self.cluster else []
        command = ["-m", "netdfl", "sweep", str(self.file), "--out", str(self.out), "--seeds", "2", *runner, *words]
        environment = dict(getattr(self.cluster, "environment", os.environ))
        if self.cluster and self.cluster.kind == "ray":
            environment["RAY_ADDRESS"] = self.cluster.address
        python = sys.executable if self.cluster else warm_python()
        return subprocess.Popen(
            [python, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str) -> str:
        """Run the command to its good end; return what it says."""
        said, _ = self.start(*words).communicate(timeout=PATIENCE_S)
        assert len(self.hashes) == self.num_runs, said
        return said

    @property
    def num_runs(self) -> int:
        return len(list(self.out.glob("*/cells/*/")))

    @property
    def hashes(self) -> dict[str, object]:
        """Of each finished run what is the same wherever it was made: every figure, and every model's bytes."""
        found = {}
        for path in self.out.glob("*/cells/*/"):
            if (path / "result.json").exists():
                result = json.loads((path / "result.json").read_text())
                figures = {name: value for name, value in result.items() if not name.startswith(DIFFERS)}
                models = {each.name: each.read_bytes() for each in sorted((path / "models").glob("*"))}
                found[path.name] = (figures, models)
        return found


def tasks(cluster: Any) -> dict[int, str]:
    """The runs under way on the machines: the machine of each process."""
    found = {}
    for name in cluster.machines.names:
        for pid in ip("netns", "pids", name).split():
            with suppress(OSError):
                if b"netdfl.study.task" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found[int(pid)] = name
    return found


def until(holds: Callable[[], object], study: subprocess.Popen[str] | None = None) -> None:
    last = time.monotonic() + PATIENCE_S
    while not holds():
        assert study is None or study.poll() is None, study.communicate()
        assert time.monotonic() < last
        time.sleep(0.1)


def test_a_run_whose_worker_is_killed_is_made_elsewhere_and_all_are_those_of_this_machine(
    cluster: Any, folder: Path
) -> None:
    study = Study(folder, cluster)
    study.gate.touch()
    going = study.start()
    until(lambda: len(tasks(cluster)) == 2, going)
    before = tasks(cluster)
    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    until(lambda: len(tasks(cluster).keys() - {killed}) == 2, going)
    (again,) = tasks(cluster).keys() - before.keys()
    assert tasks(cluster)[again] != before[killed]
    study.gate.unlink()
    said, _ = going.communicate(timeout=PATIENCE_S)
    assert going.returncode == 0, said
    local = Study(folder)
    local.run()
    assert len(local.hashes) == 2
    assert study.hashes == local.hashes


def test_ctrl_c_leaves_nothing_behind_and_the_same_command_goes_on(cluster: Any, folder: Path) -> None:
    study = Study(folder, cluster)
    study.gate.touch()
    going = study.start()
    until(lambda: tasks(cluster), going)
    os.killpg(going.pid, signal.SIGINT)
    said, _ = going.communicate(timeout=PATIENCE_S)
    assert going.returncode == 130, said
    assert said.endswith("0 of 2 runs are finished; repeat the command to go on from there\n")
    until(lambda: not tasks(cluster))
    study.gate.unlink()
    study.run()
    assert len(study.hashes) == 2


GRID = ("--seeds", "3", "--vary", "rounds=2,3", "--vary", "algorithm.lr=0.05,0.1")


@pytest.mark.soak  # each run imports torch
def test_two_studies_of_twelve_runs_at_once_though_a_machine_is_killed(cluster: Any, folder: Path) -> None:
    one, other, local = Study(folder, cluster, "one"), Study(folder, cluster, "other"), Study(folder)
    going = [one.start(*GRID), other.start(*GRID)]
    until(lambda: one.hashes and len(set(tasks(cluster).values())) == 2, going[0])
    killed = cluster.machines.names[0]
    cluster.machines.kill(killed)
    cluster.boot(killed)
    for each in going:
        said, _ = each.communicate(timeout=PATIENCE_S)
        assert each.returncode == 0, said
    local.run(*GRID)
    assert len(local.hashes) == 12
    assert one.hashes == other.hashes == local.hashes


@pytest.mark.soak
def test_an_exploration_finds_on_machines_what_it_finds_here(cluster: Any, folder: Path) -> None:
    (folder / "explored.yaml").write_text(json.dumps(SMALL | {"nodes": 3, "rounds": 4}))
    found = []
    for runner in ("local", cluster.kind):
        out = folder / runner
        needs = [] if runner == "local" else ["--memory", "200MiB"]
        command = [sys.executable, "-m", "netdfl", "explore", "explored.yaml", "--out", str(out), "--runs", "64"]
        environment = dict(getattr(cluster, "environment", os.environ))
        if cluster.kind == "ray":
            environment["RAY_ADDRESS"] = cluster.address
        done = subprocess.run(
            [*command, "--runner", runner, *needs], cwd=folder, env=environment, timeout=PATIENCE_S,
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 1, done.stdout + done.stderr
        said = done.stdout[done.stdout.index("64 runs") :].replace(str(out), "it")
        files = [each.read_text() for each in sorted(out.glob("finding-*.yaml"))]
        found.append((said, files, sorted((out / "runs.jsonl").read_text().splitlines())))
    assert found[0] == found[1]


@pytest.mark.soak
def test_a_disk_that_is_full_ends_runs_and_the_same_command_goes_on(cluster: Any, folder: Path) -> None:
    study, ballast = Study(folder, cluster), folder / "ballast"
    study.gate.touch()
    going = study.start()
    until(lambda: len(tasks(cluster)) == 2, going)
    with suppress(OSError), ballast.open("wb") as file:
        while file.write(bytes(1 << 12)):
            file.flush()
    study.gate.unlink()
    said, _ = going.communicate(timeout=PATIENCE_S)
    assert going.returncode in (1, 4), said
    assert "Traceback" not in said
    assert any(words in said for words in ("No space left on device", "never came to its end", "exit code 4")), said
    ballast.unlink()
    study.run()
    assert len(study.hashes) == 2
