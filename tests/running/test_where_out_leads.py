"""`--out` that leads into a file, and a disk that takes no more: a sentence with the place and a remedy."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from netdfl import cli

SCENARIO = {
    "schema": "netdfl/1",
    "name": "small",
    "nodes": 3,
    "rounds": 2,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 2},
    "algorithm": "dpsgd",
    "topology": "ring",
}
STUDY = {"schema": "netdfl/study/1", "name": "st", "sweeps": {"g": {"scenario": SCENARIO, "seeds": 1}}}


def netdfl(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["netdfl", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a scenario, a study, and a file where a folder is asked for."""
    (tmp_path / "s.yaml").write_text(json.dumps(SCENARIO))
    (tmp_path / "st.yaml").write_text(json.dumps(STUDY))
    (tmp_path / "taken").write_text("mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMANDS = [
    ("run", "s.yaml", "--out", "taken"),
    ("sweep", "s.yaml", "--vary", "rounds=1,2", "--out", "taken"),
    ("sweep", "st.yaml", "--out", "taken"),
    ("prove", "s.yaml", "--out", "taken"),
    ("explore", "s.yaml", "--runs", "1", "--out", "taken"),
    ("testbed", "s.yaml", "--out", "taken"),
    ("testbed", "s.yaml", "--out", "taken/deeper"),
    ("testbed", "s.yaml", "--for", "kubernetes", "--out", "taken"),
    ("credentials", "s.yaml", "--out", "taken"),
    ("new", "taken/new.yaml", "--no-ask"),
    ("calibrate", "--out", "taken/table.json"),
    ("calibrate", "--out", "."),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_out_that_is_a_file_is_refused_with_a_remedy_and_left(
    command: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert netdfl(*command, monkeypatch=monkeypatch) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "taken" in said or said == ". is a folder; name a file with --out"
    assert "name a" in said
    assert sorted(path.name for path in here.iterdir()) == ["s.yaml", "st.yaml", "taken"]
    assert (here / "taken").read_text() == "mine"


@pytest.mark.parametrize("name", ["new.yaml", "fold/new.yaml"])
def test_a_full_disk_leaves_no_half_of_a_file(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(before: object, after: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.replace", full)
    assert netdfl("new", name, "--no-ask", monkeypatch=monkeypatch) == 2
    assert (
        capsys.readouterr().err
        == f"{name} can't be written: No space left on device; name another file, or make room\n"
    )
    assert [path for path in here.rglob("*new*")] == []


def test_a_full_disk_is_no_internal_error_wherever_it_is_met(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some/file")

    monkeypatch.delenv("NETDFL_TRACEBACK", raising=False)
    monkeypatch.setattr("netdfl.cli.scenarios.load_scenario", full)
    assert netdfl("validate", "s.yaml", monkeypatch=monkeypatch) == 4
    said = "some/file can't be written: No space left on device; make room there, or have it written elsewhere\n"
    assert capsys.readouterr().err == said
