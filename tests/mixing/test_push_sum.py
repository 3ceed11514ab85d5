"""Push-sum: shares of mass, none made and none lost, whenever they come."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, NodeId, View
from netdfl.mixing.payloads import mass, pack, vector
from netdfl.mixing.push_sum import PushSum, PushSumState
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.training.base import Update

PUSH = PushSum()
N, DIM = 8, 3


def start(seed: int) -> Tensor:
    return torch.from_numpy(Streams(seed).rng("x").standard_normal((N, DIM)))


def shares(network: Network, round: int, x: Tensor, w: list[float]) -> list[Message]:
    messages = []
    for i in range(N):
        view = network.view(i, round)
        _, outbox = PUSH.outgoing(PushSumState(w[i]), Update(x[i], x[i]), 0, view)
        messages += [Message(i, j, Kind.DATA, 0, round, 0, 0, payload) for j, payload in outbox.items()]
    return messages


def mix(network: Network, round: int, x: Tensor, w: list[float], messages: list[Message]) -> tuple[Tensor, list[float]]:
    after, weights = [], []
    for i in range(N):
        inbox = Inbox([m for m in messages if m.dst == i])
        mixed = PUSH.mix(PushSumState(w[i]), Update(x[i], x[i]), inbox, 0, network.view(i, round))
        after.append(mixed.update.x)
        weights.append(PUSH.weight(mixed.state))
    return torch.stack(after), weights


def test_sixty_random_rounds_keep_the_mass_and_find_the_mean() -> None:
    network = Network(TOPOLOGIES["random_push"](N, Streams(1), out_neighbors=3))
    x0 = x = start(1)
    w = [1.0] * N
    for round in range(60):
        x, w = mix(network, round, x, w, shares(network, round, x, w))
        assert abs(sum(w) - N) < 1e-10
        torch.testing.assert_close(x.sum(0), x0.sum(0), rtol=0, atol=1e-10)
    z = x / torch.tensor(w, dtype=torch.float64)[:, None]
    torch.testing.assert_close(z, x0.mean(0).expand_as(z), rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 999))
def test_what_is_late_is_mass_in_flight(seed: int) -> None:
    """Hold shares back at random and hand them in later: the sum over nodes and what is held never changes."""
    network = Network(TOPOLOGIES["random_push"](N, Streams(seed), out_neighbors=2))
    rng, x, w = Streams(seed).rng("late"), start(seed), [1.0] * N
    total, held = x.sum(0), list[Message]()
    for round in range(8):
        flight = held + shares(network, round, x, w)
        late = rng.random(len(flight)) < 0.4
        held = [m for m, is_late in zip(flight, late, strict=True) if is_late]
        x, w = mix(network, round, x, w, [m for m, is_late in zip(flight, late, strict=True) if not is_late])
        in_flight = sum((vector(m, x[0]) for m in held), torch.zeros(DIM, dtype=torch.float64))
        torch.testing.assert_close(x.sum(0) + in_flight, total, rtol=0, atol=1e-12)
        assert sum(w) + sum(mass(m, "w") for m in held) == pytest.approx(N, abs=1e-12)


def test_a_lost_share_is_lost_in_both_so_the_ratio_stays_in_range() -> None:
    network = Network(TOPOLOGIES["directed_ring"](N, Streams(0)))
    x, w = start(0), [1.0] * N
    low, high = x.min(0).values, x.max(0).values
    for round in range(10):
        x, w = mix(network, round, x, w, shares(network, round, x, w)[::2])
        z = x / torch.tensor(w, dtype=torch.float64)[:, None]
        assert bool(((z >= low - 1e-12) & (z <= high + 1e-12)).all())
    assert sum(w) < N / 2


def test_equal_shares_are_one_payload_and_unequal_ones_are_scaled_each() -> None:
    x = torch.ones(DIM, dtype=torch.float64)
    view = View(0, 0, N, (1, 2, 3), (), 0.25, {}, {1: 0.25, 2: 0.25, 3: 0.5})
    _, outbox = PUSH.outgoing(PushSumState(0.8), Update(x, x), 0, view)
    assert outbox[1] is outbox[2]
    assert [outbox[j].meta["w"] for j in (1, 2, 3)] == [0.2, 0.2, 0.4]
    assert torch.equal(vector(message(3, outbox[3]), x), x * 0.5)


def message(dst: NodeId, payload: object, src: NodeId = 0) -> Message:
    return Message(src, dst, Kind.DATA, 0, 4, 0, 0, payload)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [{}, {"w": "1"}, {"w": float("nan")}, {"w": float("inf")}, {"w": None}])
def test_a_share_without_a_finite_weight_is_malformed(bad: dict[str, object]) -> None:
    x = torch.ones(DIM)
    with pytest.raises(MalformedMessage, match="3->0 of round 4"):
        PUSH.mix(
            PushSumState(1.0),
            Update(x, x),
            Inbox([message(0, pack(x, meta=bad), src=3)]),  # type: ignore[arg-type]
            0,
            View(0, 4, N, (), (), 1.0, {}, {}),
        )


@pytest.mark.parametrize("other", [torch.ones(DIM + 1), torch.ones(DIM, dtype=torch.float64), torch.ones(1, DIM)])
def test_a_vector_of_another_shape_or_kind_is_malformed(other: Tensor) -> None:
    with pytest.raises(MalformedMessage, match=r"expected vector 'x' as float32\[3\], got float"):
        vector(message(0, pack(other)), torch.ones(DIM))
    with pytest.raises(MalformedMessage, match="got nothing"):
        vector(message(0, pack(other)), torch.ones(DIM), "extra.mask")
