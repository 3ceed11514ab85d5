"""Models are trained in training mode and judged in evaluation mode; dropout draws from streams with names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.host.blueprint import Blueprint
from netdfl.host.judging import judge_files
from netdfl.running.run import resume, run
from netdfl.scenario.load import load
from netdfl.training.base import Received
from netdfl.training.classification import Classification, answers
from netdfl.training.data.examples import Samples
from netdfl.training.distill import SyntheticExamples, Tuning
from netdfl.training.flat import FlatModel
from netdfl.training.service import Service
from netdfl.training.sgd import LocalSgd
from netdfl.training.stacked_model import StackedModel

VIEW = View(2, 1, 4, (), (), 1.0, {}, {})
OWN = """
from torch import nn

def dropping(shape, num_classes, /):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, num_classes))
"""
SCENARIO = """
schema: netdfl/1
name: modes
seed: 5
nodes: 3
rounds: 3
world: simulated
task: {dataset: digits, model: "dropping:dropping", batch_size: 100}
algorithm: {name: dfedsam, lr: 0.1, local_steps: 2}
topology: ring
evaluation: {keep_models: true, local: all}
"""


class Tripled(nn.Module):
    """A linear model whose scores are three times as large in training."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x)
        return 3.0 * scores if self.training else scores


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 40), nn.ReLU(), nn.Dropout(0.5), nn.Linear(40, 3))


def task(make: Callable[[], nn.Module], num: int = 12) -> Classification:
    torch.manual_seed(0)
    model = FlatModel(make())
    samples = Samples(torch.randn(num, 5), torch.arange(num) % 3)
    return Classification(model, model.flat(), samples, node=2, streams=Streams(8), batch_size=num)


def scaled_loss(client: Classification, at: Tensor, scale: float) -> Tensor:
    linear = client.samples.x @ at[:15].view(3, 5).T + at[15:]
    return cross_entropy(scale * linear, client.samples.y)


def test_training_and_evaluation_have_their_modes_in_any_order() -> None:
    client = task(Tripled)
    at = client.initial().requires_grad_()
    (slope,) = torch.autograd.grad(scaled_loss(client, at, 3.0), at)
    at = at.detach()
    (gradient,) = client.data(0).steps(steps=1)
    for _ in range(2):
        assert answers(client.model, at, client.samples).loss == pytest.approx(float(scaled_loss(client, at, 1.0)))
        assert client.data(0).loss(at) == pytest.approx(float(scaled_loss(client, at, 1.0)))
        torch.testing.assert_close(gradient(at), slope)
    made = client.objective.loss(at, client.samples.x, client.samples.y)
    assert float(made) == pytest.approx(float(scaled_loss(client, at, 3.0)))


def test_stacked_gradients_are_those_of_training() -> None:
    client = task(Tripled)
    at, x, y = client.initial(), client.samples.x, client.samples.y
    answers(client.model, at, client.samples)
    stacked, slope, single = StackedModel(client.model), at.new_empty(1, len(at)), torch.empty_like(at)
    losses = stacked.slope(at[None], x[None], y[None], torch.full((1, len(y)), 1 / len(y)), slope)
    assert float(losses[0]) == pytest.approx(float(client.model.slope(at, x, y, single)))
    torch.testing.assert_close(slope[0], single)


def test_evaluation_drops_nothing_and_training_does() -> None:
    client = task(dropping)
    at = client.initial().requires_grad_()
    first, second, third = at[:200].view(40, 5), at[240:360].view(3, 40), at[360:]
    scores = (client.samples.x @ first.T + at[200:240]).relu() @ second.T + third
    loss = cross_entropy(scores, client.samples.y)
    (whole,), at, loss = torch.autograd.grad(loss, at), at.detach(), loss.detach()
    assert [answers(client.model, at, client.samples).loss for _ in range(3)] == [pytest.approx(float(loss))] * 3
    (gradient,) = client.data(0).steps(steps=1)
    assert float((gradient(at) - whole).norm()) > 0.1 * float(whole.norm())


def test_a_steps_masks_are_of_its_node_round_and_number_alone() -> None:
    def gradients(round: int, *, disturbed: bool) -> list[Tensor]:
        client, found = task(dropping, num=1), []
        for gradient in client.data(round).steps(steps=2):
            if disturbed:
                torch.rand(7)
                answers(client.model, client.initial(), client.samples)
            found += [gradient(client.initial()).clone(), gradient(client.initial()).clone()]
        return found

    one, again, other = (
        gradients(1, disturbed=False),
        gradients(1, disturbed=True),
        gradients(2, disturbed=False),
    )
    assert all(map(torch.equal, one, again))
    assert torch.equal(one[0], one[1])
    assert not torch.equal(one[0], one[2])
    assert not torch.equal(one[0], other[0])


def test_torchs_own_stream_is_left_alone() -> None:
    client = task(dropping)
    before = torch.get_rng_state()
    for gradient in client.data(0).steps(steps=2):
        gradient(client.initial())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("batching", ["exact", "auto"])
def test_the_service_trains_models_that_drop_as_they_would_by_themselves(batching: str) -> None:
    def local_round(client: Classification) -> Tensor:
        _, update = LocalSgd(lr=0.1, steps=2, rho=0.1).train(
            LocalSgd(lr=0.1).init(client.initial(), VIEW), client.initial(), Received(), 1.0, client.data(1), VIEW
        )
        return update.x

    expected = local_round(task(dropping))
    outcomes = Service("exact" if batching == "exact" else "auto").compute([lambda: local_round(task(dropping))] * 2)
    assert all(error is None and torch.equal(x, expected) for x, error in outcomes)


def test_training_on_made_examples_repeats() -> None:
    client = task(dropping)
    examples, tuning = SyntheticExamples(client.samples.x, client.samples.y), Tuning(steps=3, lr=0.01)
    first = tuning.tune(client.initial(), client.objective, examples, VIEW)
    torch.rand(3)
    assert torch.equal(first, tuning.tune(client.initial(), client.objective, examples, VIEW))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float], str]:
    folder = tmp_path_factory.mktemp("modes")
    (folder / "dropping.py").write_text(OWN)
    (folder / "modes.yaml").write_text(SCENARIO)
    done = run(load(folder / "modes.yaml", ["checkpoint.every=1"]), out=folder / "run", page=False)
    return done.path, done.result["test_accuracy"], done.result["event_log_hash"]


def test_a_runs_accuracy_is_that_of_evaluation_mode(finished: tuple[Path, dict[str, float], str]) -> None:
    path, accuracy, _ = finished
    blueprint = Blueprint.of(load(path.parent / "modes.yaml"))
    models = {node: path / "models" / f"{node:03d}.safetensors" for node in range(3)}
    average = torch.stack([load_file(file)["x"].double() for file in models.values()]).mean(0).float()
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10)).eval()
    nn.utils.vector_to_parameters(average, module.parameters())
    test = blueprint.problem.test  # type: ignore[attr-defined]
    by_hand = float((module(test.x).argmax(1) == test.y).float().mean())
    assert accuracy["average_model"]["last"] == pytest.approx(by_hand, abs=1e-6)  # type: ignore[index]
    first, again = (judge_files(blueprint, models) for _ in range(2))
    assert first == again
    assert first["test_accuracy"] == pytest.approx(by_hand, abs=1e-6)


def test_a_run_with_dropout_repeats_and_can_go_on(finished: tuple[Path, dict[str, float], str], tmp_path: Path) -> None:
    path, accuracy, log = finished
    torch.rand(11)
    again = run(load(path.parent / "modes.yaml"), out=tmp_path / "again", page=False).result
    assert (again["test_accuracy"], again["event_log_hash"]) == (accuracy, log)
    (path / "result.json").unlink()
    for late in (path / "checkpoints").glob("*-000002.safetensors"):
        late.unlink()
    assert resume(path, page=False).result["event_log_hash"] == log
