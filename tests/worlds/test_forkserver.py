"""The process that starts the nodes, and those that die with their parent: ends that come too early."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from netdfl.core import process as processes
from netdfl.core.control import Exit
from netdfl.core.errors import RunError
from netdfl.core.types import NodeId
from netdfl.host.plan import Command, RunPlan
from netdfl.worlds.fork_client import ForkServer
from netdfl.worlds.forkserver import tail

EXIT_LOST = 6
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")


PLAN = RunPlan(directory="nowhere", scenario_directory=".", control="", secret="", run_id="", scenario_hash="")


class Ended(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def process() -> subprocess.Popen[bytes]:
    """One that has ended without reading its input."""
    process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.wait()
    return process


async def test_a_fork_server_that_ended_before_the_plan_is_said_and_can_still_be_closed(
    process: subprocess.Popen[bytes],
) -> None:
    its = ForkServer(process)
    with pytest.raises(RunError, match="the process that starts the nodes ended"):
        await its.plan(PLAN, lambda node, how: None)
    its.close()
    assert process.stdin is not None
    assert process.stdin.closed


async def test_a_process_of_several_nodes_says_its_last_words(tmp_path: Path) -> None:
    scenario = {"schema": "netdfl/1", "name": "words", "nodes": 2, "rounds": 1, "topology": "ring"}
    task = {"task": {"kind": "consensus", "dim": 2}, "algorithm": "dpsgd"}
    (tmp_path / "scenario.yaml").write_text(json.dumps(scenario | task), encoding="utf-8")
    nobody = "127.0.0.1:9"
    plan = replace(PLAN, directory=str(tmp_path), control=nobody, run_id="00" * 8)
    over: asyncio.Queue[tuple[NodeId, Exit]] = asyncio.Queue()
    forks = ForkServer.open()
    await forks.plan(plan, lambda node, how: over.put_nowait((node, how)))
    await forks.spawn(Command(nodes=(0, 1)))
    (first, how), (second, _) = [await asyncio.wait_for(over.get(), 60) for _ in range(2)]
    await forks.aclose()
    assert (first, second, how.code, how.signal) == (0, 1, EXIT_LOST, None)
    assert f"can't attend at the supervisor {nobody}" in how.words


@LINUX
@pytest.mark.parametrize(("parent", "now", "ends"), [(1, 1, False), (4711, 4711, False), (4711, 1, True)])
def test_only_another_parent_than_the_one_that_started_it_means_its_death(
    parent: int, now: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(code: int) -> None:
        raise Ended

    monkeypatch.setattr(processes, "follow_parent", lambda: None)
    monkeypatch.setattr(os, "getppid", lambda: now)
    monkeypatch.setattr(os, "_exit", end)
    if ends:
        with pytest.raises(Ended):
            processes.die_with_parent(parent)
    else:
        processes.die_with_parent(parent)


@LINUX
@pytest.mark.parametrize(("mine", "code"), [(True, 0), (False, 1)])
def test_the_process_that_forks_cells_serves_who_started_it_alone(mine: bool, code: int) -> None:
    parent = os.getpid() if mine else os.getppid()
    command = [sys.executable, "-m", "netdfl.study.forks", str(parent)]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == code


CUDA = """Traceback (most recent call last):
  File "netdfl/host/process.py", line 60, in main
    task = problem.task(node, device)
torch.AcceleratorError: CUDA error: out of memory
Search for `cudaErrorMemoryAllocation' in the documentation of CUDA.
CUDA kernel errors might be asynchronously reported at some other API call.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


def test_a_long_error_is_told_from_its_first_line_and_a_short_one_with_its_place(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(CUDA)
    assert tail(log).startswith("torch.AcceleratorError: CUDA error: out of memory | Search for")
    log.write_text("ValueError: earlier\n" + "a line\n" * 20 + '  File "x.py", line 1\n    f()\nKeyError: 3\n')
    assert tail(log) == '  File "x.py", line 1 |     f() | KeyError: 3'
    assert tail(tmp_path / "none") == ""


def test_what_a_library_counts_of_its_own_is_no_leak_as_the_fork_server_ends() -> None:
    """DuckDB, which reads tables, says at an interpreter's end what `gc.freeze` still holds. It is all in `preload`."""
    code = "import duckdb; from netdfl.worlds import forkserver, preload; preload.warm = duckdb.connect"
    ended = "import atexit; atexit.register(print, 'handlers ran')"
    command = [sys.executable, "-c", f"{ended}; {code}; forkserver.main()"]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "handlers ran\n")
