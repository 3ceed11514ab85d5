"""One client's task: how many steps a round has, what is computed beside others', what is kept, how it is judged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from netdfl.core.errors import NotFiniteError, TrainingError
from netdfl.core.rng import Streams
from netdfl.training.base import NOTHING
from netdfl.training.classification import Answers, Classification, Minibatch, RoundPass, answers, outcome
from netdfl.training.data.examples import ReadSamples, Samples
from netdfl.training.flat import FlatModel
from netdfl.training.masked import MaskedSgd
from netdfl.training.sgd import LocalSgd
from netdfl.training.tasks.losses import LEFT_OUT

X, Y = torch.linspace(-1, 1, 30).reshape(10, 3), torch.arange(10) % 2
SAMPLES = Samples(X, Y)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def task(model: FlatModel | None = None, samples: Any = SAMPLES, **more: Any) -> Classification:
    model = FlatModel(perceptron()) if model is None else model
    more = {"node": 3, "streams": Streams(1), "batch_size": 4, "num_labels": 2} | more
    return Classification(model, model.flat(), samples, **more)


# steps


@pytest.mark.parametrize(
    ("size", "batch", "drop", "steps"),
    [
        (10, 4, False, 3),
        (10, 4, True, 2),
        (8, 4, True, 2),
        (3, 4, True, 1),
        (4, 4, True, 1),
        (5, 4, True, 1),
        (0, 4, False, 0),
    ],
)
def test_an_epoch_has_as_many_steps_as_minibatches_and_a_short_one_may_be_left_out(
    size: int, batch: int, drop: bool, steps: int
) -> None:
    made = task(samples=Samples(X[:size], Y[:size]), batch_size=batch, drop_last=drop)
    assert made.steps_per_epoch == steps
    data = made.data(0)
    assert isinstance(data, RoundPass)
    for epochs, most, wanted in [(2, None, 2 * steps), (None, 5, 5), (2, 3, min(3, 2 * steps)), (1, 99, steps)]:
        assert data.num_steps(epochs=epochs, steps=most) == (wanted if size else 0)
        assert len(list(data.steps(epochs=epochs, steps=most))) == (wanted if size else 0)
    assert len(made.first()[1]) == min(batch, size)


def test_the_loss_of_a_round_is_the_mean_over_its_steps_and_the_first_that_is_not_finite_is_named() -> None:
    made = task()
    data: Any = made.data(0)
    assert math.isnan(made.last_loss)
    data.finish(torch.tensor([1.0, 2.0, 6.0]))
    assert made.last_loss == 3.0
    data.finish(None)
    assert math.isnan(made.last_loss)
    for losses, step, said in [
        ([1.0, math.nan, math.inf], 1, "nan"),
        ([math.inf, 1.0], 0, "inf"),
        ([1e38] * 9, 8, "9.99"),
    ]:
        with pytest.raises(NotFiniteError, match=f"the training loss became {said}") as caught:
            data.finish(torch.tensor(losses))
        assert caught.value.step == step


# rows


class Two(nn.Linear):
    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        return super().forward(x)


READ = ReadSamples(lambda k: (X[k], Y[k]), np.arange(10))
IN_ROWS: dict[str, tuple[Any, Any, dict[str, Any], bool]] = {
    "a perceptron": (perceptron, SAMPLES, {}, True),
    "any module": (lambda: Two(3, 2), SAMPLES, {}, True),
    "one minibatch that is not short": (perceptron, SAMPLES, {"batch_size": 10, "drop_last": True}, True),
    "a short minibatch is left out": (perceptron, SAMPLES, {"drop_last": True}, False),
    "running statistics": (normed, SAMPLES, {}, False),
    "two inputs": (lambda: Two(3, 2), Samples((X, X), Y), {}, False),
    "read one by one": (perceptron, READ, {}, False),
}


@pytest.mark.parametrize("name", IN_ROWS)
def test_steps_are_computed_in_rows_where_that_can_be(name: str) -> None:
    make, samples, more, expected = IN_ROWS[name]
    module = make()
    buffers = [name for name, _ in module.named_buffers() if "running" in name]
    model = FlatModel(module, buffers=buffers)
    made = task(model, samples, **more)
    assert made.in_rows is expected
    for attribute in ("writes", "writes_examples", "keeps") if expected else ():
        setattr(model, attribute, "it does")
        assert not made.in_rows, attribute
        setattr(model, attribute, "")
    model.in_rows = False
    assert not made.in_rows
    own = FlatModel(make(), nn.functional.cross_entropy, buffers=buffers)
    assert not task(own, samples, **more).in_rows
    assert not own.uses_cross_entropy
    assert model.uses_cross_entropy


# what is kept


def test_a_node_that_keeps_nothing_has_nothing_and_one_with_local_statistics_has_its_own() -> None:
    plain = task()
    data: Any = plain.data(0)
    x = plain.initial()
    data.begin(x, None)
    assert data.ended(x, 1.0) == (x, None)
    assert plain.kept is None
    model = FlatModel(normed(), buffers=("1.running_mean", "1.running_var"), policy="local")
    local = task(model)
    data, x = local.data(0), local.initial()
    data.begin(x, None)
    for gradient in data.steps(epochs=1):
        gradient(x)
    ended, kept = data.ended(x, 1.0)
    assert ended is x
    assert kept is local.kept
    assert set(kept) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert not torch.equal(kept["1.running_var"], torch.ones(2))
    whole, others = local.whole(x, kept, 0.5)
    assert set(others) == {"1.num_batches_tracked"}
    assert torch.equal(whole, torch.cat([x, kept["1.running_mean"] * 0.5, kept["1.running_var"] * 0.5]))
    again: Any = local.data(1)
    again.begin(x, kept)
    assert torch.equal(again.statistics, torch.cat([kept["1.running_mean"], kept["1.running_var"]]))
    assert plain.whole(x, {"seen": x}, 1.0) == (x, {"seen": x})
    assert plain.whole(x, None, 1.0) == (x, NOTHING)


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_averaged_statistics_are_the_vectors_last_coordinates_as_numerators(weight: float) -> None:
    model = FlatModel(normed(), buffers=("1.running_mean", "1.running_var"))
    made = task(model)
    data: Any = made.data(0)
    z = made.initial().clone()
    z[-4:] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    data.begin(z, None)
    assert data.statistics.tolist() == [1, 2, 3, 4]
    x, kept = data.ended(z * weight, weight)
    assert torch.equal(x, z * weight)
    assert kept is None
    assert (model.still, model.dim, len(x)) == (4, model.num_trained + 4, model.dim)
    assert model.shapes[-1] == (4,)


# judging


def test_the_accuracy_for_other_labels_weighs_each_class_by_how_often_it_comes() -> None:
    right, labels = torch.tensor([True, True, False, True]), torch.tensor([0, 0, 1, 1])
    found = Answers(right, 0.0)
    assert found.accuracy == 0.75
    assert found.accuracy_for(labels, torch.tensor([1, 1])) == 0.75
    assert found.accuracy_for(labels, torch.tensor([0, 5])) == 0.5
    assert found.accuracy_for(labels, torch.tensor([3, 1, 7])) == (3 + 0.5) / 4, "of the third class there are none"
    assert found.accuracy_for(labels, torch.tensor([0, 0, 7])) is None


def test_judging_in_minibatches_is_judging_at_once_and_nothing_can_not_be_judged() -> None:
    model = FlatModel(perceptron())
    at = model.flat()
    whole = answers(model, at, SAMPLES)
    logits = model.module(X)
    assert torch.equal(whole.right, logits.argmax(1) == Y)
    assert whole.loss == pytest.approx(nn.functional.cross_entropy(logits, Y).item(), rel=1e-6)
    parts = answers(model, at, SAMPLES, batch=3)
    assert torch.equal(parts.right, whole.right)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    for batch in (1, 3, 1024):
        found = outcome(model, at, SAMPLES, batch)
        assert torch.allclose(found.outputs, logits)
        assert torch.equal(found.targets, Y)
        assert found.loss == pytest.approx(whole.loss, rel=1e-6)
    for judge in (answers, outcome):
        with pytest.raises(TrainingError, match="can't evaluate on an empty set"):
            judge(model, at, Samples(X[:0], Y[:0]))  # type: ignore[operator]


def test_a_minibatch_counts_as_many_as_its_loss_does_not_leave_out() -> None:
    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.unsqueeze(-1).expand(-1, -1, 2), y)

    model = FlatModel(perceptron(), loss)
    y = torch.stack([Y, Y], 1)
    y[:4] = LEFT_OUT
    y[4:, 1] = LEFT_OUT
    logits = model.module(X)
    expected = nn.functional.cross_entropy(logits[4:], Y[4:]).item()
    for batch in (2, 4, 10):
        assert outcome(model, model.flat(), Samples(X, y), batch).loss == pytest.approx(expected, rel=1e-6)
    assert math.isnan(outcome(model, model.flat(), Samples(X[:4], y[:4])).loss)


def test_the_loss_of_a_clients_own_data_is_taken_in_evaluation_mode_whoever_computes_it() -> None:
    torch.manual_seed(0)
    for model, samples in ((FlatModel(perceptron()), SAMPLES), (FlatModel(Two(3, 2)), READ)):
        made = task(model, samples)
        expected = nn.functional.cross_entropy(model.module(X), Y).item()
        assert made.data(0).loss(made.initial()) == pytest.approx(expected, rel=1e-6)
    model = FlatModel(normed(), buffers=("1.running_mean", "1.running_var"), policy="reset")
    made = task(model)
    training = model.module.train()(X)
    assert made.data(0).loss(made.initial()) == pytest.approx(
        nn.functional.cross_entropy(training, Y).item(), rel=0.2
    ), "statistics are taken anew"


def test_the_loss_of_a_clients_own_data_is_the_one_that_was_asked_for() -> None:
    made = task(FlatModel(perceptron(), lambda outputs, y: outputs.sum() * 0 + 7.0))
    assert made.data(0).loss(made.initial()) == 7.0


# what a module writes to


def test_a_minibatch_is_the_same_at_every_call_whatever_was_done_to_the_last() -> None:
    model = FlatModel(Two(3, 2))
    reads: list[int] = []

    def again() -> tuple[Tensor, Tensor]:
        reads.append(1)
        return X.clone(), Y.clone()

    for once_more in (again, None):
        batch = Minibatch(model, X.clone(), Y.clone(), once_more)
        first = batch()
        assert batch() is first, "nobody wrote to it"
        first[0].add_(1)
        assert torch.equal(batch()[0], X)
        assert batch() is batch()
        batch()[1].zero_()
        assert torch.equal(batch()[1], Y)
    assert len(reads) == 2
    batch = Minibatch(model, X.clone(), Y.clone(), again)
    batch()[0].data.add_(1)  # which versions do not tell
    model.writes_examples = True
    assert torch.equal(batch()[0], X)
    quick = FlatModel(perceptron())
    given = X.clone()
    assert Minibatch(quick, given, Y, None)()[0] is given, "netdfl's own formula writes to nothing"


# masks


@pytest.mark.parametrize("regrow", ["gradient", "random"])
def test_a_mask_keeps_its_size_and_regrows_where_it_is_said(regrow: Any) -> None:
    solver = MaskedSgd(
        sgd=LocalSgd(lr=0.1, epochs=1), density=0.5, layout="uniform", anneal=1.0, anneal_rounds=10, regrow=regrow,
        streams=Streams(4),
    )  # fmt: skip
    from netdfl.core.types import View
    from netdfl.training.base import Received

    made = task(FlatModel(Two(3, 2)))
    view = View(0, 0, 2, (), (), 1.0, {}, {})
    x = made.initial()
    found = []
    for _ in range(2):
        state, update = solver.train(solver.init(x, view), x, Received(), 1.0, made.data(0), view)
        mask, following = update.extras["mask"], update.extras["next_mask"]
        assert int(mask[:6].sum()) == int(following[:6].sum()) == 3
        assert mask[6:].all()
        assert not update.x[:6][~mask[:6]].any()
        assert state.mask is following
        found.append(following)
    assert torch.equal(*found), "from the node's own stream"
    other = solver.train(solver.init(x, view), x, Received(), 1.0, made.data(0), view._replace(node=1))[0].mask
    assert other is not None
    late = solver.evolved(found[0], x.abs(), x.abs(), made.data(0).shapes, 10)
    assert torch.equal(late, found[0]), "nothing is given up any more"
