"""Ctrl-C: the first ends a run in good order, with its result and report; the second leaves at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from netdfl.core.interrupts import ending_signals, interruptible
from netdfl.record.judge import ExitCode
from netdfl.record.status import FleetStatus
from netdfl.running.display import SilentDisplay
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.warm import warm_python

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


class Impatient(SilentDisplay):
    """Sends a signal, `times` in a row, when the fleet runs."""

    def __init__(self, times: int, number: int = signal.SIGINT) -> None:
        self.times, self.number, self.said = times, number, list[str]()

    def note(self, text: str) -> None:
        self.said.append(text)

    def update(self, status: FleetStatus) -> None:
        while status.elapsed_s and self.times:
            self.times -= 1
            os.kill(os.getpid(), self.number)


def interrupted(path: Path, view: Impatient) -> FinishedRun:
    return run(loads(SCENARIO), out=path, view=nullcontext(view))


RARELY = pytest.mark.soak


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=RARELY), pytest.param(signal.SIGHUP, marks=RARELY)]
)
def test_an_interrupted_run_has_its_result_and_its_report(number: int, tmp_path: Path) -> None:
    view = Impatient(1, number)
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


def test_a_hangup_that_nohup_ignores_ends_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in ending_signals()
        with interruptible(lambda: pytest.fail("it was interrupted")):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.SIGHUP in ending_signals()


@pytest.mark.parametrize("closed", ["stdout", pytest.param("stderr", marks=pytest.mark.soak), "both"])
def test_a_run_whose_output_nobody_reads_goes_on_to_its_verdict(closed: str, tmp_path: Path) -> None:
    text = SCENARIO.replace("rounds: 1000000", "rounds: 30") + "expect: {error: {at_most: 0}}\n"
    (scenario := tmp_path / "scenario.yaml").write_text(text)
    reads, writes = os.pipe()
    os.close(reads)
    streams = {name: writes for name in ("stdout", "stderr") if closed in (name, "both")}
    command = [warm_python(), "-m", "netdfl", "run", str(scenario), "--no-page", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}, timeout=120)  # type: ignore[call-overload]
    os.close(writes)
    assert done.returncode == ExitCode.FAIL
    assert json.loads((tmp_path / "run/result.json").read_text())["verdict"] == "fail"
