"""Curvature equals that of the dense Hessian, landscapes pass through the model, gaps are those of the record."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

import netdfl
from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError
from netdfl.measure.command import Settings, measure
from netdfl.measure.curvature import hutchinson, lanczos
from netdfl.measure.landscape import direction, line, plane
from netdfl.measure.surface import LossSurface
from netdfl.report.html import render
from netdfl.running.models import TrainedRun, open_run

SCENARIO = {
    "schema": "netdfl/1",
    "name": "measured",
    "nodes": 3,
    "rounds": 4,
    "world": "simulated",
    "task": {"dataset": "digits", "model": {"name": "mlp", "hidden": [4]}, "batch_size": 32},
    "algorithm": {"name": "dfedavg", "lr": 0.1, "local_epochs": 2},
    "topology": "full",
}
SAMPLES = 150


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    path = tmp_path_factory.mktemp("measured") / "run"
    netdfl.run(SCENARIO, out=path, page=False)
    return open_run(path)


@pytest.fixture
def surface(run: TrainedRun) -> LossSurface:
    return LossSurface(run.model(), run.problem, run.problem.trained.only(places(run)), batch=64)


def places(run: TrainedRun) -> NDArray[np.int64]:
    return np.linspace(0, len(run.problem.trained) - 1, SAMPLES).astype(np.int64)


def dense_hessian(run: TrainedRun) -> Tensor:
    """The Hessian of the average model's loss, entry by entry."""
    module = run.model().double()
    names, shapes = zip(*((name, p.shape) for name, p in module.named_parameters()), strict=True)
    x, y = run.problem.trained.only(places(run)).take(torch.arange(SAMPLES))

    def loss(at: Tensor) -> Tensor:
        pieces = at.split([shape.numel() for shape in shapes])
        placed = {name: piece.view(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)}
        return cross_entropy(functional_call(module, placed, (x.double(),)), y)  # type: ignore[union-attr]

    at = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    return hessian(loss, at)  # type: ignore[no-any-return]


def test_eigenvalues_and_trace_are_those_of_the_dense_hessian_within_one_percent(run: TrainedRun) -> None:
    path = measure(run, "sharpness", Settings(samples=SAMPLES, local=1, probes=60), lambda line: None)
    found = json.loads(path.read_text())["models"]
    matrix = dense_hessian(run)
    right = torch.linalg.eigvalsh(matrix)
    assert found["average"]["eigenvalues"] == pytest.approx(right.flip(0)[:5].tolist(), rel=0.01)
    assert found["average"]["trace"] == pytest.approx(float(matrix.trace()), rel=0.01)
    assert found["average"]["smallest"] >= float(right[0]) - 1e-5
    assert list(found) == ["average", "node 0"]
    assert found["node 0"]["eigenvalues"] != found["average"]["eigenvalues"]


def test_a_product_with_the_hessian_is_the_change_of_the_gradient(
    surface: LossSurface, monkeypatch: pytest.MonkeyPatch
) -> None:
    surface.module.double()
    batches = [(x.double(), y, share) for x, y, share in surface.batches()]  # type: ignore[union-attr]
    monkeypatch.setattr(surface, "batches", lambda: batches)
    way = torch.randn(surface.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    at, step = surface.at, 1e-5
    with surface.moved_to(at + step * way):
        ahead = surface.gradient()
    with surface.moved_to(at - step * way):
        behind = surface.gradient()
    torch.testing.assert_close(surface.hessian_times(way), (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-8)
    assert torch.equal(surface.at, at)


@pytest.mark.parametrize("count", [1, 4])
def test_lanczos_finds_the_largest_eigenvalues_of_a_known_matrix_and_its_errors_bound_them(count: int) -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.cat([torch.tensor([-3.0, 9, 7, 6.5, 4]), torch.linspace(-1, 1, 195)]).double()
    q, _ = torch.linalg.qr(torch.randn(200, 200, dtype=torch.float64, generator=generator))
    matrix = q @ torch.diag(values) @ q.T
    found = lanczos(lambda v: matrix @ v, 200, count=count, steps=100, generator=generator)
    assert found.steps < 100
    for value, error, right in zip(found.largest, found.errors, (9, 7, 6.5, 4), strict=False):
        assert abs(value - right) <= error + 1e-9
        assert error <= 1e-3 * right
    torch.testing.assert_close(found.basis.T @ found.basis, torch.eye(found.steps, dtype=torch.float64))
    trace = hutchinson(lambda v: matrix @ v, found, probes=400, generator=generator)
    assert abs(trace.value - float(values.sum())) < 4.5 * trace.error  # about 1 in 150,000


def test_all_steps_give_the_whole_spectrum_and_the_exact_trace() -> None:
    matrix = torch.diag(torch.arange(1, 8).double())
    found = lanczos(lambda v: matrix @ v, 7, count=7, steps=50, generator=torch.Generator().manual_seed(0))
    assert found.largest == pytest.approx([7, 6, 5, 4, 3, 2, 1])
    assert hutchinson(lambda v: matrix @ v, found, probes=3, generator=torch.Generator()) == pytest.approx((28, 0, 0))


def test_a_flat_loss_has_no_curvature() -> None:
    found = lanczos(torch.zeros_like, 9, count=2, steps=9, generator=torch.Generator().manual_seed(0))
    assert found.largest == [0]
    assert found.steps == 1


def test_each_filter_of_a_direction_has_the_norm_of_the_models_and_biases_stay(surface: LossSurface) -> None:
    way = direction(surface, torch.Generator().manual_seed(2))
    for filters, own, p in zip(surface.filters(way), surface.filters(surface.at), surface.parameters, strict=True):
        if p.ndim > 1:
            torch.testing.assert_close(filters.norm(dim=1), own.norm(dim=1))
        else:
            assert not filters.any()


def test_a_kernel_of_a_convolution_is_a_filter(run: TrainedRun) -> None:
    net = LossSurface(nn.Conv2d(2, 3, 2), run.problem, run.problem.trained)
    assert [tuple(each.shape) for each in net.filters(net.at)] == [(3, 8), (1, 3)]


def test_landscapes_pass_through_the_model_and_leave_it_as_it_was(surface: LossSurface) -> None:
    before, here = surface.at, surface.value(surface.at)
    ways = [direction(surface, torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    places = [-1.0, 0.0, 1.0]
    along = line(surface, ways[0], places)
    square = plane(surface, (ways[0], ways[1]), places)
    assert along[1] == square[1][1] == here
    assert square[1] == along
    assert [row[1] for row in square] == line(surface, ways[1], places)
    assert max(along) > here
    assert torch.equal(surface.at, before)


def test_the_gap_of_the_average_is_what_the_run_recorded(run: TrainedRun) -> None:
    found = json.loads(measure(run, "gap", Settings(local=2), lambda line: None).read_text())["models"]
    assert list(found) == ["average", "node 0", "node 2"]
    average = found["average"]
    assert average["test_accuracy"] == run.result["test_accuracy"]["average_model"]["last"]
    assert average["gap_accuracy"] == pytest.approx(average["train_accuracy"] - average["test_accuracy"])
    assert average["gap_loss"] == pytest.approx(average["train_loss"] - average["test_loss"])


def test_the_report_shows_what_was_measured(run: TrainedRun) -> None:
    assert "<h2>Landscape of the loss</h2>" not in render(run)
    options = ["--samples", "40", "--local", "1", "--points", "5", "--grid", "3"]
    for what in ("sharpness", "landscape", "gap"):
        done = CliRunner().invoke(make_app(), ["measure", str(run.path), what, *options])
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("average: ")
    page = render(open_run(run.path))
    for name in ("landscape_lines", "landscape_planes"):
        data = (run.path / "measures" / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
        assert f'src="data:image/png;base64,{base64.b64encode(data).decode()}"' in page
    assert "<h2>Sharpness</h2>" in page
    gap = json.loads((run.path / "measures" / "gap.json").read_text())["models"]["average"]
    assert "<h2>Gap between training and test</h2>" in page
    assert f"<td>{100 * gap['train_accuracy']:.1f}%</td>" in page
    assert f"<td>{100 * gap['gap_accuracy']:+.1f} points</td>" in page


def test_eigenvalues_that_are_not_well_known_have_the_bound_on_their_error(
    run: TrainedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdfl.measure.command.MOST_STEPS", 6)
    said: list[str] = []
    found = json.loads(measure(run, "sharpness", Settings(samples=40, local=0, probes=2), said.append).read_text())
    average, page = found["models"]["average"], render(open_run(run.path))
    known = [error <= 1e-3 * value for value, error in zip(average["eigenvalues"], average["errors"], strict=True)]
    assert not all(known)
    told = said[0].partition("eigenvalues ")[2].partition("; trace")[0].split(", ")
    assert [" ± " not in each for each in told] == known
    for value, error, well in zip(average["eigenvalues"], average["errors"], known, strict=True):
        assert well or f"{value:.3g} ± {error:.2g}" in page


def test_the_number_of_samples_is_that_of_those_taken(run: TrainedRun) -> None:
    every = len(run.problem.trained)
    for what, asked, taken in (("sharpness", 40, 40), ("sharpness", 10**6, every), ("gap", 40, every)):
        path = measure(run, what, Settings(samples=asked, local=0, count=1, probes=2), lambda line: None)
        assert json.loads(path.read_text())["samples"] == taken


def test_what_can_not_be_measured_is_refused(run: TrainedRun, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no measurement 'beauty'; expected one of sharpness, landscape, gap"):
        measure(run, "beauty", Settings(), print)
    toy = {**SCENARIO, "task": {"kind": "consensus", "dim": 2}, "algorithm": "dpsgd"}
    netdfl.run(toy, out=tmp_path / "toy", page=False)
    with pytest.raises(InputError, match="trains no model"):
        measure(open_run(tmp_path / "toy"), "gap", Settings(), print)


def test_damaged_measurements_and_strange_pictures_are_left_out(run: TrainedRun, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    folder = copy / "measures"
    folder.mkdir(exist_ok=True)
    (folder / "sharpness.json").write_text('{"models": {"average": 3}}')
    (folder / "landscape.json").write_text("{}")
    (folder / "landscape_lines.png").write_bytes(b"<script>")
    page = render(open_run(copy))
    assert "<h2>Sharpness</h2>" not in page
    assert base64.b64encode(b"<script>").decode() not in page
