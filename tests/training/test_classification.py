"""A client's task: every sample once an epoch, batches from named streams, losses that are the model's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from netdfl.core.errors import TrainingError
from netdfl.core.rng import Streams
from netdfl.training.classification import Classification, answers
from netdfl.training.data.examples import Samples
from netdfl.training.flat import FlatModel


class Seen(nn.Module):
    """A linear model that remembers the first column of what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 4)
        self.batches: list[list[int]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.batches.append([int(v) for v in x[:, 0]])
        scores: Tensor = self.linear(x)
        return scores


def samples(num: int) -> Samples:
    x = torch.randn(num, 3, generator=torch.Generator().manual_seed(2))
    x[:, 0] = torch.arange(num)
    return Samples(x, torch.arange(num) % 4)


def task(num: int = 10, batch_size: int = 4, *, node: int = 0, seed: int = 1, **options: Any) -> Classification:
    model = FlatModel(Seen())
    start = model.flat() * 0.1
    return Classification(
        model, start, samples(num), node=node, streams=Streams(seed), batch_size=batch_size, **options
    )


def batches(client: Classification, round: int = 0, **length: int) -> list[list[int]]:
    """What the model is asked in one local round, batch by batch."""
    at, model = client.initial(), client.model
    with model.used_by(client.node):  # a model that keeps something is the node's own
        module = model.bind(at, training=True)
    assert isinstance(module, Seen)
    module.batches.clear()
    for gradient in client.data(round).steps(**length):
        gradient(at)
    return [list(batch) for batch in module.batches]


@settings(deadline=None, max_examples=30)
@given(num=st.integers(1, 30), batch_size=st.integers(1, 12), epochs=st.integers(1, 3))
def test_an_epoch_covers_every_sample_once_and_keeps_the_short_batch(num: int, batch_size: int, epochs: int) -> None:
    asked = batches(task(num, batch_size), epochs=epochs)
    per_epoch = math.ceil(num / batch_size)
    assert len(asked) == epochs * per_epoch
    for e in range(epochs):
        epoch = asked[e * per_epoch : (e + 1) * per_epoch]
        assert sorted(sample for batch in epoch for sample in batch) == list(range(num))
        assert [len(batch) for batch in epoch[:-1]] == [batch_size] * (per_epoch - 1)


@pytest.mark.parametrize("steps", [0, 1, 3, 4, 7])
def test_steps_go_on_into_the_next_epoch(steps: int) -> None:
    asked = batches(task(10, 4), steps=steps)
    assert len(asked) == steps
    assert asked == batches(task(10, 4), epochs=3)[:steps]


def test_batches_depend_on_seed_node_and_round_alone() -> None:
    first = batches(task(), round=2, epochs=1)
    client = task()
    batches(client, round=1, epochs=1)
    assert batches(client, round=2, epochs=1) == first
    others = [
        batches(task(), round=3, epochs=1),
        batches(task(node=1), round=2, epochs=1),
        batches(task(seed=2), round=2, epochs=1),
    ]
    assert all(other != first for other in others)


def test_a_gradient_is_of_its_minibatch_at_every_call_and_augmented_once() -> None:
    calls: list[int] = []

    def shift(x: Tensor, rng: np.random.Generator) -> Tensor:
        calls.append(len(x))
        return x + float(rng.random())

    client = task(augment=shift)
    gradient = next(client.data(0).steps(epochs=1))
    at = client.initial()
    one = gradient(at).clone()
    gradient(at * 3)
    assert torch.equal(gradient(at), one)
    assert calls == [4]


def test_the_gradient_is_autograds_on_the_whole_set() -> None:
    client = task(10, 10)
    at = client.initial()
    got = next(client.data(0).steps(epochs=1))(at)
    variable = at.clone().requires_grad_()
    x, y = client.samples.x, client.samples.y
    cross_entropy(x @ variable[:12].view(4, 3).T + variable[12:], y).backward()
    assert variable.grad is not None
    torch.testing.assert_close(got, variable.grad, rtol=1e-5, atol=1e-6)


def test_last_loss_is_the_mean_of_the_rounds_first_gradients() -> None:
    client = task(8, 4)
    assert math.isnan(client.last_loss)
    at = client.initial()
    for gradient in client.data(0).steps(epochs=1):
        gradient(at)
        gradient(at * 5)
    assert client.last_loss == pytest.approx(client.data(0).loss(at), rel=1e-6)


@pytest.mark.parametrize("length", [{"epochs": 2}, {"steps": 5}])
def test_a_client_without_samples_takes_no_step(length: dict[str, int]) -> None:
    assert batches(task(0), **length) == []


def test_evaluation_counts_over_batches_of_any_size() -> None:
    client = task(10)
    at = client.initial() * 20
    found = answers(client.model, at, client.samples, batch=3)
    scores = client.samples.x @ at[:12].view(4, 3).T + at[12:]
    assert found.accuracy == int((scores.argmax(1) == client.samples.y).sum()) / 10
    assert found.loss == pytest.approx(float(cross_entropy(scores, client.samples.y)), rel=1e-5)
    with pytest.raises(TrainingError, match="empty set"):
        answers(client.model, at, samples(0))


def test_the_start_is_held_once_and_counts_are_right() -> None:
    """`leaves_the_start_alone` of the contract holds algorithms to it."""
    client = task(10)
    assert client.initial() is client.initial()
    assert (client.dim, client.num_samples) == (16, 10)
