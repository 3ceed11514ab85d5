"""A lost report counts as not having taken part: for the client's half of the sum as for the server's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from compressed_fleets import each_lost
from compressed_server import CLIENTS, DIM, optimum
from torch import Tensor

from netdfl.algorithms.base import NodeState
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, Payload, Role, View
from netdfl.mixing.averaging import Averaging
from netdfl.mixing.confirming import UNREAD, ConfirmingAggregation
from netdfl.mixing.payloads import pack
from netdfl.testing.loopback import run_fleet
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.training.base import Received
from netdfl.training.catalog import quadratic
from netdfl.training.control import CONTROL, ScaffoldSolver
from netdfl.training.rollback import Rollback
from netdfl.training.sgd import LocalSgd

NETWORK = Network(TOPOLOGIES["star"](CLIENTS + 1, Streams(1)), server=CLIENTS)
EXCHANGE = Exchange(wait=WaitPolicy(deadline_ns=1_000_000))
EF21 = replace(EXCHANGE, compressor=COMPRESSORS["top_k"](fraction=0.5), scheme="ef21")
HALVES = {"scaffold": "control", "fedlesam_s": "control", "feddyn": "drift", "fedlesam_d": "drift"}


def under_loss(
    name: str, num_rounds: int, share: float, exchange: Exchange = EXCHANGE, until: int = 1 << 20, **params: Any
) -> dict[int, NodeState]:
    """Every node's last state after rounds in which reports were lost, up to the round `until`."""
    tasks = {i: quadratic(i, Streams(1), dim=DIM, condition=3.0) for i in range(CLIENTS + 1)}
    alg = ALGORITHMS[name].build(exchange, lr=0.05, local_steps=2, **params)
    lost = each_lost(share, 100)
    kept = run_fleet(
        alg, NETWORK.view, tasks, num_rounds, lost=lambda m: m.dst == CLIENTS and m.round < until and lost(m)
    )
    return {i: node.states[-1] for i, node in kept.items()}


def half(state: NodeState, name: str) -> Tensor:
    local = state.local
    while not hasattr(local, name):
        local = local.inner
    vector: Tensor = getattr(local, name)
    return vector


@pytest.mark.parametrize(
    ("name", "exchange", "num_rounds"),
    [
        pytest.param("scaffold", EXCHANGE, 160, marks=pytest.mark.soak, id="scaffold-plain"),
        pytest.param("scaffold", EF21, 160, id="scaffold-ef21"),
        pytest.param("feddyn", EXCHANGE, 250, id="feddyn-plain"),
        pytest.param("feddyn", EF21, 400, marks=pytest.mark.soak, id="feddyn-ef21"),
    ],
)
def test_lost_reports_do_not_move_the_fleets_optimum(name: str, exchange: Exchange, num_rounds: int) -> None:
    x = under_loss(name, num_rounds, 0.2, exchange)[CLIENTS].x
    assert float((x - optimum()).norm()) < 0.01


@pytest.mark.parametrize("name", HALVES)
def test_both_halves_of_the_sum_agree_once_all_reports_come_again(name: str) -> None:
    states = under_loss(name, 14, 0.4, until=12)
    mean = torch.stack([half(states[i], HALVES[name]) for i in range(CLIENTS)]).mean(0)
    mixing = states[CLIENTS].mixing.inner
    assert float(mean.norm()) > 1e-3
    torch.testing.assert_close(mixing[0], mean, rtol=0, atol=1e-12)


def test_a_dual_that_is_told_by_its_changes_is_the_servers_once_all_reports_come_again() -> None:
    changes = replace(EXCHANGE, compressor=COMPRESSORS["top_k"](fraction=0.5), scheme="plain", extras="compressed")
    states = under_loss("fedsmoo", 14, 0.4, changes, until=12)
    told = states[CLIENTS].mixing.inner.inner.duals
    for node in range(CLIENTS):
        dual = half(states[node], "dual")
        assert float(dual.norm()) > 1e-3
        torch.testing.assert_close(told[node], dual, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("last_read", "taken_back"), [(None, False), (2, False), (1, True), (-1, True)])
def test_only_a_report_that_was_not_read_is_taken_back(last_read: int | None, taken_back: bool) -> None:
    """The client reported in round 2; the server has asked it since, which it may never have heard."""
    controlled = ScaffoldSolver(LocalSgd(lr=0.05, steps=2))
    solver, task, view = Rollback(controlled), quadratic(0, Streams(1), dim=DIM), View(0, 2, 3, (3,), (3,), 0.0, {}, {})
    x = task.initial()
    common = {CONTROL: torch.ones_like(x)}
    begun = solver.init(x, view)
    once, _ = solver.train(begun, x, Received(common), 1.0, task.data(2), view)
    later = view._replace(round=5)
    twice, _ = solver.train(once, x, Received(common, last_read=last_read), 1.0, task.data(5), later)
    base = begun.inner if taken_back else once.inner
    expected, _ = controlled.train(base, x, Received(common), 1.0, task.data(5), later)
    assert torch.equal(twice.inner.control, expected.control)
    assert not torch.equal(begun.inner.control, once.inner.control)


def test_where_all_reports_come_nothing_is_added_and_what_is_absurd_is_refused() -> None:
    w = torch.zeros(3)
    mixing = ConfirmingAggregation(inner=Averaging())
    server = View(2, 4, 3, (0, 1), (0, 1), 0.0, {}, {}, Role.SERVER, 2)
    came = [Message(i, 2, Kind.DATA, 0, 4, 1, 0, pack(w + 1)) for i in (0, 1)]
    state, _ = mixing.aggregate(mixing.init_server(w, server), w, Inbox(came), server)
    assert mixing.broadcast(state, w, server)[0].meta == {}
    state, _ = mixing.aggregate(state, w, Inbox(came[:1]), server._replace(round=5))
    told = mixing.broadcast(state, w, server)
    assert told[0] is told[1]
    assert told[0].meta == {UNREAD: [1, 4]}
    client = View(1, 6, 3, (2,), (2,), 0.0, {}, {}, Role.CLIENT, 2)
    adopted = mixing.adopt(Inbox([Message(2, 1, Kind.DATA, 0, 6, 0, 0, told[1])]), w, client)
    assert adopted is not None
    assert adopted[1].last_read == 4
    bad = Message(2, 1, Kind.DATA, 0, 6, 0, 0, Payload(pack(w).arrays, {UNREAD: [1]}))
    with pytest.raises(MalformedMessage, match="unread"):
        mixing.adopt(Inbox([bad]), w, client)
