"""What a user brings, once in virtual time and once in processes: the same digits, and an own figure that is judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import netdfl
from netdfl.running.judged import FinishedRun

PROJECT = """
import torch
from torch import nn
from torch.utils.data import Dataset


class Line(Dataset):
    def __init__(self, num, seed):
        self.x = torch.randn(num, 3, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k], self.x[k] @ torch.tensor([1.0, 2.0, 3.0])


def line():
    return Line(24, 0), Line(8, 1)


class Plain(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.first, self.last = nn.Linear(3, width), nn.Linear(width, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x))).squeeze(1)


class Frozen(Plain):
    def __init__(self):
        super().__init__()
        self.first = self.first.double().requires_grad_(False)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x.double()).float())).squeeze(1)


def worst(outputs, targets, /):
    return (outputs - targets).abs().max()


def tokens():
    text = torch.arange(100).remainder(7)
    return text.unfold(0, 5, 4)[:20], text[1:].unfold(0, 5, 4)[:20]


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(7, 8), nn.Linear(8, 7, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.embed(x))
"""
PICTURES = {"name": "image_folder", "folder": "pictures", "size": 8}
BATCHES = {"batch_size": 4, "drop_last": True}
ADAM = {"name": "dfedavg", "lr": 0.01, "local_steps": 2, "optimizer": {"name": "adam", "state": "kept"}}
MINE = {"dataset": {"name": "mine:line"}, "metrics": ["mae", "mine:worst"]}


def normed(buffers: str) -> dict[str, Any]:
    return {"dataset": PICTURES, "model": {"name": "resnet18", "width": 4, "buffers": buffers}, **BATCHES}


BROUGHT: dict[str, dict[str, Any]] = {
    "ResNet-18 with averaged statistics, a folder of images, Adam": {"task": normed("average"), "algorithm": ADAM},
    "ResNet-18 with local statistics": {"task": normed("local")},
    "ResNet-18 with statistics taken anew": {"task": normed("reset")},
    "a plain class, a torch Dataset, a regression": {
        "task": MINE | {"model": {"name": "mine:Plain", "width": 6}},
        "expect": {"test_worst": {"at_most": 1e-4}},
    },
    "a frozen backbone of another type": {"task": MINE | {"model": {"name": "mine:Frozen"}}},
    "tokens, and weights that are shared": {
        "task": {"dataset": {"name": "mine:tokens"}, "model": {"name": "mine:Characters"}, "metrics": ["perplexity"]}
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image

    place = tmp_path_factory.mktemp("brought")
    (place / "mine.py").write_text(PROJECT)
    rng = np.random.default_rng(0)
    for label, name in enumerate(("cats", "dogs")):
        (place / "pictures" / name).mkdir(parents=True)
        for k in range(10):
            pixels = rng.integers(100, size=(8, 8, 3), dtype=np.uint8) + np.uint8(100 * label)
            Image.fromarray(pixels).save(place / "pictures" / name / f"{k}.png")
    return place


def ran(folder: Path, world: str, part: dict[str, Any]) -> FinishedRun:
    lines = {"schema": "netdfl/1", "name": "brought", "nodes": 2, "rounds": 2, "seed": 1, "world": world}
    lines |= {"algorithm": {"name": "dfedavg", "lr": 0.01, "local_steps": 2}, "topology": "ring"}
    (folder / "s.yaml").write_text(json.dumps(lines | part))
    number = len(list(folder.glob("run*")))
    return netdfl.run(folder / "s.yaml", out=folder / f"run{number}", page=False)


RARELY = {
    "ResNet-18 with averaged statistics, a folder of images, Adam",
    "ResNet-18 with local statistics",
    "ResNet-18 with statistics taken anew",
    "tokens, and weights that are shared",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] if name in RARELY else []) for name in BROUGHT]
)
def test_two_worlds_compute_the_same_digits(name: str, folder: Path) -> None:
    part = BROUGHT[name]
    one, other = (ran(folder, world, part) for world in ("simulated", "processes"))
    for node in (None, 0, 1):
        a, b = (done.model(node).state_dict() for done in (one, other))
        assert all(torch.equal(a[key], b[key]) for key in a)
    last = [{key: course["last"] for key, course in done.result["metrics"].items()} for done in (one, other)]
    assert last[0] == last[1]
    assert one.result["verdict"] == other.result["verdict"] == ("fail" if "expect" in part else "done")
    if "expect" in part:
        assert one.result["reasons"] == other.result["reasons"]
        assert one.result["reasons"][0].startswith("test_worst was expected to be at most 0.0001 and is")
    if name.startswith("ResNet-18"):
        statistics = [done.state_dict()["1.running_mean"] for done in (one.model(0), one.model(1))]
        dots = one.run.plot.partition().axes[0].collections[0].get_offsets()
        assert {tuple(map(int, dot)) for dot in dots} <= {(0, 0), (0, 1), (1, 0), (1, 1)}
        assert torch.equal(*statistics) == ("averaged" in name)  # else they are of each node's own examples
