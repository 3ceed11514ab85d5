"""A directory that refuses does not hide why the run ended."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from netdfl.core.clock import RealClock
from netdfl.core.errors import RunError
from netdfl.record.directory import RunDirectory
from netdfl.scenario.load import loads
from netdfl.supervisor.supervisor import Supervisor


def refuse(*args: Any, **more: Any) -> NoReturn:
    raise PermissionError(1, "Operation not permitted")


def refuse_record(*args: Any) -> NoReturn:
    raise RunError("no space left")


def test_a_directory_that_refuses_does_not_hide_why_the_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "snapshots").mkdir()
    scenario = loads(
        "{schema: netdfl/1, name: s, nodes: 3, rounds: 3, task: consensus, algorithm: dpsgd, topology: ring}"
    )
    world: Any = SimpleNamespace(clock=RealClock(), recorder=lambda store: store)
    supervisor = Supervisor(scenario, RunDirectory(tmp_path), world, note=lambda text: None, show=lambda status: None)
    supervisor.broke(RunError("node 3 broke: its disk is full"))
    monkeypatch.setattr(shutil, "rmtree", refuse)
    monkeypatch.setattr(Path, "rmdir", refuse)
    monkeypatch.setattr(RunDirectory, "write", refuse_record)
    supervisor._finish_record()
    assert str(supervisor.fleet.error) == "node 3 broke: its disk is full"
