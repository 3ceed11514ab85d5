"""Models, their statistics and their random streams, and the ways to compute them, by hand and at the last bound."""

from __future__ import annotations

import random
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from netdfl.core.errors import TrainingError
from netdfl.core.rng import Streams
from netdfl.training.classification import Classification, answers, outcome
from netdfl.training.data.examples import Samples
from netdfl.training.drawing import EVERY, Source, aside, seeded
from netdfl.training.flat import FlatModel
from netdfl.training.models.buffers import Buffers, estimate, means
from netdfl.training.models.build import load_initial
from netdfl.training.models.catalog import MODELS, from_torchvision
from netdfl.training.models.copying import check_memory, copied
from netdfl.training.models.layers import ChannelsLast, HalvingAverage, PooledConv, ResidualBlock
from netdfl.training.models.layers import resnet18 as residual
from netdfl.training.perceptron import Perceptron
from netdfl.training.tasks.task import as_number

X, Y = torch.linspace(-1, 1, 36).reshape(12, 3), torch.arange(12) % 2
CPU = torch.device("cpu")


def perceptron(classes: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, classes))


def normed(drop: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Dropout(drop))


def with_statistics(module: nn.Module, **more: Any) -> FlatModel:
    return FlatModel(module, buffers=means(module, X), **more)


def task(model: FlatModel, samples: Any = None, **more: Any) -> Classification:
    given = Samples(X, Y) if samples is None else samples
    return Classification(
        model, model.flat(), given, **({"node": 3, "streams": Streams(1), "batch_size": 4, "num_labels": 2} | more)
    )


# judging


@pytest.mark.parametrize("drop", [0.0, 0.9])
def test_models_are_judged_in_evaluation_mode(drop: float) -> None:
    module = normed(drop)
    model = with_statistics(module, policy="average")
    at = model.flat()
    with torch.no_grad():
        expected = nn.functional.cross_entropy(copied(module).eval()(X), Y)
    assert outcome(model, at, Samples(X, Y), 5).loss == pytest.approx(float(expected), rel=1e-5)
    assert answers(model, at, Samples(X, Y), 5).loss == pytest.approx(float(expected), rel=1e-5)
    assert not model.module.training
    assert task(model).data(0).loss(at) == pytest.approx(float(expected), rel=1e-5)
    for judge in (outcome, answers):
        with pytest.raises(TrainingError, match="can't evaluate on an empty set"):
            judge(model, at, Samples(X[:0], Y[:0]))  # type: ignore[operator]


def test_a_node_with_statistics_of_its_own_is_judged_by_these() -> None:
    model = with_statistics(normed(), policy="local")
    made = task(model)
    data: Any = made.data(0)
    data.begin(model.flat(), None)
    list(gradient(model.flat()) for gradient in data.steps(epochs=2))
    x, kept = data.ended(model.flat(), 1.0)
    whole, others = made.whole(x, kept, 1.0)
    assert len(whole) == model.dim + model.buffers.size
    assert torch.equal(made.whole(x, kept, 0.5)[0][model.dim :], 0.5 * whole[model.dim :])
    assert not others
    assert made.data(1).loss(x) == outcome(model, whole, made.samples).loss
    assert made.data(1).loss(x) != outcome(model, torch.cat([x, model.buffers.start]), made.samples).loss


@pytest.mark.parametrize(
    ("y", "known", "shown"),
    [
        (torch.arange(12) % 3, 0, 3),
        (torch.arange(12) % 3, 7, 7),
        ((torch.arange(12), torch.arange(12)), 0, 0),
        (torch.arange(0), 0, 0),
    ],
)
def test_as_many_labels_as_are_known_elsewhere_or_shown(y: Any, known: int, shown: int) -> None:
    size = len(y) if isinstance(y, Tensor) else 12
    assert task(FlatModel(perceptron()), Samples(X[:size], y), num_labels=known).objective.num_labels == shown


@pytest.mark.parametrize(
    ("found", "number"),
    [(torch.tensor(2.5), 2.5), (torch.tensor([[3]]), 3.0), (4, 4.0), (0.5, 0.5)]
    + [(wrong, None) for wrong in (True, "1", None, [1.0], torch.ones(2), torch.ones(0), np.ones(1))],
)
def test_a_figure_is_one_number(found: Any, number: float | None) -> None:
    if number is None:
        with pytest.raises(TypeError, match="one number, as float or as a tensor"):
            as_number(found)
    else:
        assert as_number(found) == number


# statistics


def test_statistics_are_taken_anew_whatever_was_counted_before_and_momenta_stay() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3, momentum=0.3), nn.Dropout(0.5))
    for _ in range(5):
        module.train()(X + 9)
    estimate(module, X.split(4))
    layer: Any = module[0]
    torch.testing.assert_close(layer.running_mean, torch.stack([part.mean(0) for part in X.split(4)]).mean(0))
    torch.testing.assert_close(layer.running_var, torch.stack([part.var(0) for part in X.split(4)]).mean(0))
    assert (layer.momentum, module.training, layer.training) == (0.3, False, False)


def test_statistics_are_one_vector_in_the_order_of_their_names() -> None:
    module = nn.BatchNorm1d(2)
    buffers = Buffers(module, ["running_var", "running_mean", "num_batches_tracked"])
    buffers.write(module, torch.tensor([-1.0, 2.0, -3.0, 4.0, 6.6]))
    assert module.running_var.tolist() == [0.0, 2.0]  # type: ignore[union-attr]
    assert module.running_mean.tolist() == [-3.0, 4.0]  # type: ignore[union-attr]
    assert int(module.num_batches_tracked) == 7  # type: ignore[arg-type]
    read = buffers.read(module)
    assert (read.tolist(), read.dtype) == ([0.0, 2.0, -3.0, 4.0, 7.0], torch.float32)
    named = buffers.named(read)
    assert {name: value.tolist() for name, value in named.items()}["running_mean"] == [-3.0, 4.0]
    assert torch.equal(buffers.joined(named), read)
    assert buffers.joined({"running_var": read[:2]}) is buffers.start
    assert Buffers(module.double(), ["running_mean"]).read(module).dtype == torch.float64
    assert Buffers(module, []).size == Buffers(module, []).start.numel() == 0


# what is drawn


def drawn() -> dict[Source, float]:
    return {"torch": float(torch.rand(1)), "numpy": np.random.rand(), "python": random.random()}


def test_each_source_draws_as_the_seed_says_and_goes_on_where_it_was() -> None:
    begun = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    with seeded(7, CPU) as which:
        assert which() == frozenset()
        first = drawn()
        assert which() == EVERY
    with seeded(7, CPU) as which:
        assert drawn() == first
    with seeded(8, CPU):
        assert all(a != b for a, b in zip(drawn().values(), first.values(), strict=True))
    for source in EVERY:
        with seeded(7, CPU, frozenset([source])) as which:
            found = drawn()
            assert which() == {source}
        assert {name for name in EVERY if found[name] == first[name]} == {source}
        with seeded(7, CPU, frozenset([source])) as which:
            assert which() == frozenset()
    with seeded(7 + 2**32, CPU, frozenset(["numpy"])):
        assert np.random.rand() == first["numpy"]
    np.random.set_state(("MT19937", np.array(begun[1], np.uint32), 624))
    random.setstate(begun[2])
    torch.set_rng_state(begun[0])
    kept = drawn()
    np.random.set_state(("MT19937", np.array(begun[1], np.uint32), 624))
    random.setstate(begun[2])
    torch.set_rng_state(begun[0])
    with aside():
        drawn()
    assert drawn() == kept


# weights of a file


class Boom:
    """What would run code as it is loaded."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("boom"),))


def test_a_file_that_would_run_code_is_refused_and_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(Boom(), tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=r"holds no weights \(UnpicklingError: Weights only load failed"):
        load_initial(nn.Linear(1, 1), tmp_path / "weights.pt")
    assert not (tmp_path / "boom").exists()


# what a vector is of


def test_memory_that_two_tensors_share_is_refused_and_memory_side_by_side_is_not() -> None:
    whole = torch.zeros(6)
    module = nn.Module()
    module.one, module.two = nn.Parameter(whole[:3]), nn.Parameter(whole[3:])
    check_memory(module)
    module.two = nn.Parameter(whole[2:])
    with pytest.raises(ValueError, match="'one' and 'two' of the model share memory and are two tensors"):
        check_memory(module)
    module.two = nn.Parameter(torch.zeros(3))
    module.near = whole[2:4]
    with pytest.raises(ValueError, match="'one' and 'near' of the model share memory"):
        check_memory(module)
    check_memory(module, but=["near"])
    module.near = whole[3:]
    check_memory(module)
    module.across = whole[1::2]
    with pytest.raises(ValueError, match="'one' and 'across'"):
        check_memory(module)


# models


@pytest.mark.parametrize(("height", "width"), [(2, 2), (5, 7), (16, 4)])
def test_layers_give_half_of_the_height_and_of_the_width(height: int, width: int) -> None:
    x = torch.randn(2, 3, height, width)
    torch.testing.assert_close(HalvingAverage()(x), nn.functional.avg_pool2d(x, 2))
    for bias in (True, False):
        layer = PooledConv(3, 4, 1, bias=bias)
        plain = nn.functional.max_pool2d(nn.functional.conv2d(x, layer.weight, layer.bias), 2).relu()
        torch.testing.assert_close(layer(x), plain)
    seen = list[Tensor]()

    class Look(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x

    assert torch.equal(ChannelsLast(Look())(x), x)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(4, 4, 1), (4, 8, 1), (4, 4, 2), (4, 8, 2)])
def test_a_residual_block_has_a_projection_where_shapes_differ(inputs: int, outputs: int, stride: int) -> None:
    for groups in (2, None):
        block = ResidualBlock(inputs, outputs, stride, groups)
        x = torch.randn(3, inputs, 8, 8)
        assert block(x).shape == (3, outputs, 8 // stride, 8 // stride)
        assert isinstance(block.around, nn.Identity) is (inputs == outputs and stride == 1)
        torch.testing.assert_close(block(x), (block.body(x) + block.around(x)).relu())
        assert not any(layer.bias is not None for layer in block.modules() if isinstance(layer, nn.Conv2d))


@pytest.mark.parametrize("small", [True, False])
def test_eighteen_layers_get_wider_and_smaller_by_stages(small: bool) -> None:
    made = residual(3, 5, small_stem=small, groups=2, width=4)
    x, sides, widths = torch.randn(1, 3, 32, 32), list[int](), list[int]()
    for layer in made:
        x = layer(x)
        if isinstance(layer, ResidualBlock):
            sides.append(x.shape[-1])
            widths.append(x.shape[1])
    first = 32 if small else 8
    assert sides == [first, first, first // 2, first // 2, first // 4, first // 4, first // 8, first // 8]
    assert widths == [4, 4, 8, 8, 16, 16, 32, 32]
    assert x.shape == (1, 5)
    assert sum(isinstance(part, nn.Conv2d) for part in made.modules()) == 17 + 3
    assert isinstance(made[3], nn.MaxPool2d) is not small
    assert small or (made[3].kernel_size, made[3].stride, made[3].padding) == (3, 2, 1)


@pytest.mark.parametrize(("name", "least"), [("cifar_cnn", 16), ("convnet", 16), ("vgg11_gn", 32), ("resnet18_gn", 8)])
def test_pictures_may_be_as_small_as_a_model_says(name: str, least: int) -> None:
    params: dict[str, Any] = {"convnet": {"width": 4}}.get(name, {})
    made = MODELS[name]((1, least, least), 3, **params)
    assert made.eval()(torch.zeros(1, 1, least, least)).shape == (1, 3)
    for shape in ((1, least - 1, least), (1, least, least - 1), (least, least), (1, 1, least, least)):
        with pytest.raises(ValueError, match=f"{name} takes pictures .* of {least}x{least} pixels or more"):
            MODELS[name](shape, 3, **params)
    if name.endswith("_gn"):
        for groups in (3, 128):
            with pytest.raises(ValueError, match=f"can't put 64 channels into {groups} groups"):
                MODELS[name]((1, least, least), 3, groups=groups)


def test_a_model_of_torchvisions_takes_pictures_of_three_channels_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    names, asked = ["alexnet", "resnet18", "resnet34", "resnet50", "swin_t", "vgg11"], list[Any]()
    models: Any = types.ModuleType("torchvision.models")
    models.list_models = lambda module: names if module is models else []
    models.get_model = lambda name, **more: asked.append((name, more)) or nn.Identity()
    package: Any = types.ModuleType("torchvision")
    package.models = models
    monkeypatch.setitem(sys.modules, "torchvision", package)
    build = from_torchvision("resnet18")
    assert isinstance(build((3, 1, 1), 7), nn.Identity)
    assert asked == [("resnet18", {"weights": None, "num_classes": 7})]
    for shape, said in (((1, 9, 9), "pictures of 3 channels"), ((4, 9, 9), "3 channels"), ((3, 9), "1x1 pixels")):
        with pytest.raises(ValueError, match=f"resnet18 takes pictures .*{said}|{said}"):
            build(shape, 7)
    with pytest.raises(LookupError, match=r"torchvision has no model 'resnet1', try resnet18, resnet50, resnet34$"):
        from_torchvision("resnet1")
    with pytest.raises(LookupError, match=r"no model 'zzz', try alexnet, resnet18, resnet34, resnet50, swin_t$"):
        from_torchvision("zzz")


def test_a_perceptron_that_has_the_formula_knows_its_widths() -> None:
    found = Perceptron.of(perceptron())
    assert found is not None
    assert found.shapes == [(4, 3), (2, 4)]
    for no in (
        nn.Sequential(nn.Linear(3, 4), nn.ReLU()),
        nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.ReLU(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)),
        nn.Sequential(nn.Flatten(2), nn.Linear(3, 4)),
        nn.Sequential(nn.Linear(3, 4, bias=False)),
        nn.Sequential(nn.Flatten()),
    ):
        assert Perceptron.of(no) is None
