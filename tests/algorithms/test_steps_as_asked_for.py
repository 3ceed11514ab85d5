"""What is said of local steps is what the solver has; whose draws are of which stream; what a method writes out."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from algorithm_fleets import EXCHANGE, SMALL
from test_what_loops_ask import PEERS, Node

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import AnySgd, Sgd, flat, replaced
from netdfl.algorithms.families import FAMILIES
from netdfl.algorithms.plain_parts import keeping_momentum, local_sgd
from netdfl.training.momentum import KeptMomentum
from netdfl.training.optimized import OptimizedSgd
from netdfl.training.stepping import CONSTANT, OptimizerChoice, Schedule

SAID: dict[str, Any] = {
    "lr": 0.3,
    "lr_decay": 0.9,
    "local_steps": 7,
    "weight_decay": 0.02,
    "clip_norm": 4.0,
    "schedule": Schedule(warmup=3),
}


@pytest.mark.parametrize("kind", [Sgd, AnySgd])
def test_a_solver_has_each_number_that_was_said(kind: Any) -> None:
    made = local_sgd(kind(**SAID), momentum=0.5, nesterov=True, rho=0.1)
    assert (made.lr, made.lr_decay, made.epochs, made.steps) == (0.3, 0.9, None, 7)
    assert (made.weight_decay, made.clip_norm, made.schedule) == (0.02, 4.0, Schedule(warmup=3))
    assert (made.momentum, made.nesterov, made.rho) == (0.5, True, 0.1)
    plain = local_sgd(kind())
    assert (plain.epochs, plain.steps, plain.weight_decay, plain.momentum, plain.rho) == (5, None, 0.0, 0.0, 0.0)
    assert not plain.nesterov


def test_another_optimizer_decays_by_itself() -> None:
    adam = OptimizerChoice(name="adam")
    made = local_sgd(AnySgd(**SAID, optimizer=adam), rho=0.1)
    assert isinstance(made, OptimizedSgd)
    assert (made.weight_decay, made.decay, made.optimizer, made.rho) == (0.0, 0.02, adam, 0.1)
    assert (made.lr, made.steps, made.clip_norm) == (0.3, 7, 4.0)
    with pytest.raises(ValueError, match="momentum is plain SGD's, and optimizer is adam"):
        local_sgd(AnySgd(optimizer=adam), momentum=0.5)


def test_momentum_is_kept_where_there_is_any() -> None:
    plain, heavy = local_sgd(Sgd()), local_sgd(Sgd(), momentum=0.5)
    assert keeping_momentum(plain) is plain
    assert keeping_momentum(heavy) == KeptMomentum(heavy, None)
    assert keeping_momentum(heavy, 3) == KeptMomentum(heavy, 3)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_method_takes_the_numbers_of_its_steps(name: str) -> None:
    made: Any = ALGORITHMS[name].build(EXCHANGE, **SMALL.get(name, {}) | {"lr": 0.3, "weight_decay": 0.02}).local
    while not hasattr(made, "lr"):
        made = made.inner if hasattr(made, "inner") else made.sgd
    assert (made.lr, made.weight_decay) == (0.3, 0.02)


def test_of_a_length_that_is_given_the_others_default_is_written_out_as_none() -> None:
    assert replaced({"local_epochs": 3}) == {"local_epochs": 3, "local_steps": None}
    assert replaced({"local_epochs": 3, "local_steps": 2}) == {"local_epochs": 3, "local_steps": 2}
    assert replaced({"local_epochs": None}) == {"local_epochs": None}
    assert replaced({"lr": 1.0}) == {"lr": 1.0}
    assert all(entry.build.complete is replaced for entry in ALGORITHMS.values())  # type: ignore[attr-defined]

    def other(*, schedule: Schedule = CONSTANT) -> None: ...

    assert not hasattr(flat(other), "complete")


def test_a_users_own_exchange_draws_by_what_it_does_and_the_round() -> None:
    drawn = list[tuple[Any, ...]]()

    class Drawing(Node):
        def drawing(self, what: str, round: int, *key: int) -> Any:
            drawn.append((what, round, *key))
            return nullcontext()

    alg = ALGORITHMS["ad_psgd"].build(EXCHANGE, lr=0.1)
    asyncio.run(FAMILIES["bilateral"](Drawing(alg, PEERS._replace(in_neighbors=())), alg))  # type: ignore[arg-type]
    exchanged = [key for key in drawn if key[0] in ("peer", "request")]
    assert exchanged == [(what, round) for round in range(3) for what in ("peer", "request")]
