"""Rates that reach 0, by a schedule or because they underflow: every method goes on as if there were no steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import torch
from algorithm_fleets import SMALL
from torch import Tensor

from netdfl.algorithms.base import NodeState
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.core.rng import Streams
from netdfl.core.types import Message, NodeId
from netdfl.mixing.payloads import is_finite
from netdfl.testing.contract import DIM, EXCHANGE, network_for
from netdfl.testing.loopback import LastState, run_fleet
from netdfl.training.stepping import Schedule
from netdfl.training.toy import Quadratic

STREAMS = Streams(3)
ROUNDS = 6
FAR = 100.0
ENDS_EARLY: dict[str, Any] = {"schedule": Schedule(kind="cosine", rounds=2)}
EDGES: dict[str, tuple[torch.dtype, dict[str, Any]]] = {
    "a cosine that ends before the run": (torch.float32, ENDS_EARLY),
    "the least float there is": (torch.float64, {"lr": 5e-324}),
    "below the least normal float32": (torch.float32, {"lr": 1e-42}),
    "a decay that leaves float32": (torch.float32, {"lr_decay": 1e-15}),
    "a decay that leaves float64": (torch.float64, {"schedule": Schedule(kind="step", every=1, gamma=1e-120)}),
}


def tasks(num_nodes: int, dtype: torch.dtype) -> dict[NodeId, Quadratic]:
    """Quadratics that disagree; nodes begin apart, so that what mixing moves is not what steps do."""

    def task(i: NodeId) -> Quadratic:
        center, start = (torch.from_numpy(STREAMS.rng(what, i).standard_normal(DIM)).to(dtype) for what in "cs")
        return Quadratic(center, start, torch.linspace(0.5, 1.0, DIM, dtype=dtype), node=i, streams=STREAMS, noise=0.1)

    return {i: task(i) for i in range(num_nodes)}


def tensors(value: object) -> Iterator[Tensor]:
    """Every tensor in a node's state."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors(each)


def played(name: str, dtype: torch.dtype, edge: Mapping[str, Any]) -> dict[NodeId, LastState]:
    """Every node's states; no message may hold NaN or infinity."""
    entry, bad = ALGORITHMS[name], list[Message]()

    def seen(message: Message) -> bool:
        if not is_finite(message.payload):
            bad.append(message)
        return False

    network = network_for(entry, STREAMS)
    params = {"local_steps": 2} | SMALL.get(name, {}) | dict(edge)
    kept = run_fleet(entry.build(EXCHANGE, **params), network.view, tasks(network.num_nodes, dtype), ROUNDS, lost=seen)
    assert not bad, f"{len(bad)} messages hold NaN or infinity, first of node {bad[0].src} in round {bad[0].round}"
    return kept


SAMPLED = ("a cosine that ends before the run", "the least float there is")
"""A rate that is 0, and one that is almost."""


@pytest.mark.parametrize(
    "edge", [pytest.param(edge, marks=[] if edge in SAMPLED else [pytest.mark.soak]) for edge in EDGES]
)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_whatever_the_rate_comes_to_a_method_stays_finite_and_near(name: str, edge: str) -> None:
    alg = ALGORITHMS[name].build(EXCHANGE, **SMALL.get(name, {}))
    for node, kept in played(name, *EDGES[edge]).items():
        for round, state in enumerate(kept.states):
            assert all(bool(x.isfinite().all()) for x in tensors(state)), f"node {node}, round {round}: {state}"
        model = kept.states[-1].model(alg)
        assert float(model.abs().max()) < FAR, f"node {node} ends at {model}"


@cache
def after_the_end(name: str) -> tuple[tuple[NodeState, ...], ...]:
    """The states of nodes whose rate is 0 from round 2 on, by node and round."""
    return tuple(tuple(kept.states) for kept in played(name, torch.float32, ENDS_EARLY).values())


@pytest.mark.parametrize("name", ["scaffold", "fedgamma", "fedlesam_s"])
def test_at_rate_0_no_control_variate_changes(name: str) -> None:
    *clients, server = after_the_end(name)
    for first, *_, last in [states[1:] for states in clients]:
        own = [state.local.inner if name != "fedlesam_s" else state.local.inner.inner for state in (first, last)]
        assert torch.equal(own[0].control, own[1].control)
    assert torch.equal(server[1].mixing.inner.vector, server[-1].mixing.inner.vector)
    assert float(server[-1].mixing.inner.vector.abs().max()) > 0


def test_at_rate_0_mofedsam_keeps_its_momentum() -> None:
    server = after_the_end("mofedsam")[-1]
    assert torch.equal(server[1].mixing.vector, server[-1].mixing.vector)
    assert float(server[-1].mixing.vector.abs().max()) > 0


def test_at_rate_0_qg_dsgdm_keeps_its_momentum_and_goes_on_mixing() -> None:
    nodes = after_the_end("qg_dsgdm")
    for states in nodes:
        assert torch.equal(states[1].local.momentum, states[-1].local.momentum)
        assert float(states[-1].local.momentum.abs().max()) > 0
    spread = [torch.stack([states[round].x for states in nodes]).std(0).max() for round in (1, -1)]
    assert spread[1] < spread[0] / 2


def test_at_rate_0_slowmo_keeps_what_the_rounds_before_have_done() -> None:
    """The average falls due in rounds 1, 3 and 5. With alpha 1 that of a round without steps is the average itself."""
    nodes = after_the_end("slowmo")
    for states in nodes:
        torch.testing.assert_close(states[3].x, states[1].x, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(states[5].mixing.momentum, states[1].mixing.momentum / 4)
        assert float(states[-1].mixing.momentum.abs().max()) > 0
