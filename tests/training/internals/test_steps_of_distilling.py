"""The steps of distilling: segments of trajectories, how far two ways differ, what soft labels begin with."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from netdfl.core.rng import Streams
from netdfl.training.distill import Distiller, SyntheticExamples
from netdfl.training.siamese import _DRAWN, TRANSFORMATIONS
from netdfl.training.toy import Centers

STREAMS = Streams(5)
X = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)


class Once(Centers):
    """Remembers what was asked to be drawn."""

    def drawing(self, *key: Any) -> Any:
        self.__dict__.setdefault("asked", []).append(key)
        return nullcontext()


def distiller(**changed: Any) -> Distiller:
    given: dict[str, Any] = {"per_class": 2, "iterations": 1, "steps": 1, "gap": 2, "optimizer": "sgd"}
    return Distiller(**(given | {"input_lr": 0.1, "rate": 0.5, "rate_lr": 0.0} | changed))


@pytest.mark.parametrize("gap", [1, 2, 3])
def test_a_segment_begins_anywhere_and_ends_a_gap_later_or_at_the_mean_of_models_up_to_there(gap: int) -> None:
    models = [torch.full((1,), float(k), dtype=torch.float64) for k in range(6)]
    rng = np.random.default_rng(0)
    plain = {tuple(float(v) for v in distiller(gap=gap)._segment(models, rng)) for _ in range(200)}
    assert plain == {(float(r), float(r + gap)) for r in range(6 - gap)}
    averaged = [distiller(gap=gap, averaged=True)._segment(models, rng) for _ in range(300)]
    assert {float(start) for start, _ in averaged} == {float(r) for r in range(6 - gap)}
    assert all(float(start) + 1 <= float(end) <= float(start) + gap for start, end in averaged)
    ends = {round(float(end - start), 6) for start, end in averaged}
    assert ends == {1: {1.0}, 2: {1.0, 1.5, 2.0}}.get(gap, ends)
    assert {1.0, float(gap), (1.0 + gap) / 2} <= ends


@pytest.mark.parametrize("loss", ["normalised", "raw"])
def test_the_mismatch_is_the_way_left_over_the_way_to_go_or_as_it_is(loss: Any) -> None:
    objective = Once(torch.ones(2, dtype=torch.float64), STREAMS)
    start, target = torch.tensor([0.0, 0.0]).double(), torch.tensor([4.0, 0.0]).double()
    examples = SyntheticExamples(torch.tensor([[2.0, 2.0], [2.0, -2.0]]).double(), torch.tensor([0, 0]))
    found = distiller(steps=2, loss=loss)._mismatch(
        start, target, objective, examples, torch.tensor(0.5), np.random.default_rng(0)
    )
    left = (4.0 - (1.0 + 0.5)) ** 2  # half of the way to the mean, (2, 0), twice
    assert float(found.detach()) == pytest.approx(left if loss == "raw" else left / 16)


def test_soft_labels_begin_at_their_scale_on_the_true_one() -> None:
    objective: Any = SimpleNamespace(num_labels=3, input_shape=(4,))
    x, logits, rate = distiller(label_lr=0.1, label_scale=2.0)._first(X, objective, np.random.default_rng(0))
    assert logits.tolist() == [[2.0 * (k == place // 2) for k in range(3)] for place in range(6)]
    assert (tuple(x.shape), float(rate.detach())) == ((6, 4), 0.5)
    assert all(each.requires_grad for each in (x, logits, rate))
    soft = distiller(label_lr=0.1)._examples(x, logits).y
    assert soft.sum(1).tolist() == pytest.approx([1.0] * 6)
    plain = distiller()._first(X, objective, np.random.default_rng(0))[1]
    assert plain.tolist() == [0, 0, 1, 1, 2, 2]


class Bounds:
    """Draws the middle of whatever it is asked for, and remembers that."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def uniform(self, low: float, high: float, size: int | None = None) -> Any:
        self.asked.append((low, high, size))
        return (low + high) / 2 if size is None else np.full(size, (low + high) / 2)

    def integers(self, low: int, high: int | None = None) -> int:
        self.asked.append((low, high))
        return 0

    def random(self) -> float:
        self.asked.append(())
        return 0.25


def test_each_change_of_a_picture_is_drawn_from_the_range_of_the_published_code() -> None:
    asked: dict[str, list[tuple[Any, ...]]] = {}
    for name in TRANSFORMATIONS:
        rng = Bounds()
        assert _DRAWN[name](torch.rand(1, 3, 12, 16), rng).shape == (1, 3, 12, 16)  # type: ignore[arg-type]
        asked[name] = rng.asked
    assert asked == {
        "color": [(-0.5, 0.5, None), (0, 2, None), (0.5, 1.5, None)],
        "crop": [(-2, 3), (-2, 3)],
        "cutout": [(13, None), (17, None)],
        "flip": [()],
        "scale": [(1 / 1.2, 1.2, 2)],
        "rotate": [(-15, 15, None)],
    }
