"""Where nodes are drawn, by what a scenario says of places; and what the page has of a task's own figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from netdfl.record.forms import GraphForm
from netdfl.record.run import Run, open_run
from netdfl.report.data import page_data
from netdfl.report.data.fleet import place_nodes
from netdfl.running.run import run
from netdfl.scenario.load import load, loads

REGRESSION = """
schema: netdfl/1
name: house
nodes: 4
rounds: 3
world: {kind: simulated, compute: 10ms}
task: {dataset: {name: "houses:houses"}, model: {name: "houses:Net"}, batch_size: 16}
algorithm: {name: dfedavg, lr: 0.05}
topology: ring
groups: {north: [0, 3], south: [1, 2]}
report:
  targets: [{metric: test_mae, at_most: 100}, {metric: test_mae, at_most: 0}]
  tags: [houses]
  places: [[60, 179], [-30, -170], null, [60, 170]]
"""
HOUSES = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def houses():
    x = torch.rand(64, 3, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x[:48], x[:48].sum(1)), TensorDataset(x[48:], x[48:].sum(1))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x).squeeze(1)
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that is judged by figures of its own, and says where its nodes are."""
    folder = tmp_path_factory.mktemp("house")
    (folder / "houses.py").write_text(HOUSES)
    (folder / "house.yaml").write_text(REGRESSION)
    return open_run(run(load(folder / "house.yaml"), out=folder / "run", page=False).path)


def placed(**said: object) -> tuple[NDArray[np.float64], str]:
    graph = GraphForm(num_nodes=6, edges=[[0, 1], [1, 2]]) | said
    return place_nodes(range(6), graph["edges"], graph)  # type: ignore[arg-type]


def test_places_on_the_earth_are_drawn_as_on_a_map(house: Run) -> None:
    at = dict(zip(("x", "y"), map(np.asarray, (page_data(house)["fleet"][axis] for axis in ("x", "y"))), strict=True))
    assert at["x"][3] < at["x"][0] < at["x"][1], "170, 179 and -170 degrees, over the date line"
    assert at["y"][0] == at["y"][3] < at["y"][1], "the north is above"
    assert at["x"][2] == pytest.approx((at["x"][1] + at["x"][3]) / 2, abs=0.01), "amid its neighbors"


def test_nodes_of_a_site_are_closer_to_each_other_than_to_those_of_another() -> None:
    for said in ({"sites": {"a": [0, 1, 2], "b": [3, 4, 5]}}, {"groups": {"a": [0, 1, 2], "b": [3, 4, 5]}}):
        at, words = placed(**said)
        far = np.linalg.norm(at[:, None] - at[None], axis=2)
        same = np.arange(6)[:, None] // 3 == np.arange(6)[None] // 3
        assert far[same].max() < far[~same].min()
        assert words.endswith("a, b.")
    assert placed(groups={"a": [0, 1]})[1] == "", "groups that leave nodes out are no sites"


def test_figures_of_a_task_of_ones_own_are_curves_and_colors_and_targets(house: Run) -> None:
    data = page_data(house)
    assert {"test_mae", "mean_local_mae"} <= data["curves"].keys()
    rows = house.rows("SELECT value FROM metrics WHERE name = 'test_mae' AND node IS NOT NULL ORDER BY node, round")
    assert data["by_node"]["test_mae"] == pytest.approx([value for (value,) in rows], rel=1e-3)
    means = house.rows("SELECT value FROM metrics WHERE name = 'mean_local_mae' ORDER BY round")
    assert data["spreads"]["test_mae"]["mean"] == pytest.approx([value for (value,) in means], rel=1e-3)
    assert "test rmse" in [name for name, *_ in data["head"]["numbers"]]
    assert ["test mae ≤ 100 reached", "test mae ≤ 0 reached"] == [name for name, *_ in data["head"]["numbers"][-2:]]
    first, second = house.result["targets"]
    assert (first["round"], second["round"], house.result["tags"]) == (0, None, ["houses"])


def test_the_accuracy_of_each_node_is_recorded_where_local_models_are_judged(tmp_path: Path) -> None:
    scenario = loads("""
schema: netdfl/1
name: small
nodes: 3
rounds: 2
world: simulated
task: {dataset: digits, model: mlp}
algorithm: {name: dfedavg, local_steps: 2}
topology: ring
evaluation: {local: 2}
""")
    found = open_run(run(scenario, out=tmp_path / "run", page=False).path)
    each = found.rows("SELECT round, node, value FROM metrics WHERE name = 'test_accuracy' AND node IS NOT NULL")
    assert sorted((round, node) for round, node, _ in each) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for round, mean in found.rows("SELECT round, value FROM metrics WHERE name = 'mean_local_accuracy'"):
        assert mean == pytest.approx(sum(value for at, _, value in each if at == round) / 2)


def test_writing_the_page_imports_no_matplotlib(house: Run) -> None:
    wanted = "import sys; from netdfl.report.html import write_report; write_report(sys.argv[1])"
    unwanted = "matplotlib", "networkx", "torch", "ruamel.yaml", "starlette"
    told = f"{wanted}; print(*sorted(set(sys.modules) & set({unwanted!r})))"
    assert subprocess.check_output([sys.executable, "-c", told, str(house.path)], text=True).split() == []
