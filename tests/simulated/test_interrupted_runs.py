"""Ctrl-C: the first ends a run in good order, with its result and report; the second leaves at once."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest

from netdfl.record.judge import ExitCode
from netdfl.record.status import FleetStatus
from netdfl.running.display import Silent
from netdfl.running.judged import Finished
from netdfl.running.run import run
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: long
nodes: 3
rounds: 1000000
world: {kind: simulated, compute: 1s}
task: quadratic
algorithm: {name: dpsgd, lr: 0.1}
topology: ring
evaluation: {every: 1000000}
"""


class Impatient(Silent):
    """Sends SIGINT, `times` in a row, when the fleet runs."""

    def __init__(self, times: int) -> None:
        self.times, self.said = times, list[str]()

    def note(self, text: str) -> None:
        self.said.append(text)

    def update(self, status: FleetStatus) -> None:
        while status.elapsed_s and self.times:
            self.times -= 1
            os.kill(os.getpid(), signal.SIGINT)


def interrupted(path: Path, view: Impatient) -> Finished:
    return run(loads(SCENARIO), out=path, view=nullcontext(view))


def test_an_interrupted_run_has_its_result_and_its_report(tmp_path: Path) -> None:
    view = Impatient(1)
    finished = interrupted(tmp_path / "run", view)
    assert finished.exit_code is ExitCode.INTERRUPTED
    assert finished.result["reasons"][0] == "the run was interrupted"
    assert "the run was interrupted" in (tmp_path / "run/report.html").read_text()
    assert any("Ctrl-C again" in text for text in view.said)


def test_a_second_interrupt_leaves_at_once(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "run", Impatient(2))
    assert not (tmp_path / "run/report.html").exists()
    assert signal.getsignal(signal.SIGINT) is before
