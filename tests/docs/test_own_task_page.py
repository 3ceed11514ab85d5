"""The page on tasks of one's own: every program on it learns, in virtual time and in processes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import netdfl
from netdfl.cli.commands import make_app
from netdfl.core.rng import Streams
from netdfl.scenario.model.task import Training
from netdfl.scenario.model_size import load_data
from netdfl.training.data.sharing import share_out

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "own_task.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FILES = dict(re.findall(r"^```(?:python|yaml) project/(\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))


def run(folder: Path, scenario: str, *sets: str) -> dict[str, float]:
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    loaded = netdfl.load(folder / scenario, sets)
    result = netdfl.run(loaded, out=folder / "run", page=False).result
    assert result["verdict"] in ("pass", "done"), result["reasons"]
    return {name: course["last"] for name, course in result["metrics"].items()}


@pytest.mark.soak
@pytest.mark.parametrize("world", ["simulated", "processes"])
def test_the_regression_meets_what_it_expects(world: str, tmp_path: Path) -> None:
    """Simulated it does so below too, where its model comes home."""
    assert run(tmp_path, "house.yaml", f"world.kind={world}")["test_mae"] < 0.3


@pytest.mark.parametrize(
    ("kind", "figure", "least", "most", "world"),
    [
        ("labels:Signs", "test_right", 0.7, 1.0, "simulated"),
        ("characters:Zen", "test_perplexity", 1.0, 35.0, "simulated"),
        ("squares:Squares", "test_iou", 0.3, 1.0, "simulated"),
        pytest.param("squares:Squares", "test_iou", 0.3, 1.0, "processes", marks=pytest.mark.soak),
    ],
)
def test_every_class_learns(kind: str, figure: str, least: float, most: float, world: str, tmp_path: Path) -> None:
    found = run(tmp_path, "own.yaml", f"task.kind={kind}", f"world.kind={world}")
    assert least <= found[figure] <= most


def test_texts_are_shared_out_by_author_or_by_work(tmp_path: Path) -> None:
    assert run(tmp_path, "authors.yaml")["test_accuracy"] > 0.1
    held = {}
    for column in ("author", "work"):
        loaded = netdfl.load(tmp_path / "authors.yaml", [f"task.dataset.partition.column={column}"])
        assert isinstance(loaded.task, Training)
        data = load_data(loaded.task, Streams(0))
        parts, _ = share_out(data, loaded.task.split.partition, loaded.nodes, Streams(0))
        held[column] = [set(np.asarray(data.columns[column])[part].tolist()) for part in parts]
    assert all(len(values) == 1 for values in held["author"])
    assert sorted(len(values) for values in held["work"]) == [1, 1, 2, 2]


def test_the_model_comes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    for name in ("house.yaml", "house.py"):
        (tmp_path / "project" / name).write_text(FILES[name], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    for command in commands.splitlines():
        done = CliRunner().invoke(make_app(), shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
    assert {"model.safetensors", "model.pt"} <= {file.name for file in (tmp_path / "runs/house-model").iterdir()}
    names: dict[str, Any] = {"netdfl": netdfl, "runs": ["runs/house", "runs/house"]}
    latex = re.findall(r"`(\.groupby.*?)`", TEXT)[0]
    assert r"\toprule" in eval(f"netdfl.compare(runs){latex}", names)


def test_the_objects_of_a_program_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = [block for block in BLOCKS if "model=Net" in block]
    (tmp_path / "project").mkdir()
    for name in ("house.yaml", "house.py"):
        (tmp_path / "project" / name).write_text(FILES[name], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"netdfl": netdfl}
    exec(FILES["house.py"], names)
    names["train"], names["test"] = names["houses"]()
    exec(program, names)
    assert names["finished"].result["verdict"] == "pass"
    assert isinstance(names["finished"].model(), names["Net"])
