"""A run that still goes on can't be resumed: its directory stays as it is. A killed one lets go of it."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import time
from pathlib import Path

import pytest

from netdfl.core.errors import InputError
from netdfl.record.directory import LOCK, hold
from netdfl.running.run import resume
from tests.warm import warm_python

SCENARIO = """
schema: netdfl/1
name: held
nodes: 4
rounds: 1000000
task: {kind: consensus, dim: 4}
algorithm: dpsgd
topology: ring
checkpoint: {every: 1000}
evaluation: {every: 1000000}
"""


@pytest.mark.parametrize("world", ["simulated", "processes"])
def test_a_run_that_goes_on_is_left_alone_and_one_that_was_killed_is_let_go(world: str, tmp_path: Path) -> None:
    file, out = tmp_path / "scenario.yaml", tmp_path / "run"
    file.write_text(SCENARIO)
    command = [warm_python(), "-m", "netdfl.cli", "run", str(file), f"--out={out}", f"--on={world}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            while not (out / "fleet.json").exists() and process.poll() is None:
                time.sleep(0.05)
            before = {path.name for path in out.iterdir()}
            with pytest.raises(InputError, match="this run is still going on"):
                resume(out)
            assert before <= {path.name for path in out.iterdir()}
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)  # it has ended once its output has
    with hold(out):
        pass


def test_a_directory_is_held_once(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    with hold(tmp_path), pytest.raises(InputError, match="still going on"):
        resume(tmp_path)


def test_who_only_looks_whether_a_run_goes_on_keeps_nobody_from_beginning_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / LOCK).open("w") as looked:
        fcntl.flock(looked, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(looked, fcntl.LOCK_UN))
        with hold(tmp_path):
            pass
