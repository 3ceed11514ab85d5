"""Models: exact parameter counts, seeded initialization, and the refusal of running statistics."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import netdfl
from netdfl.core.errors import ScenarioError
from netdfl.training.models.buffers import Buffers, means
from netdfl.training.models.catalog import MODELS, from_torchvision
from tests.training.built import build
from tests.training.plain_torch_modules import Averaging, Queued

SMALL, MEDIUM, COLOR = (1, 8, 8), (1, 28, 28), (3, 32, 32)


@pytest.mark.parametrize(
    ("name", "shape", "num_classes", "params", "count"),
    [
        ("mlp", SMALL, 10, {}, 64 * 64 + 64 + 640 + 10),
        ("mlp", MEDIUM, 10, {"hidden": [200]}, 159_010),
        ("mlp", MEDIUM, 10, {"hidden": []}, 7_850),
        ("mnist_2nn", MEDIUM, 10, {}, 199_210),
        ("fashion_mlp", MEDIUM, 10, {}, 118_282),
        ("cifar_cnn", COLOR, 10, {}, 797_962),
        ("convnet", COLOR, 10, {}, 320_010),
        ("vgg11_gn", COLOR, 10, {}, 9_231_114),
        ("resnet18_gn", COLOR, 10, {}, 11_173_962),
        ("resnet18_gn", COLOR, 100, {}, 11_220_132),
        ("resnet18_gn", COLOR, 10, {"stem": "torchvision", "groups": 2}, 11_181_642),
        ("resnet18_gn", COLOR, 100, {"stem": "torchvision", "groups": 2}, 11_227_812),
    ],
)
def test_parameter_counts_and_outputs(name, shape, num_classes, params, count) -> None:
    model = build(name, shape, num_classes, 0, **params)
    assert sum(p.numel() for p in model.parameters()) == count
    assert model(torch.zeros(2, *shape)).shape == (2, num_classes)


def test_vgg_begins_as_the_code_that_it_is_from() -> None:
    parameters = build("vgg11_gn", COLOR, 10, 0).state_dict()
    weights = [values for values in parameters.values() if values.dim() > 1]
    stds = [float(values.std()) for values in weights]
    assert stds == pytest.approx([*((2 / (9 * len(each))) ** 0.5 for each in weights[:-1]), 0.01], rel=0.05)
    assert not any(values.any() for name, values in parameters.items() if name.endswith("bias"))


@pytest.mark.parametrize("name", ["cifar_cnn", "convnet", "resnet18_gn"])
def test_picture_models_fit_other_sizes(name: str) -> None:
    assert build(name, MEDIUM, 10, 0)(torch.zeros(2, *MEDIUM)).shape == (2, 10)


def test_the_seed_alone_decides_the_parameters() -> None:
    torch.manual_seed(1)
    first = build("mlp", SMALL, 10, 2**64 - 1).state_dict()
    torch.manual_seed(2)
    again = build("mlp", SMALL, 10, 2**64 - 1).state_dict()
    other = build("mlp", SMALL, 10, 3).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_global_random_state_is_untouched() -> None:
    before = torch.random.get_rng_state()
    build("mlp", SMALL, 10, 3)
    assert torch.equal(before, torch.random.get_rng_state())


def test_running_statistics_are_the_means_that_a_pass_in_training_changes() -> None:
    x = torch.randn(4, 4, 2, 2)
    assert means(nn.BatchNorm2d(4), x) == ["running_mean", "running_var", "num_batches_tracked"]
    kept = nn.InstanceNorm2d(4, track_running_stats=True)
    before = {name: buffer.clone() for name, buffer in kept.named_buffers()}
    assert {"running_mean", "running_var"} <= set(means(kept, x))
    assert all(torch.equal(buffer, before[name]) for name, buffer in kept.named_buffers())
    plain = nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.BatchNorm2d(4, track_running_stats=False))
    plain.register_buffer("constant", torch.ones(3))
    assert means(plain, x) == []
    assert means(Averaging(), torch.rand(2, 1, 6, 6)) == ["mean"]
    assert means(Queued(), torch.rand(2, 1, 6, 6)) == []
    assert means(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3)), x) == []
    assert means(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 1)), x) == []


def test_statistics_are_written_as_they_were_read_and_no_variance_is_below_zero() -> None:
    layer = nn.BatchNorm1d(2)
    buffers = Buffers(layer, ["running_mean", "running_var", "num_batches_tracked"])
    buffers.write(layer, torch.tensor([1.0, -2.0, 0.5, -0.1, 6.6]))
    assert buffers.read(layer).tolist() == [1.0, -2.0, 0.5, 0.0, 7.0]


@pytest.mark.parametrize(
    ("name", "shape", "params", "message"),
    [
        ("vgg11_gn", MEDIUM, {}, "32x32 pixels or more"),
        ("cifar_cnn", SMALL, {}, "16x16 pixels or more"),
        ("convnet", (64,), {}, "use mlp"),
        ("resnet18_gn", COLOR, {"groups": 48}, "48 groups: use a power of two"),
    ],
)
def test_data_that_does_not_fit_is_refused(name, shape, params, message) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, shape, 10, 0, **params)


def test_tables_come_without_torch() -> None:
    program = (
        "import sys, typing\n"
        "from netdfl.training.data import augmentations, datasets, fetch, partitions\n"
        "from netdfl.training.models.catalog import MODELS, from_torchvision\n"
        "tables = (MODELS, augmentations.AUGMENTATIONS, datasets.DATASETS, partitions.PARTITIONS)\n"
        "[typing.get_type_hints(f, include_extras=True) for table in tables for f in table.values()]\n"
        "sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_model_is_listed_under_its_own_name() -> None:
    assert all(function.__name__ == name for name, function in MODELS.items())


def test_models_that_are_made_at_the_same_time_are_those_made_alone() -> None:
    def made(seed: int) -> torch.Tensor:
        return nn.utils.parameters_to_vector(build("mlp", SMALL, 10, seed).parameters()).detach()

    alone = [made(seed % 3) for seed in range(3)]
    with ThreadPoolExecutor(4) as executor:
        together = list(executor.map(made, [seed % 3 for seed in range(60)]))
    assert all(torch.equal(vector, alone[place % 3]) for place, vector in enumerate(together))


class _Torchvision:
    """As much of `torchvision.models` as is asked for."""

    @staticmethod
    def list_models(module: object) -> list[str]:
        return ["resnet18", "resnet34"]

    @staticmethod
    def get_model(name: str, *, weights: None, num_classes: int) -> nn.Module:
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, num_classes))


def test_a_model_of_torchvisions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=_Torchvision))
    module = build(from_torchvision("resnet18"), COLOR, 7, 0)
    assert module(torch.zeros(2, *COLOR)).shape == (2, 7)
    with pytest.raises(LookupError, match="torchvision has no model 'resnet81', try resnet18, resnet34"):
        from_torchvision("resnet81")
    with pytest.raises(ValueError, match="resnet18 takes pictures of 3 channels, the data has shape"):
        build(from_torchvision("resnet18"), SMALL, 7, 0)


def test_a_model_of_torchvisions_where_that_is_missing_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    task = {"model": "torchvision:resnet18", "dataset": "digits"}
    with pytest.raises(
        ScenarioError, match=r"does not import here .* install the torchvision that belongs to this torch"
    ):
        netdfl.load(
            {
                "schema": "netdfl/1",
                "name": "t",
                "nodes": 2,
                "rounds": 1,
                "algorithm": "dpsgd",
                "topology": "ring",
                "task": task,
            }
        )


def test_torchvisions_own_resnet_18(tmp_path: Path) -> None:
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"the extra vision does not import: {error}")
    module = build(from_torchvision("resnet18"), COLOR, 10, 0)
    assert sum(p.numel() for p in module.parameters()) == 11_181_642
