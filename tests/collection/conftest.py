"""A folder of runs: copies of one small run, each with values of its own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.agreeing import agreeing

SMALL = agreeing("small", 4, 3, "seed: 3\nlinks: {default: {latency: 5ms}}", compute="10ms")
Plant = Callable[..., Path]


@pytest.fixture(scope="session")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("collected") / "one"
    run(loads(SMALL), out=path, page=False)
    return path


@pytest.fixture
def plant(one_run: Path, tmp_path: Path) -> Plant:
    """Makes a run below tmp_path/runs, begun at `at` seconds, with other figures and lines of its scenario."""

    def planted(name: str, at: int = 0, lines: dict[str, str] | None = None, **figures: Any) -> Path:
        path = tmp_path / "runs" / name
        shutil.copytree(one_run, path)
        result = json.loads((path / "result.json").read_text()) | figures
        (path / "result.json").write_text(json.dumps(result))
        text = (path / "scenario.yaml").read_text()
        for old, new in (lines or {}).items():
            assert old in text
            text = text.replace(old, new)
        (path / "scenario.yaml").write_text(text)
        os.utime(path / "scenario.yaml", (1_700_000_000 + at,) * 2)
        return path

    return planted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"
