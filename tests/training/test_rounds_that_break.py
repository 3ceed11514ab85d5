"""Rounds that break or end at once, models tried on half of the examples, and rates that fall along a cosine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training import trial
from netdfl.training.classification import Classification
from netdfl.training.data.examples import Samples
from netdfl.training.flat import FlatModel
from netdfl.training.service import Service
from netdfl.training.sgd import LocalSgd
from netdfl.training.stepping import Schedule

X, Y = torch.linspace(-1, 1, 24).reshape(8, 3), torch.arange(8) % 2
SGD = LocalSgd(lr=0.1)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def test_only_a_model_of_more_than_some_parameters_is_tried_on_half(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(trial, "known", lambda key: None)
    monkeypatch.setattr(trial, "remember", lambda key, wrong: None)
    monkeypatch.setattr(trial, "must_be_apart", lambda: False)
    monkeypatch.setattr(trial, "differing", lambda found: sizes.append(len(found.y)) or ["rows"])
    for large in (26, 25):
        model = FlatModel(perceptron())
        monkeypatch.setattr(trial, "LARGE", large)
        assert model.dim == 26
        (said,) = trial.fit_ways(model, SGD, X, Y, 4, rows=True)
        assert said.startswith("computing nodes together leads elsewhere")
        assert not model.in_rows
        assert model.perceptron is not None
    assert sizes == [8, 4]
    for make, rows, ways in [
        (perceptron, True, ("formula", "rows")),
        (perceptron, False, ("formula",)),
        (lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh()), True, ("autograd",)),
    ]:
        seen: list[Any] = []
        monkeypatch.setattr(trial, "differing", lambda found, seen=seen: seen.append(found.ways) or [])
        assert trial.fit_ways(FlatModel(make()), SGD, X, Y, 4, rows=rows) == []
        assert seen == [ways]


@dataclass
class Round:
    """A local round that asks for what `asks` gives."""

    asks: Any
    data: Any

    def __call__(self) -> Any:
        return "alone"

    def solve(self) -> Any:
        return self.asks()


def test_a_round_that_breaks_ends_at_once_or_asks_for_something_else_is_its_own_affair() -> None:
    model = FlatModel(perceptron())
    made = Classification(model, model.flat(), Samples(X, Y), node=0, streams=Streams(1), batch_size=4, num_labels=2)

    def asks_for(found: Any) -> Any:
        def solve() -> Any:
            if isinstance(found, Exception):
                raise found
            ran = yield found
            return "done", ran

        return solve

    def ends() -> Any:
        return "at once"
        yield

    view = View(0, 0, 1, (), (), 1.0, {}, {})
    sgd = LocalSgd(lr=0.1, steps=2)
    expected, _ = sgd.steps_from(made.initial(), 1.0, made.data(0), view)()
    error = KeyError("mine")
    for asks, outcome in [
        (asks_for(error), (None, error)),
        (ends, ("at once", None)),
        (asks_for(lambda: 7), (("done", 7), None)),
    ]:
        good = Round(asks_for(sgd.steps_from(made.initial(), 1.0, made.data(0), view)), made.data(0))
        found = Service("auto").compute([Round(asks, made.data(0)), good])
        assert found[0] == outcome
        (said, (x, count)), none = found[1]  # type: ignore[misc]
        assert (said, count, none) == ("done", 2, None)
        assert torch.allclose(x, expected, atol=1e-6)


def test_a_cosine_is_at_its_floor_from_its_last_round_on_however_short_it_is() -> None:
    for warmup, rounds in ((0, 1), (2, 3), (2, 4), (0, 10), (5, 5)):
        schedule = Schedule(kind="cosine", warmup=warmup, rounds=rounds, floor=0.25)
        factors = [schedule.factor(round) for round in range(rounds + 3)]
        assert factors[:warmup] == [(round + 1) / warmup for round in range(warmup)]
        assert factors[max(rounds, warmup + 1) :] == pytest.approx([0.25] * len(factors[max(rounds, warmup + 1) :]))
        assert factors[warmup] == pytest.approx(1.0), "it falls from 1"
        middle = warmup + (rounds - warmup) // 2
        if (rounds - warmup) % 2 == 0 and rounds > warmup:
            assert factors[middle] == pytest.approx(0.625), "half way down"
    steps = Schedule(kind="step", warmup=1, every=2, gamma=0.5)
    assert [steps.factor(round) for round in range(6)] == [1.0, 1.0, 1.0, 0.5, 0.5, 0.25]
    assert [Schedule(warmup=2).factor(round) for round in range(4)] == [0.5, 1.0, 1.0, 1.0]
    assert Schedule(kind="cosine").factor(9) == 1.0, "of no known length"
