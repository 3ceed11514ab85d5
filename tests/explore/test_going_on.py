"""An exploration that was interrupted goes on: what was shrunk stays as it is, what was not is shrunk then."""

from __future__ import annotations

import os
import signal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import netdfl
from netdfl.core.errors import InputError
from netdfl.explore.command import FOUND, INTERRUPTED, explore
from netdfl.explore.ends import EndingSettings
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.explore import Budget, Discovery, Exploration
from netdfl.explore.findings import SHRUNK, FindingScenarios


@pytest.fixture
def shrunk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The causes whose findings were shrunk."""
    inner, causes = FindingScenarios.shrunk, list[str]()

    def counted(self: FindingScenarios, found: Discovery) -> str:
        causes.append(found.cause.key)
        return inner(self, found)

    monkeypatch.setattr(FindingScenarios, "shrunk", counted)
    return causes


def explored(text: dict[str, Any], folder: Path, runs: int = 12, seed: int = 24) -> tuple[int, dict[str, str]]:
    """The exit code of `netdfl explore`, and the scenarios that it left."""
    exploration = Exploration(netdfl.load(text | {"nodes": 3, "rounds": 4}), seed=seed, folder=folder)
    code = explore(exploration, Budget(runs=runs), Console(file=StringIO()))
    return code, {file.name: file.read_text() for file in sorted(folder.glob("finding-*.yaml"))}


@pytest.mark.soak
def test_a_signal_while_a_finding_is_shrunk(
    small: dict[str, Any], tmp_path: Path, shrunk: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, folder = Executor.run, tmp_path / "it"

    def signalled(self: Executor, *given: Any, **more: Any) -> ExploredRun:
        if len(shrunk) == 2:  # the first is, the second is tried
            os.kill(os.getpid(), signal.SIGINT)
        return inner(self, *given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Executor, "run", signalled)
        code, interrupted = explored(small, folder)
    assert (code, len(shrunk)) == (INTERRUPTED, 2)
    code, left_alone = explored(small, tmp_path / "other")
    assert (code, len(left_alone)) == (FOUND, 2)
    same = {name: interrupted[name] == text for name, text in left_alone.items()}
    assert same == {"finding-01.yaml": True, "finding-02.yaml": False}

    shrunk.clear()
    assert explored(small, folder) == (FOUND, left_alone)
    assert len(shrunk) == 1
    assert explored(small, folder) == (FOUND, left_alone)
    assert len(shrunk) == 1


def test_what_was_kept_is_not_trusted(
    small: dict[str, Any], tmp_path: Path, shrunk: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdfl.explore.findings.find_ends", lambda *parts: EndingSettings())
    _, before = explored(small, tmp_path, runs=1, seed=5)
    kept = (tmp_path / SHRUNK).read_text()
    for other in (kept.replace('"drop"', '"delay"'), kept.replace('"rounds"', '"round"')):
        (tmp_path / SHRUNK).write_text(other)
        assert other != kept
        assert explored(small, tmp_path, runs=1, seed=5) == (FOUND, before)
    assert len(shrunk) == 3
    (tmp_path / SHRUNK).write_text('{"stall": {"trial": "the third"}}')
    with pytest.raises(InputError, match="damaged; delete it, and what was found is shrunk anew"):
        explored(small, tmp_path, runs=1, seed=5)


def test_a_signal_while_settings_are_tried_leaves_what_was_found(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*parts: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("netdfl.explore.findings.find_ends", interrupted)
    code, left = explored(small, tmp_path / "it")
    assert (code, len(left)) == (INTERRUPTED, 2)
