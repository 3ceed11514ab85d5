"""What a trial of local steps concludes from where each way ends; what becomes of rounds that break among others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from netdfl.core.errors import NotFiniteError
from netdfl.training import service, trial
from netdfl.training.flat import FlatModel
from netdfl.training.momentum import KeptMomentum
from netdfl.training.sgd import LocalSgd
from netdfl.training.stacked_model import StackedModel
from netdfl.training.stepping import Schedule

X, Y = torch.linspace(-1, 1, 24).reshape(8, 3), torch.arange(8) % 2
SGD = LocalSgd(lr=0.1)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def tried(*ways: Any, local: object = SGD, batch_size: int = 4) -> trial.ModelTrial:
    return trial.ModelTrial(FlatModel(perceptron()), local, X, Y, batch_size, ways or ("formula", "rows"))


# what is concluded

Ends = Callable[[Tensor], Any]
THERE: Ends = lambda plain: plain  # noqa: E731
ELSEWHERE: Ends = lambda plain: plain + 1.0  # noqa: E731


def breaks(plain: Tensor) -> Any:
    raise RuntimeError


def concluded(monkeypatch: pytest.MonkeyPatch, *ways: Any, **ends: Any) -> list[str]:
    """What `differing` says where the ways end so; `plain` may be other functions for its first and second time."""
    given = tried(*ways)
    goal = given.model.flat() + 1.0
    plain = list(ends.pop("plain", (THERE, THERE)))
    kinds = {trial._PlainModel: "plain", trial._AutogradModel: "autograd", FlatModel: "formula"}

    def ended(trial_: Any, kind: Any) -> Tensor:
        name = kinds[kind]
        found = plain.pop(0) if name == "plain" else ends.get(name, THERE)
        return found(goal)  # type: ignore[no-any-return]

    monkeypatch.setattr(trial, "_ended", ended)
    monkeypatch.setattr(trial, "_in_rows", lambda trial_: ends.get("rows", THERE)(goal))
    return trial.differing(given)


@pytest.mark.parametrize(
    ("ways", "ends", "wrong"),
    [
        (("formula", "rows"), {}, []),
        (("formula", "rows"), {"formula": ELSEWHERE}, ["formula"]),
        (("formula", "rows"), {"rows": ELSEWHERE}, ["rows"]),
        (("formula", "rows"), {"rows": breaks}, ["rows"]),
        (("formula", "rows"), {"rows": lambda plain: None}, []),
        (("formula", "rows"), {"formula": ELSEWHERE, "rows": breaks}, ["formula", "rows"]),
        (("formula",), {"formula": breaks, "autograd": ELSEWHERE}, ["formula", "autograd"]),
        (("formula",), {"autograd": ELSEWHERE}, []),
        (("autograd",), {"autograd": ELSEWHERE}, ["autograd"]),
        (("formula",), {"formula": ELSEWHERE, "plain": (THERE, ELSEWHERE)}, ["chance"]),
        (("formula",), {"formula": ELSEWHERE, "plain": (lambda plain: plain / 0, THERE)}, []),
        (("formula",), {"formula": ELSEWHERE, "plain": (breaks, THERE)}, []),
        (("formula",), {"formula": ELSEWHERE, "plain": (THERE, breaks)}, []),
        (("formula",), {"formula": lambda plain: plain * math.nan}, ["formula"]),
    ],
)
def test_a_way_is_wrong_where_it_ends_elsewhere_than_a_plain_one_that_repeats(
    ways: Any, ends: Any, wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert concluded(monkeypatch, *ways, **ends) == wrong


def test_near_is_a_thousandth_of_the_way_that_plain_pytorch_went() -> None:
    start, plain = torch.zeros(4), torch.full((4,), 2.0)
    for by, near in ((1.9e-3, True), (2.1e-3, False), (-1.9e-3, True), (math.nan, False)):
        assert trial._near(plain + by, plain, start) is near
    assert trial._near(start, start, start), "nobody went anywhere"
    assert not trial._near(start + 1e-9, start, start)


# whose steps they are


@dataclass(frozen=True, kw_only=True)
class Solves(LocalSgd):
    rows = False

    def solve(self, *more: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Slopes(LocalSgd):
    rows = False


def test_a_trial_takes_two_steps_of_the_solvers_own_sgd_at_a_rate_that_moves() -> None:
    asked = LocalSgd(
        lr=1e-9, lr_decay=0.5, epochs=7, momentum=0.9, rho=0.1, clip_norm=3.0, weight_decay=0.2, nesterov=True,
        schedule=Schedule(kind="cosine", rounds=3),
    )  # fmt: skip
    wanted = LocalSgd(lr=0.1, steps=2, momentum=0.9, rho=0.1, clip_norm=3.0, weight_decay=0.2, nesterov=True)
    assert trial._sgd(asked) == trial._sgd(KeptMomentum(asked)) == wanted
    assert trial._sgd(object()) == LocalSgd(lr=0.1, steps=2)
    own = trial._sgd(Slopes(lr=5.0, rho=0.3))
    assert (type(own), own.rho, own.steps, own.lr) == (Slopes, 0.3, 2, 0.1)
    solves = trial._sgd(Solves(lr=5.0, rho=0.3))
    assert (type(solves), solves.rho, solves.steps, solves.lr) == (LocalSgd, 0.3, 2, 0.1), "not its own loop"
    steps = trial._steps(tried(), FlatModel)
    assert steps()[1] == 2
    assert steps.data.task.batch_size == 4  # type: ignore[attr-defined]
    assert trial._steps(tried(batch_size=99), FlatModel).data.task.batch_size == 4, "two minibatches of eight"  # type: ignore[attr-defined]
    assert trial._steps(tried(batch_size=1), FlatModel).data.task.batch_size == 1  # type: ignore[attr-defined]
    assert steps.data.task.objective.num_labels == 2  # type: ignore[attr-defined]


def test_a_trial_is_another_one_for_another_solver_model_or_batch_and_not_for_another_rate() -> None:
    key = trial._key(tried())
    assert trial._key(tried(local=replace(SGD, lr=9.0))) == key
    assert trial._key(tried(local=replace(SGD, epochs=3))) == key
    others = [
        tried(local=replace(SGD, momentum=0.5)),
        tried(local=Slopes(lr=0.1)),
        tried("formula"),
        tried(batch_size=3),
    ]
    others += [tried()._replace(x=X[:4]), tried()._replace(y=Y.int()), tried(local=replace(SGD, rho=0.1))]
    assert len({key, *map(trial._key, others)}) == 1 + len(others)


def test_a_plain_step_writes_the_gradient_of_every_parameter_and_what_forward_wrote() -> None:
    class Writes(nn.Embedding):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.long().clamp(0, 3).sum(1) % 4)

    torch.manual_seed(0)  # or the norms of what is brought to them twice here might differ in the last bit
    for module in (perceptron(), Writes(4, 2, max_norm=0.1)):
        model = trial._PlainModel(module)
        at, out = model.flat(), torch.full((model.dim,), 7.0)
        loss = model.slope(at, X, Y, out)
        assert torch.equal(loss, model.loss(module(X), Y).detach())
        grads = torch.autograd.grad(model.loss(module(X), Y), list(module.parameters()))
        assert torch.allclose(out, torch.cat([grad.reshape(-1) for grad in grads]))
        wrote = isinstance(module, Writes)
        assert (model.written(at) is at) is wrote
        if wrote:
            assert torch.equal(at, module.weight.detach().reshape(-1))


# among others


def test_where_rows_break_each_of_them_is_told_and_a_node_that_is_not_finite_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = RuntimeError("no room")

    def breaks_together(asked: Any, model: Any) -> Any:
        raise broken

    def nothing() -> Any:
        ran = yield None
        return ran

    def opened(place: int) -> service.PendingRound:
        requests = nothing()
        requests.send(None)
        return service.PendingRound(place, requests, None)  # type: ignore[arg-type]

    monkeypatch.setattr(service, "run_stacked", breaks_together)
    assert service._together([opened(2), opened(5)], None) == {2: (None, broken), 5: (None, broken)}  # type: ignore[arg-type]
    bad = NotFiniteError("became nan", 1)
    monkeypatch.setattr(service, "run_stacked", lambda asked, model: [bad, (X, 2)])
    found = service._together([opened(2), opened(5)], None)  # type: ignore[arg-type]
    assert found[2] == (None, bad)
    assert found[5] == ((X, 2), None)


class OnGpu(Tensor):
    """A tensor that says that it lies on a GPU."""

    is_cuda = True  # type: ignore[assignment]


def test_a_gpu_takes_as_many_nodes_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answers(name: str, value: Any) -> None:
        monkeypatch.setattr(torch.cuda, name, lambda device: asked.append(name) or value)

    answers("reset_peak_memory_stats", None)
    answers("memory_allocated", 1000)
    answers("max_memory_allocated", 1600)
    answers("mem_get_info", (6_100, 10_000))
    model = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
    stacked = StackedModel(model)
    monkeypatch.setattr(stacked, "_agrees", lambda at, x, y: asked.append("compared") or True)
    assert stacked.agrees(model.flat().as_subclass(OnGpu), X, Y)
    assert asked == ["reset_peak_memory_stats", "memory_allocated", "compared", "max_memory_allocated"]
    assert stacked.rows_that_fit() == 10, "half of what is free, by 301 bytes for each of the two that were compared"
    answers("mem_get_info", (100, 10_000))
    assert stacked.rows_that_fit() == 1
    asked.clear()
    assert stacked.agrees(model.flat(), X, Y)
    assert asked == ["compared"], "a CPU is asked nothing"
