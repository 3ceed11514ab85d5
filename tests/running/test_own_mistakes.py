"""A mistake in a user's own part, made in the middle of a run, is told as theirs with its line, in every world."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl import cli
from netdfl.core import whose
from netdfl.running.judged import FinishedRun
from tests.running import mistaken

DIGITS = {"model": {"name": "mlp"}, "batch_size": 512}
LINKS = {"latency": "1ms"}
PARTS: dict[str, dict[str, Any]] = {
    "dataset": {"task": {"dataset": {"name": "own:dataset"}}},
    "model": {"task": DIGITS | {"model": {"name": "own:Net"}}},
    "model that misfits": {"task": DIGITS | {"model": {"name": "own:Misfit"}}},
    "loss": {"task": DIGITS | {"loss": {"name": "own:loss"}}},
    "metric": {"task": DIGITS | {"metrics": ["own:metric"]}},
    "augmentation": {"task": DIGITS | {"dataset": {"name": "digits", "augment": {"kind": "own:augmentation"}}}},
    "solver": {"algorithm": "own:solver"},
    "start": {"algorithm": "own:start"},
    "mixing": {"algorithm": "own:mixing"},
    "compression": {"compression": "own:compression"},
    "link loss": {"links": {"default": LINKS | {"loss": {"model": "own:link_loss"}}}},
    "latency": {"links": {"default": {"latency": {"dist": "own:latency"}}}},
    "topology": {"topology": {"kind": "own:topology"}, "rounds": 6},
    "selection": {"topology": {"kind": "ring", "selection": {"kind": "own:selection"}}},
    "world": {"world": {"kind": "own:WORLD"}},
    "compute time": {"world": {"kind": "simulated", "compute": {"kind": "own:compute_time"}}},
}
IN_PROCESSES = ("model", "metric", "mixing", "link loss", "latency", "topology")
RARELY = ("loss", "augmentation", "start", "compression", "latency", "selection")
"""Others are called from the same place: as nodes train, as they mix and send, by links, and of the graph."""
SAMPLED = ("model", "metric", "link loss")
"""What nodes call while they train, what the supervisor calls, and what a transport calls."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(mistaken.__file__, tmp_path / "own.py")
    return tmp_path


def line_of(part: str) -> int:
    """Where the part makes its mistake."""
    lines = Path(mistaken.__file__).read_text().splitlines()
    wanted = "x.flatten(1)" if part == "model that misfits" else "{}.nothing"
    return [number for number, line in enumerate(lines, 1) if wanted in line][-1]


def ran(folder: Path, part: str, world: str) -> FinishedRun:
    text: dict[str, Any] = {"schema": "netdfl/1", "name": "mistaken", "nodes": 3, "rounds": 3, "world": world}
    text |= {"task": {"kind": "consensus", "dim": 3}, "algorithm": "dpsgd", "topology": "ring"}
    if "task" in PARTS[part] or part in ("solver", "mixing", "start"):
        text |= {"task": DIGITS, "algorithm": "dfedavg"}
    (folder / "s.yaml").write_text(json.dumps(text | PARTS[part]))
    loaded = netdfl.load(folder / "s.yaml")
    (folder / "flag").touch()
    return netdfl.run(loaded, out=folder / "run", page=False)


def check_told(done: FinishedRun, folder: Path, part: str) -> None:
    kind = "RuntimeError: mat1" if part == "model that misfits" else "AttributeError: 'dict' object has no"
    (reason,) = done.result["reasons"]
    assert kind in reason
    assert f"({folder / 'own.py'}:{line_of(part)})" in reason
    assert "\n" not in reason
    assert "write it as" not in reason
    assert (done.exit_code, done.result["verdict"]) == (4, "unknown")


@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.soak] * (part in RARELY)) for part in PARTS])
def test_a_mistake_in_the_middle_of_a_simulated_run(part: str, folder: Path) -> None:
    check_told(ran(folder, part, "simulated"), folder, part)


UNTRIED = """
from torch import nn
from netdfl.scenario.model.world import WorldOptions
from netdfl.worlds.catalog import WorldEntry


class Task:
    def data(self):
        return [[0.0]] * 8, [0, 1] * 4

    def model(self):
        return self.nothing

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {}


def make(setting):
    return setting.nothing


WORLD = WorldEntry(options=WorldOptions, make=make)
"""


@pytest.mark.parametrize(("change", "line"), [("task.kind=own:Task", 12), ("world.kind=own:WORLD", 22)])
def test_a_mistake_that_nothing_tries_ends_a_command_in_a_sentence(
    change: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(UNTRIED)
    text = {"schema": "netdfl/1", "name": "mistaken", "nodes": 2, "rounds": 1, "world": "simulated"}
    (tmp_path / "s.yaml").write_text(json.dumps(text | {"algorithm": "dfedavg", "topology": "ring"}))
    monkeypatch.setattr("sys.argv", ["netdfl", "run", str(tmp_path / "s.yaml"), "--set", change])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "AttributeError: " in said
    assert f"({tmp_path / 'own.py'}:{line})" in said


NO_CLASSES = """
import torch


def data(root, /):
    return torch.rand(40, 4), torch.full((40,), -3)


def leaves(root, /):
    raise SystemExit(0)


def net(shape, num_classes, /):
    return torch.nn.Linear(4, 2)
"""


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (
            "data",
            "--set task.dataset=own:data: the dataset has a target below 0: number the classes from 0 on, or "
            "learn numbers by task.loss: mse",
        ),
        ("leaves", "your own code raised SystemExit: 0 (own.py:10); let it return or raise an error"),
    ],
)
def test_what_no_model_can_learn_and_a_part_that_exits_are_told(
    dataset: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(NO_CLASSES)
    text = {"schema": "netdfl/1", "name": "mistaken", "nodes": 2, "rounds": 1, "world": "simulated", "topology": "ring"}
    (tmp_path / "s.yaml").write_text(json.dumps(text | {"algorithm": "dfedavg", "task": {"model": "own:net"}}))
    monkeypatch.setattr("sys.argv", ["netdfl", "validate", "s.yaml", "--set", f"task.dataset=own:{dataset}"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.replace(f"{tmp_path}/", "").splitlines()[-1] == said


def test_a_program_that_calls_netdfl_is_not_blamed_for_what_breaks_in_it() -> None:
    with pytest.raises(AttributeError) as caught:
        whose.own_place(7)  # type: ignore[arg-type]
    assert whose.theirs(caught.value) is None


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[] if part in SAMPLED else [pytest.mark.soak]) for part in IN_PROCESSES]
)
def test_a_mistake_in_the_middle_of_a_run_of_processes(part: str, folder: Path) -> None:
    check_told(ran(folder, part, "processes"), folder, part)


def test_compiled_code_of_a_library_is_nobodys_own() -> None:
    """uvloop's frames name `uvloop/loop.pyx`, a file of its maker's, which would lie in the working directory."""
    places = (str(Path(netdfl.__file__).parent / "host" / "node.py"), "uvloop/loop.pyx")
    names: list[dict[str, Any]] = [{}, {}]
    for place, defined in zip(places, names, strict=True):
        exec(compile("def call(do, *with_these): do(*with_these)", place, "exec"), defined)
    of_netdfl, of_library = (defined["call"] for defined in names)
    with pytest.raises(ValueError, match="invalid literal") as raised:
        of_netdfl(of_library, int, "no number")
    assert whose.own_place(raised.value) == ""
    assert not whose.is_users("uvloop/loop.pyx")
