"""The runner of Slurm, with commands in Slurm's place that make the runs at once: arrays, deaths, words of refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console

from netdfl.core.errors import InputError
from netdfl.study.runners import slurm
from netdfl.study.runners.base import CellOrder, RunNeeds, StudyOrder
from netdfl.study.runners.slurm import SlurmRunner
from netdfl.study.sweep import sweep
from tests.warm import warm_python

pytestmark = pytest.mark.usefixtures("undrawn")

SCENARIO = """
schema: netdfl/1
name: small
nodes: 4
rounds: 2
world: simulated
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: ring
"""
SBATCH = """#!/bin/sh
here=$(dirname "$0")
echo "$@" >> "$here/calls"
[ -e "$here/refuses" ] && { echo "no such partition" >&2; exit 1; }
cat > "$here/script"
for word in "$@"; do
    case "$word" in --array=*) array="${word#--array=}" ;; esac
done
for number in $(echo "${array%%%*}" | tr , ' '); do
    if [ -e "$here/kills" ]; then
        rm "$here/kills"
        SLURM_ARRAY_TASK_ID=$number SLURMD_NODENAME=first sh -c "$(sed 's/^[^ ]* -m netdfl.*/false/' "$here/script")"
    else
        SLURM_ARRAY_TASK_ID=$number SLURMD_NODENAME=second sh "$here/script"
    fi
done
echo "7;cluster"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the commands."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sbatch": SBATCH, "squeue": "#!/bin/sh\n", "scancel": "#!/bin/sh\n"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    with mock.patch.object(slurm.sys, "executable", warm_python()):
        yield folder


def calls(place: Path) -> list[list[str]]:
    return [line.split() for line in (place / "calls").read_text().splitlines()]


def hashes(out: Path) -> dict[str, str]:
    found = {path.parent.name: json.loads(path.read_text()) for path in out.glob("small/cells/*/result.json")}
    return {name: result["event_log_hash"] for name, result in found.items()}


def swept(tmp_path: Path, name: str, **how: object) -> int:
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO)
    return sweep(file, out=tmp_path / name, seeds=2, console=Console(quiet=True), **how)  # type: ignore[arg-type]


def test_an_array_gives_what_this_machine_gives_though_a_run_is_killed(place: Path, tmp_path: Path) -> None:
    (place / "kills").touch()
    needs = RunNeeds(2, 1, 3 << 20)
    assert swept(tmp_path, "slurm", make_runner=SlurmRunner, needs=needs, jobs=0) == 0
    assert swept(tmp_path, "local") == 0
    assert len(hashes(tmp_path / "slurm")) == 2
    assert hashes(tmp_path / "slurm") == hashes(tmp_path / "local")
    first, again = calls(place)
    assert {"--array=0,1%2", "--parsable", "--requeue", "--cpus-per-task=2", "--gpus=1", "--mem=3M"} <= set(first)
    assert not [word for word in first if word.startswith("--exclude")]
    assert {"--array=0%2", "--exclude=first"} <= set(again)
    assert not list((tmp_path / "slurm" / "small").glob(".slurm-*"))


def test_what_slurm_refuses_is_said_in_its_words(place: Path, tmp_path: Path) -> None:
    (place / "refuses").touch()
    with pytest.raises(InputError, match="--runner slurm: no such partition"):
        swept(tmp_path, "slurm", make_runner=SlurmRunner)
    assert not list((tmp_path / "slurm" / "small").glob(".slurm-*"))


def test_an_array_has_no_more_tasks_than_slurm_allows(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "MOST", 2)
    (tmp_path / "cells").mkdir()
    (tmp_path / "bad.yaml").write_text("schema: none\n")
    cells = [CellOrder(tmp_path / "bad.yaml", (), tmp_path / "cells" / f"{n}", "simulated") for n in range(3)]
    runner = SlurmRunner()
    runner.start(StudyOrder(cells, 0))
    assert [code for _, code in runner.ended()] == [2, 2, 2]
    assert [next(word for word in call if "array" in word) for call in calls(place)] == ["--array=0,1%3", "--array=0%3"]


def test_runs_that_could_not_end_in_time_are_not_submitted(place: Path, tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    runner = SlurmRunner()
    runner.start(StudyOrder([CellOrder(tmp_path / "x", (), tmp_path / "cells" / "0", "simulated", 9.0)], 1, until=1.0))
    assert list(runner.ended()) == [(tmp_path / "cells" / "0", None)]
    assert not (place / "calls").exists()


def test_a_share_of_a_gpu_and_a_machine_without_slurm_are_refused(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = StudyOrder([CellOrder(tmp_path / "x", (), tmp_path / "cells" / "0", "simulated")], 1)
    with pytest.raises(InputError, match=r"--gpus 0.5: Slurm gives whole GPUs"):
        SlurmRunner().start(StudyOrder(order.cells, 1, needs=RunNeeds(gpus=0.5)))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="there is no sbatch here"):
        SlurmRunner().start(order)
