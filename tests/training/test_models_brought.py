"""Models that people bring: what does not fit is a sentence, and weights to start from are those of the file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from netdfl.core.errors import DatasetError, InputError
from netdfl.core.rng import Streams
from netdfl.training.data.dataset import Dataset
from netdfl.training.data.own import Datasets
from netdfl.training.flat import FlatModel
from netdfl.training.models.build import load_initial, seeded_module, settle
from netdfl.training.models.copying import plain_name, uncompiled
from netdfl.training.models.layers import ChannelsLast, HalvingAverage, PooledConv
from netdfl.training.tasks.recipe import Recipe, made, one_form, refusal

X = torch.linspace(-1, 1, 12).reshape(4, 3)
SETTINGS = SimpleNamespace(initial=None, buffers="average")


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


# building


def test_the_seed_alone_makes_the_module_and_no_stream_moves() -> None:
    before = torch.get_rng_state()
    one, again, other = (seeded_module(net, seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one[0].weight, again[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)
    with pytest.raises(ValueError, match=r"the model function returned dict: return a torch\.nn\.Module"):
        seeded_module(dict, 0)  # type: ignore[arg-type]


def test_trying_a_module_leaves_it_as_it_was_but_for_lazy_layers_which_take_their_shapes() -> None:
    class Counts(nn.Linear):
        seen = 0

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.seen + 1
            return super().forward(x.add_(1))

    module, x = Counts(3, 2), X.clone()
    outputs = settle(module, x, 0)
    assert torch.equal(outputs, nn.functional.linear(X + 1, module.weight, module.bias))
    assert module.seen == 0
    assert torch.equal(x, X), "what it writes to is a copy"
    lazy = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d())
    assert settle(lazy, X, 0).shape == (4, 5)
    assert lazy[0].weight.shape == (5, 3)


class Mistaken(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return self.nothing(x)  # type: ignore[no-any-return, operator]


def frozen() -> nn.Module:
    return nn.Linear(3, 2).requires_grad_(False)


def complex_numbers() -> nn.Module:
    return nn.Linear(3, 2, dtype=torch.complex64)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: nn.Linear(5, 2),
            r"does not take the data, inputs of float32 \(4, 3\): RuntimeError.*let its first layer",
        ),
        (lambda: Mistaken(3, 2), r"the model raised AttributeError: .*nothing.*\(.*test_models_brought.py:\d+\)"),
        (frozen, "has no parameter that is trained: leave requires_grad on for one at least"),
        (complex_numbers, "trains 'weight', of complex numbers: keep real and imaginary part as parameters"),
    ],
)
def test_a_module_that_can_not_be_trained_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settle(make(), X, 0)


# weights to start from


def test_weights_of_a_file_are_the_modules_whoever_wrote_it(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    theirs, buffered = net(), nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    torch.save(theirs.state_dict(), tmp_path / "a.pt")
    save_file(theirs.state_dict(), tmp_path / "a.safetensors")
    torch.save(
        {f"0._orig_mod.{name[2:]}": v for name, v in theirs.state_dict().items() if name[0] == "0"}, tmp_path / "c"
    )
    for name in ("a.pt", "a.safetensors"):
        ours = net()
        load_initial(ours, tmp_path / name)
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    alone = nn.Sequential(nn.Linear(3, 4))
    load_initial(alone, tmp_path / "c")
    assert torch.equal(alone[0].weight, theirs[0].weight), "compiled parts have their author's names"
    buffered[1].running_mean.fill_(3)  # type: ignore[union-attr, operator]
    torch.save(buffered.state_dict(), tmp_path / "b.pt")
    found = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    load_initial(found, tmp_path / "b.pt")
    assert torch.equal(found[1].running_mean, torch.full((2,), 3.0))  # type: ignore[arg-type]


def test_of_tied_weights_one_name_in_the_file_is_enough(tmp_path: Path) -> None:
    def tied() -> nn.Sequential:
        module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        module[1].weight = module[0].weight
        return module

    theirs = tied()
    state = {name: value for name, value in theirs.state_dict().items() if name != "1.weight"}
    torch.save(state, tmp_path / "t.pt")
    ours = tied()
    load_initial(ours, tmp_path / "t.pt")
    assert torch.equal(ours[1].weight, theirs[0].weight)
    torch.save({name: value for name, value in state.items() if name != "0.weight"}, tmp_path / "u.pt")
    with pytest.raises(ValueError, match=r"it lacks '0\.weight'"):
        load_initial(tied(), tmp_path / "u.pt")


def test_a_file_of_another_model_is_refused_with_what_does_not_fit(tmp_path: Path) -> None:
    state = net().state_dict()

    def written(changed: dict[str, Tensor]) -> Path:
        torch.save(changed, tmp_path / "w.pt")
        return tmp_path / "w.pt"

    def left(*names: str) -> dict[str, Tensor]:
        return {name: value for name, value in state.items() if name not in names}

    more = {"more": torch.ones(1)}
    for changed, said in [
        (left("0.bias"), "it lacks '0.bias'$"),
        (left("0.bias", "2.bias"), r"it lacks '0.bias' \(and 1 more do not fit\)"),
        ({**state, **more}, "it has 'more', which the model has not$"),
        ({**left("0.bias"), **more}, r"it lacks '0.bias' \(and 1 more do not fit\)"),
        (
            {**state, "0.bias": torch.ones(5)},
            r"'0.bias' has shape \(5,\), and the model's has \(4,\)",
        ),
    ]:
        with pytest.raises(ValueError, match=f"w.pt is of another model: {said}"):
            load_initial(net(), written(changed))
    (tmp_path / "w.safetensors").write_text("none")
    (tmp_path / "bad.pt").write_bytes(b"none")
    for name in ("w.safetensors", "bad.pt", "gone.pt"):
        with pytest.raises(ValueError, match=rf"{name} holds no weights \(\w+: .*\): give a .safetensors file"):
            load_initial(net(), tmp_path / name)


class Compiled(nn.Module):
    """As `torch.compile` wraps a module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self._orig_mod = inner


def test_what_compiling_put_around_parts_comes_off_again() -> None:
    inner, whole = nn.Linear(3, 2), net()
    module = nn.Sequential(Compiled(inner), nn.Sequential(nn.Tanh(), Compiled(whole)))
    found = uncompiled(Compiled(module))
    assert found is module
    assert found[0] is inner  # type: ignore[index]
    assert found[1][1] is whole  # type: ignore[index]
    assert not any("_orig_mod" in name for name in found.state_dict())
    assert plain_name("0._orig_mod.1._orig_mod.weight") == "0.1.weight"
    assert uncompiled(whole) is whole


# what a task is made of


def recipe(model: Any, loss: Any = None, metrics: Any = None) -> Recipe:
    return Recipe(Datasets(train=(X, X)), lambda shape, classes: model, lambda y: loss, lambda y: metrics)


def shared_of(y: Any, **more: Any) -> Any:
    return one_form(
        Datasets(train=(X, y), test=(X, y)) if not more else Datasets(train=(X, y), **more), 0.2, Streams(1)
    )


WHOLE = np.array([0, 1, 1, 0])


@pytest.mark.parametrize(
    ("model", "loss", "said"),
    [
        (
            nn.Linear(3, 3),
            None,
            r"outputs of shape \(2, 3\) for 2 inputs and 2 classes, expected \(2, 2\): let its last",
        ),
        (nn.Flatten(0), None, "no parameter that is trained"),
        (
            nn.Linear(3, 2),
            lambda out, y: out,
            r"the loss gives float32 \(2, 2\): let it give one number, the mean over",
        ),
        (nn.Linear(3, 2), lambda out, y: 1.0, "the loss gives float: let it give one number"),
        (
            nn.Linear(3, 2),
            lambda out, y: out @ torch.ones(7),
            "the loss can't be taken of what the model gives: RuntimeError",
        ),
    ],
)
def test_a_model_and_a_loss_that_do_not_fit_are_refused(model: Any, loss: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made(recipe(model, loss), shared_of(WHOLE), SETTINGS, 0)


def test_targets_below_0_are_refused_where_they_are_classes() -> None:
    with pytest.raises(DatasetError, match="the dataset has a target below 0: number the classes from 0 on"):
        made(recipe(nn.Linear(3, 2)), shared_of(WHOLE - 1), SETTINGS, 0)
    with pytest.raises(DatasetError, match="the test set has a target below 0: number its classes from 0 on"):
        made(recipe(nn.Linear(3, 2)), shared_of(WHOLE, test=(X, WHOLE - 1)), SETTINGS, 0)
    model, metrics = made(recipe(nn.Linear(3, 2), nn.functional.mse_loss), shared_of(X[:, :2]), SETTINGS, 0)
    assert (model.dim, metrics) == (8, None)
    assert not model.uses_cross_entropy


def test_sentences_of_losses_and_figures_are_passed_on_and_errors_of_own_figures_left_for_when_they_are_judged() -> (
    None
):
    def raising(error: Exception) -> Any:
        def raises(outputs: Any, targets: Any) -> Any:
            raise error

        return raises

    def pair(x: Tensor) -> Any:
        return (x, None)

    class Two(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return pair(super().forward(x))

    mean = lambda out, y: out[0].mean()  # noqa: E731
    for error in (ValueError("the model gives two"), InputError("no")):
        with pytest.raises(type(error), match=str(error)):
            made(recipe(Two(3, 2), raising(error)), shared_of(WHOLE), SETTINGS, 0)
    with pytest.raises(ValueError, match="the model gives two"):
        made(recipe(Two(3, 2), mean, raising(ValueError("the model gives two"))), shared_of(WHOLE), SETTINGS, 0)
    for error in (ValueError("of another kind"), KeyError("x")):
        made(recipe(Two(3, 2), mean, raising(error)), shared_of(WHOLE), SETTINGS, 0)


def test_it_is_known_why_a_minibatch_can_not_be_trained_on() -> None:
    model = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    assert refusal(model, X, torch.from_numpy(WHOLE)) is None
    assert "Expected more than 1 value per channel" in str(refusal(model, X[:1], torch.zeros(1, dtype=torch.long)))
    assert model.module.training, "it is as it was"


def test_bytes_and_numbers_of_a_dataset_are_looked_through_for_what_is_not_finite() -> None:
    def found(x: np.ndarray) -> list[tuple[str, str]]:
        data = Dataset(x, np.zeros(len(x), np.int64), x[:1], np.zeros(1, np.int64), 1, (0.5,), (0.25,))
        return [(bad.name, bad.holds) for bad in one_form(data, 0.2, Streams(1)).spoiled]

    pixels = np.zeros((5, 1, 2, 2), np.float32)
    assert found(pixels) == found(pixels.astype(np.uint8)) == []
    pixels[3, 0, 1, 1] = np.nan
    assert found(pixels) == [("train[3]", "NaN in its input")]
    pixels[0, 0, 0, 1], pixels[1, 0, 0, 0] = np.inf, -np.inf
    assert ("train[0]", "infinity in its input") in found(pixels)
    data = one_form(
        Dataset(np.zeros((5, 1, 2, 2), np.uint8), WHOLE[[0, 1, 2, 3, 0]], pixels[:1], WHOLE[:1], 2, (0.5,), (0.25,)),
        0.2,
        Streams(1),
    )
    assert torch.equal(data.train.to("cpu").x, torch.full((5, 1, 2, 2), -2.0))  # type: ignore[attr-defined]
    assert data.train.take(torch.tensor([3, 1]))[1].tolist() == [0, 1]


# layers


@pytest.mark.parametrize("size", [(4, 6), (5, 7), (2, 3)])
def test_quick_layers_compute_what_torchs_do(size: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(HalvingAverage()(x), nn.functional.avg_pool2d(x, 2), atol=1e-6)
    assert HalvingAverage()(x.to("meta")).shape == nn.functional.avg_pool2d(x, 2).shape
    for bias in (True, False):
        conv = PooledConv(3, 4, 1, bias=bias)
        plain = nn.functional.max_pool2d(nn.functional.conv2d(x, conv.weight, conv.bias), 2).relu()
        assert torch.allclose(conv(x), plain, atol=1e-6)
    seen: list[Tensor] = []

    class Seen(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x

    assert torch.equal(ChannelsLast(Seen())(x), x)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    ChannelsLast(Seen())(x.to("meta"))
    assert seen[1].is_contiguous(), "a GPU is given the pictures as they are"
