"""A sweep over a task whose figures are its own: they are in its tables and figures, before the usual ones."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from netdfl.study.sweep import sweep
from tests.in_process import InProcess

CODE = """
import numpy as np
from torch import nn


def line():
    x = np.linspace(-1, 1, 60, dtype=np.float32)[:, None]
    return x, 2 * x


def net():
    return nn.Linear(1, 1)
"""
SCENARIO = """schema: netdfl/1
name: line
nodes: 3
rounds: 2
world: simulated
task: {dataset: {name: "mine_line:line"}, model: {name: "mine_line:net"}, metrics: [mae], batch_size: 8}
algorithm: {name: dfedavg, lr: 0.05}
topology: ring
"""


@pytest.mark.usefixtures("without_curves", "unsaved")
def test_a_figure_of_ones_own_is_in_the_table(tmp_path: Path) -> None:
    (tmp_path / "mine_line.py").write_text(CODE)
    (tmp_path / "line.yaml").write_text(SCENARIO)
    out, said = tmp_path / "out", io.StringIO()
    console = Console(file=said, width=100)
    vary = ["algorithm.lr=0.05,0.1"]
    assert sweep(tmp_path / "line.yaml", vary, out=out, seeds=2, console=console, make_runner=InProcess) == 0
    (folder,) = (each.parent for each in out.rglob("table.csv"))
    with (folder / "table.csv").open(encoding="utf-8") as lines:
        assert any("test_mae" in row.values() for row in csv.DictReader(lines))
    assert "test mae" in said.getvalue().replace("_", " ")
    assert "mae" in (folder / "table.tex").read_text()
    assert (folder / "figures" / "test_mae.png").exists()
