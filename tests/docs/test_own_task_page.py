"""The page on tasks of one's own: every program on it learns, in virtual time and in processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdfl

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "own_task.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```(?:python|yaml) project/(\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))


def run(folder: Path, scenario: str, *sets: str) -> dict[str, float]:
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    loaded = netdfl.load(folder / scenario, sets)
    result = netdfl.run(loaded, out=folder / "run", page=False).result
    assert result["verdict"] in ("pass", "done"), result["reasons"]
    return {name: course["last"] for name, course in result["metrics"].items()}


@pytest.mark.parametrize("world", ["simulated", "processes"])
def test_the_regression_meets_what_it_expects(world: str, tmp_path: Path) -> None:
    assert run(tmp_path, "house.yaml", f"world.kind={world}")["test_mae"] < 0.3


@pytest.mark.parametrize(
    ("kind", "figure", "least", "most"),
    [
        ("labels:Signs", "test_right", 0.7, 1.0),
        ("characters:Zen", "test_perplexity", 1.0, 35.0),
        ("squares:Squares", "test_iou", 0.3, 1.0),
    ],
)
def test_every_class_learns(kind: str, figure: str, least: float, most: float, tmp_path: Path) -> None:
    assert least <= run(tmp_path, "own.yaml", f"task.kind={kind}")[figure] <= most
