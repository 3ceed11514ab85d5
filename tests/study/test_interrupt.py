"""A study that is interrupted leaves at once, says how far it came, and goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from netdfl.core.errors import InputError
from netdfl.record.directory import hold
from netdfl.scenario.load import load
from netdfl.study import resumable
from netdfl.study.resumable import MOST_HELD, drop_checkpoints, rounds_between, run_or_resume
from netdfl.study.sweep import sweep

PYTHON = sys.executable  # a cold one: the processes below it are looked at
DATA = '''
import numpy as np
from netdfl.training.data.dataset import Dataset

def noise(root, /):
    """Two classes of pictures."""
    rng = np.random.default_rng(0)
    def split(n):
        return rng.standard_normal((n, 1, 4, 4)).astype(np.float32), (np.arange(n) % 2).astype(np.int64)
    return Dataset(*split(80), *split(20), 2)
'''
SCENARIO = """
schema: netdfl/1
name: trained
nodes: 4
rounds: 160
world: simulated
task: {dataset: data:noise, model: {name: mlp, hidden: [3]}, batch_size: 10}
algorithm: {name: dfedavg, lr: 0.05, local_steps: 1}
topology: ring
wait: {deadline: none}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario that trains, long enough to be interrupted."""
    (tmp_path / "data.py").write_text(DATA)
    file = tmp_path / "trained.yaml"
    file.write_text(SCENARIO)
    return file


def until(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    for _ in range(3000):
        if condition():
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("what was waited for did not come")


def below(pid: int) -> set[int]:
    """The processes that `pid` started, and these in turn."""
    parents = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(each.parent.name)] = int(each.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def hash_of(run: Path) -> str:
    return str(json.loads((run / "result.json").read_text())["event_log_hash"])


def cell_of(out: Path) -> Path:
    """The one cell of a sweep."""
    (found,) = out.glob("trained/cells/*/")
    return found


def interrupt(scenario: Path, out: Path, number: int, *, group: bool) -> None:
    """Send a signal to a sweep that has begun to write checkpoints; see how it ends."""
    command = [PYTHON, "-m", "netdfl", "sweep", str(scenario), "--seeds", "1", "--out", str(out)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as study:
        until(lambda: list(out.glob("trained/cells/*/checkpoints/000-000000.safetensors")), study)
        own = below(study.pid)
        (os.killpg if group else os.kill)(study.pid, number)
        said, wrong = study.communicate(timeout=60)
    assert study.returncode == 130
    assert wrong == "interrupted: 0 of 1 runs are finished; repeat the command to go on from there\n"
    assert "Traceback" not in said
    assert len(own) == 2
    until(lambda: not any(map(lives, own)))


@pytest.mark.soak  # Ctrl-C ends it in the same way
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_study_ends_when_it_is_told_to(scenario: Path, tmp_path: Path) -> None:
    interrupt(scenario, tmp_path / "out", signal.SIGTERM, group=False)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_study_goes_on_after_ctrl_c(scenario: Path, tmp_path: Path, draw_nothing: Callable[[], None]) -> None:
    out = tmp_path / "out"
    draw_nothing()  # test_tables.py looks at figures
    scenario.write_text(SCENARIO.replace("rounds: 160", "rounds: 80"))
    interrupt(scenario, out, signal.SIGINT, group=True)
    assert sweep(scenario, out=out, seeds=1, console=Console(quiet=True)) == 0
    assert run_or_resume(load(scenario, ["seed=0"]), tmp_path / "other", 1) == 0
    cell = cell_of(out)
    assert hash_of(cell) == hash_of(tmp_path / "other")
    assert not (cell / "checkpoints").exists()
    assert not (cell / "report.html").exists()


def test_before_anything_ran_it_says_so_too(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom netdfl.study.cells import ended_by_signals\n"
        "with ended_by_signals():\n    os.kill(os.getpid(), signal.SIGTERM)\n    print('went on')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    words = "interrupted: nothing has been run yet; repeat the command to go on from there\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", words)


def test_local_rounds_come_from_checkpoints_but_for_those_that_can_not_be_read(scenario: Path, tmp_path: Path) -> None:
    run, sets = tmp_path / "run", ["rounds=3"]

    def again() -> str:
        (run / "result.json").unlink(missing_ok=True)
        assert run_or_resume(load(scenario, sets), run, 1) == 0
        return hash_of(run)

    whole = again()
    kept = run / "checkpoints"
    assert len(list(kept.iterdir())) == 12
    assert again() == whole
    (kept / "000-000000.safetensors").write_bytes((kept / "001-000000.safetensors").read_bytes())
    assert again() != whole
    (kept / "000-000000.safetensors").write_bytes(b"damaged")
    assert again() == whole
    drop_checkpoints(run)
    assert again() == whole


def test_a_run_that_goes_on_elsewhere_is_left_alone(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with hold(tmp_path / "run"), pytest.raises(InputError, match="this run is still going on"):
        run_or_resume(load(scenario, ["rounds=2"]), tmp_path / "run", 1)
    assert (tmp_path / "run").exists()


def test_a_checkpoint_is_a_twentieth_of_a_run_and_fits_memory(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rounds_between(load(scenario), tmp_path, 1) == 8
    assert rounds_between(load(scenario, ["rounds=19"]), tmp_path, 1) == 1
    bytes_per_round = 4 * 4 * (16 * 3 + 3 + 3 * 2 + 2)
    monkeypatch.setattr(resumable, "MOST_HELD", 7 * bytes_per_round)
    assert rounds_between(load(scenario), tmp_path, 1) == 7
    assert 7 * bytes_per_round < MOST_HELD


@pytest.mark.parametrize(
    ("sets", "jobs", "free_rounds", "writes"),
    [
        ([], 1, 640, True),
        ([], 1, 639, False),
        ([], 2, 1279, False),
        (["algorithm.name=fedavg", "topology={kind: star, participation: 0.5}"], 1, 320, True),
        (["algorithm.name=fedavg", "topology={kind: star, participation: 0.5}"], 1, 319, False),
    ],
)
def test_checkpoints_take_half_of_the_free_disk_at_most(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sets: list[str], jobs: int, free_rounds: int,
    writes: bool,
) -> None:  # fmt: skip
    free = 2 * free_rounds * 4 * (16 * 3 + 3 + 3 * 2 + 2)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    assert (rounds_between(load(scenario, sets), tmp_path, jobs) is not None) == writes


@pytest.mark.parametrize(
    "change",
    ["world.kind=processes", "task={kind: consensus, dim: 2}", "task.batching=auto", "checkpoint.every=5"],
)
def test_a_run_that_could_not_go_on_exactly_writes_none_by_itself(scenario: Path, tmp_path: Path, change: str) -> None:
    assert rounds_between(load(scenario, [change]), tmp_path, 1) is None
