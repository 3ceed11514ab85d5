"""Every mixing where nobody is there, whatever the weights: a model stays what it was, and every number finite."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch

from netdfl.algorithms.base import Algorithm, NodeState
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.families import first_state
from netdfl.algorithms.overlap import given, taken
from netdfl.compression.identity import IdentityCompressor
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, Outbox, Role, View
from netdfl.mixing.gossip import Gossip
from netdfl.mixing.payloads import is_finite
from netdfl.training.base import Update

X = torch.tensor([1.0, -3.0, 0.25, 0.0, 7e3])
OTHER = torch.tensor([2.0, 5.0, -0.5, 1.0, 1e3])
STREAMS = Streams(0)
SELF_WEIGHTS = (1.0, 0.5, 0.0, 1e-17, 5e-324)
ROUNDS = 6


def exchanges() -> Iterator[tuple[str, Exchange]]:
    """Every way in which a scenario may have messages exchanged."""
    for on_missing in ("self", "last", "renormalise", "undo"):
        yield on_missing, Exchange(on_missing=on_missing, streams=STREAMS)
    yield "running_sums", Exchange(delivery="running_sums", streams=STREAMS)
    for scheme in ("auto", "deepsqueeze", "push_sum", "unsafe", "ef14", "ef21"):
        yield scheme, Exchange(compressor=IdentityCompressor(), scheme=scheme, streams=STREAMS)


def mixings() -> dict[str, Algorithm]:
    """One algorithm for each different mixing that the catalog builds."""
    found: dict[str, Algorithm] = {}
    for (name, entry), (how, exchange) in product(ALGORITHMS.items(), exchanges()):
        try:
            alg = entry.build(exchange, **({"every": 1} if name == "slowmo" else {}))
        except ValueError:
            continue  # which does not go with such an exchange
        if all(repr(alg.mixing) != repr(other.mixing) for other in found.values()):
            found[f"{name}-{how}"] = alg
    return found


MIXINGS = mixings()
PEERS = {key: alg for key, alg in MIXINGS.items() if alg.family in ("gossip", "overlap")}
SERVERS = {key: alg for key, alg in MIXINGS.items() if alg.family == "server"}


def view(node: int, round: int, own: float, *, alone: bool = False) -> View:
    """A node of three that all hear each other, or of none."""
    others = () if alone else tuple(j for j in range(3) if j != node)
    weights = dict.fromkeys(others, (1.0 - own) / 2)
    return View(node, round, 3, others, others, 1.0 if alone else own, weights, weights)


def mixed(alg: Algorithm, s: NodeState, inbox: Inbox, at: View) -> NodeState:
    """The state after a round in which nothing is trained and `inbox` came."""
    update = Update(s.x, s.x.clone(), loss=0.5)
    if alg.family == "overlap":
        s, outbox = given(alg, s, at)
        assert_finite(outbox)
        s = taken(alg, s, inbox, at)
        return s.end_round(alg, update._replace(x=s.x), at)
    for step in range(alg.mixing.num_steps(at.round, at)):
        s, outbox = s.outgoing(alg, update, step, at)
        assert_finite(outbox)
        s, update = s.mix(alg, update, inbox if step == 0 else Inbox(), step, at)
    return s.end_round(alg, update, at)


def assert_finite(outbox: Outbox) -> None:
    assert all(is_finite(payload) for payload in outbox.values())


def share_of_another(alg: Algorithm, at: View) -> Message:
    """What node 1, at `OTHER`, sends to node 0."""
    s, update = first_state(OTHER, alg, at), Update(OTHER, OTHER, loss=0.25)
    outbox = given(alg, s, at)[1] if alg.family == "overlap" else s.outgoing(alg, update, 0, at)[1]
    return Message(1, 0, Kind.DATA, 0, at.round, 0, 0, outbox[0])


@pytest.mark.parametrize("own", SELF_WEIGHTS)
@pytest.mark.parametrize("key", PEERS)
def test_who_hears_nobody_keeps_its_model_whatever_its_weight_of_itself(key: str, own: float) -> None:
    alg = PEERS[key]
    s = first_state(X, alg, view(0, 0, own))
    for round in range(ROUNDS):
        s = mixed(alg, s, Inbox([], [1, 2]), view(0, round, own))
        torch.testing.assert_close(s.model(alg), X, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("key", PEERS)
def test_who_has_no_neighbors_keeps_its_model(key: str) -> None:
    alg = PEERS[key]
    s = first_state(X, alg, view(0, 0, 1.0, alone=True))
    for round in range(ROUNDS):
        s = mixed(alg, s, Inbox(), view(0, round, 1.0, alone=True))
    torch.testing.assert_close(s.model(alg), X, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("own", SELF_WEIGHTS)
@pytest.mark.parametrize("key", PEERS)
def test_one_who_is_there_leaves_the_model_between_the_two(key: str, own: float) -> None:
    alg = PEERS[key]
    s = first_state(X, alg, view(0, 0, own))
    came = share_of_another(alg, view(1, 0, 0.5))
    z = mixed(alg, s, Inbox([came], [2]), view(0, 0, own)).model(alg)
    slack = 1e-5 * torch.maximum(X.abs(), OTHER.abs())
    assert bool(((z >= torch.minimum(X, OTHER) - slack) & (z <= torch.maximum(X, OTHER) + slack)).all()), z


PUSH = [key for key, alg in PEERS.items() if alg.mixing.push and alg.mixing.num_steps(0, view(0, 0, 0.5)) == 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("key", PUSH)
def test_a_weight_may_underflow_and_a_share_brings_the_node_back(key: str, dtype: torch.dtype) -> None:
    """It gives and hears nothing for longer than any float lasts; its model is what it was, and trains from there."""
    alg, start, own = PEERS[key], X.to(dtype), 0.25
    s = first_state(start, alg, view(0, 0, own))
    for round in range(160):
        s = mixed(alg, s, Inbox([], [1, 2]), view(0, round, own))
    torch.testing.assert_close(s.model(alg), start, rtol=1e-5, atol=1e-6)
    if dtype is torch.float32:
        s = mixed(alg, s, Inbox([share_of_another(alg, view(1, 160, 0.5))], [2]), view(0, 160, own))
        torch.testing.assert_close(s.model(alg), OTHER, rtol=1e-5, atol=1e-6)
        assert s.z is None


@pytest.mark.parametrize("key", SERVERS)
def test_a_server_that_hears_nobody_keeps_its_model(key: str) -> None:
    alg = SERVERS[key]
    at = View(3, 0, 4, (0, 1, 2), (0, 1, 2), 1.0, {}, {}, role=Role.SERVER)
    s = first_state(X, alg, at)
    assert_finite(alg.mixing.broadcast(s.mixing, s.x, at))
    mixing, x = alg.mixing.aggregate(s.mixing, s.x, Inbox([], [0, 1, 2]), at)
    assert torch.equal(x, X)
    assert_finite(alg.mixing.broadcast(mixing, x, at))


@pytest.mark.parametrize("key", SERVERS)
def test_a_client_that_hears_nobody_has_no_round(key: str) -> None:
    at = View(0, 0, 4, (3,), (3,), 1.0, {}, {}, role=Role.CLIENT, server=3)
    assert SERVERS[key].mixing.adopt(Inbox([], [3]), X, at) is None


@pytest.mark.parametrize("key", [key for key, alg in MIXINGS.items() if alg.family == "bilateral"])
def test_who_gets_no_reply_or_has_nobody_to_ask_stays_where_it_is(key: str) -> None:
    mixing = MIXINGS[key].mixing
    assert mixing.peer(view(0, 0, 1.0, alone=True)) is None
    assert torch.equal(mixing.settle(X, Inbox([], [1])), X)


@pytest.mark.parametrize("weights", [(1e-12, 2e-12), (5e-324, 5e-324), (0.0, 1e-300), (1e-10, 0.0)])
def test_renormalised_the_little_that_is_there_is_all(weights: tuple[float, float]) -> None:
    own, other = weights
    at = View(0, 0, 3, (1, 2), (1, 2), own, {1: other, 2: 1.0}, {})
    gossip: Any = Gossip(on_missing="renormalise")
    came = Message(1, 0, Kind.DATA, 0, 0, 0, 0, gossip.outgoing(None, Update(OTHER, OTHER), 0, at)[1][1])
    found = gossip.mix(gossip.init(X, at), Update(X, X), Inbox([came], [2]), 0, at).update.x
    share = own / (own + other)
    torch.testing.assert_close(found, share * X + (1 - share) * OTHER)


def test_the_catalog_has_these_mixings() -> None:
    """Else nothing above was asked of anybody."""
    kinds = {type(alg.mixing).__name__ for alg in MIXINGS.values()}
    assert {"Gossip", "PushSum", "RunningSums", "OverlappedPushSum", "Choco", "EdgePushSum", "Averaging"} <= kinds
