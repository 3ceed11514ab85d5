"""What is judged: the sum of x over the sum of w, and models z = x / w by themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from netdfl.compression.vector import vector
from netdfl.core.rng import Streams
from netdfl.host.judging import judge_average
from netdfl.host.models import ModelSnapshot, read_snapshot
from netdfl.host.task_setup import make_problem
from netdfl.host.training_problem import TrainingProblem
from netdfl.running.run import run
from netdfl.scenario.load import loads

PUSH_SUM = """
schema: netdfl/1
name: heavy-and-light
seed: 3
nodes: 5
rounds: 4
world: {kind: simulated}
task: {kind: consensus, dim: 10}
algorithm: osgp
topology: {kind: edge_list, directed: true, edges: [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [0, 2], [0, 3], [1, 0]]}
"""


def test_the_average_weighs_numerators_and_a_local_model_is_their_ratio() -> None:
    x = torch.tensor([[3.0, -1.0], [0.5, 4.0], [-2.0, 1.0]], dtype=torch.float64)
    w = [0.25, 1.5, 0.75]
    judged: list[Tensor] = []

    def judge(model: Tensor) -> dict[str, float]:
        judged.append(model)
        return {"test_accuracy": float(model[0])}

    def judge_local(node: int, model: Tensor) -> dict[str, float]:
        return judge(model) | ({"personal_accuracy": 0.25} if node == 1 else {})

    read = {i: (lambda i=i: ModelSnapshot(x[i], w[i])) for i in range(3)}
    figures = judge_average(read, judge, judge_local, 2, begun=4)
    average = x.sum(0) / sum(w)
    z = torch.stack([x[i] / w[i] for i in range(3)])
    assert float((average - z.mean(0)).norm()) > 1
    torch.testing.assert_close(torch.stack(judged), torch.stack([average, z[0], z[1]]))
    assert figures["test_accuracy"] == float(average[0])
    assert figures["mean_local_accuracy"] == pytest.approx((z[0, 0] + z[1, 0]) / 2)
    assert figures["mean_personal_accuracy"] == 0.25
    assert figures["consensus_distance"] == pytest.approx(float((z - average).square().sum(1).mean() ** 0.5))
    assert figures["weight_sum"] == pytest.approx(2.5 / 4)  # one of four has crashed


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("dim", [1, 2, 7, 600])
def test_short_models_are_judged_as_rows_with_the_same_bits(dim: int, dtype: str) -> None:
    """As `torch`-free vectors they are judged together, up to 4 KiB each; one by one where that is forbidden."""
    rng = np.random.default_rng(dim)
    models = [ModelSnapshot(vector(rng.standard_normal(dim), dtype), w) for w in (1.0, 0.3, 0.0, 1.7, 1.0)]
    read = {i: (lambda i=i: models[i]) for i in range(5)}

    def judge(x: Tensor) -> dict[str, float]:
        return {f"test_{i}": float(each) for i, each in enumerate(x)}

    def judged() -> dict[str, float]:
        return judge_average(read, judge, lambda node, x: judge(x), 2, begun=5)

    together = judged()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netdfl.host.judging.SHORT_BYTES", 0)
        assert judged() == together
    massless = {0: lambda: ModelSnapshot(models[0].x, 0.0)}
    assert judge_average(massless, judge, lambda node, x: judge(x), 2, begun=1) == {"weight_sum": 0.0}


def test_the_mean_is_kept_in_every_round_while_nodes_and_weights_are_far_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pure consensus by push-sum: the mean of z would be off by more than a tenth until nodes agree."""
    monkeypatch.setattr("netdfl.report.html.write_report", lambda path: path)
    finished = run(loads(PUSH_SUM, []), out=tmp_path / "run")
    figures = dict[str, list[float]]()
    for name, value in finished.run.rows("SELECT name, value FROM metrics WHERE node IS NULL ORDER BY round"):
        figures.setdefault(name, []).append(value)
    assert len(figures["error"]) == 4
    assert max(figures["error"]) < 1e-12
    assert min(figures["consensus_distance"]) > 0.1


SKEWED = """
schema: netdfl/1
name: personal
seed: 4
nodes: 4
rounds: 2
world: {kind: simulated}
task: {dataset: {name: digits, partition: {kind: dirichlet, alpha: 0.2}}, model: mlp, batch_size: 16}
algorithm: {name: dispfl, order: mix_first, lr: 0.1, local_steps: 20}
topology: ring
evaluation: {keep_models: true}
"""


def test_a_model_is_judged_by_what_its_own_node_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each label counts as often as in the node's own data: by hand, from the models that were kept."""
    monkeypatch.setattr("netdfl.report.html.write_report", lambda path: path)
    scenario = loads(SKEWED, [])
    finished = run(scenario, out=tmp_path / "run")
    problem = make_problem(scenario, Streams(scenario.seed))
    assert isinstance(problem, TrainingProblem)
    alone, personal = [], []
    for node in range(4):
        at = read_snapshot(tmp_path / "run" / "models" / f"{node:03d}.safetensors").x
        said = problem.model.bind(at, training=False)(problem.test.x).argmax(1).numpy()
        truth, own = problem.test.y.numpy(), problem.data.train_y[problem.parts[node]]
        alone.append((said == truth).mean())
        personal.append(sum((own == c).mean() * (said == truth)[truth == c].mean() for c in range(10)))
    found = finished.result["test_accuracy"]
    assert found["mean_local"] == pytest.approx(np.mean(alone))
    assert found["mean_personal"] == pytest.approx(np.mean(personal), abs=1e-12)
    assert found["mean_personal"] > found["mean_local"] + 0.1
