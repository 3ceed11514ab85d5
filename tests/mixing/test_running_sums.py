"""Robust push-sum by running sums: what a lost message held comes with the next; nothing is lost for good."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, NodeId
from netdfl.mixing.base import Mixing
from netdfl.mixing.push_sum import PushSum
from netdfl.mixing.running_sums import RunningSums, RunningSumsState
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.training.base import Update

N, LOSS, SEEDS, ROUNDS = 16, 0.3, 4, 70


class Play:
    """A fleet's numerators and mixing states, round by round, over links that lose what the caller says."""

    def __init__(self, mixing: Mixing, seed: int, n: int = N, dim: int = 1) -> None:
        self.mixing = mixing
        self.network = Network(TOPOLOGIES["random_push"](n, Streams(seed), out_neighbors=4, redraw_every=0))
        self.x = [torch.from_numpy(row) for row in Streams(seed).rng("start").standard_normal((n, dim))]
        self.total = torch.stack(self.x).sum(0)
        self.states = [mixing.init(x, self.network.view(i, 0)) for i, x in enumerate(self.x)]
        self.round = 0

    def send(self) -> list[Message]:
        messages = []
        for i, x in enumerate(self.x):
            view = self.network.view(i, self.round)
            self.states[i], outbox = self.mixing.outgoing(self.states[i], Update(x, x), 0, view)
            messages += [Message(i, j, Kind.DATA, 0, self.round, 0, 0, payload) for j, payload in outbox.items()]
        return messages

    def mix(self, arrived: list[Message]) -> None:
        by: dict[NodeId, list[Message]] = {i: [] for i in range(len(self.x))}
        for message in arrived:
            by[message.dst].append(message)
        for i, x in enumerate(self.x):
            view = self.network.view(i, self.round)
            mixed = self.mixing.mix(self.states[i], Update(x, x), Inbox(by[i]), 0, view)
            self.states[i], self.x[i] = mixed.state, mixed.update.x
        self.round += 1

    def weights(self) -> list[float]:
        return [self.mixing.weight(state) for state in self.states]

    def error(self) -> float:
        mean = self.total / len(self.x)
        return float(
            sum((x / w - mean).abs().mean() for x, w in zip(self.x, self.weights(), strict=True)) / len(self.x)
        )


def lose(messages: list[Message], rng: np.random.Generator) -> list[Message]:
    return [m for m, draw in zip(messages, rng.random(len(messages)), strict=True) if draw >= LOSS]


def mass(play: Play) -> tuple[Tensor, float]:
    """Over nodes and counters: the sums of x and of w."""
    x, w = torch.stack(play.x).sum(0), sum(play.weights())
    states: list[RunningSumsState] = play.states
    for j, state in enumerate(states):
        for i, sent in state.sent.items():
            heard = states[i].heard.get(j)
            x = x + sent.x - (0 if heard is None else heard.x)
            w += sent.weight - (0 if heard is None else heard.weight)
    return x, w


def ends(mixing: Mixing, dim: int = 1) -> list[Play]:
    plays = []
    for seed in range(SEEDS):
        play, rng = Play(mixing, seed, dim=dim), Streams(seed).rng("loss")
        for _ in range(ROUNDS):
            play.mix(lose(play.send(), rng))
        plays.append(play)
    return plays


def test_running_sums_find_the_mean_at_thirty_per_cent_loss() -> None:
    for play in ends(RunningSums()):
        assert play.error() < 1e-8
        x, w = mass(play)
        assert w == pytest.approx(N, abs=1e-9)
        torch.testing.assert_close(x, play.total, rtol=0, atol=1e-9)


def test_naive_push_sum_agrees_on_something_else() -> None:
    plays = ends(PushSum())
    errors = [play.error() for play in plays]
    assert sum(error > 3e-3 for error in errors) >= SEEDS - 1
    assert median(errors) > 1e-2
    assert all(sum(play.weights()) < 1e-6 for play in plays)
    assert sum(play.error() > 1e-2 for play in ends(PushSum(), dim=10)) >= SEEDS - 1


def test_without_loss_it_is_push_sum() -> None:
    robust, plain = Play(RunningSums(), 3), Play(PushSum(), 3)
    for _ in range(20):
        robust.mix(robust.send())
        plain.mix(plain.send())
    torch.testing.assert_close(torch.stack(robust.x), torch.stack(plain.x), rtol=0, atol=1e-12)
    assert robust.weights() == pytest.approx(plain.weights(), abs=1e-12)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 999))
def test_loss_duplicates_and_reordering_keep_the_mass(seed: int) -> None:
    play, rng, held = Play(RunningSums(), seed, n=8, dim=2), Streams(seed).rng("chaos"), list[Message]()
    for _ in range(10):
        flight = [*held, *lose(play.send(), rng)]
        late = rng.random(len(flight)) < 0.4
        held = [m for m, is_late in zip(flight, late, strict=True) if is_late]
        now = [m for m, is_late in zip(flight, late, strict=True) if not is_late]
        play.mix([*now, *now[::3]])
        x, w = mass(play)
        assert w == pytest.approx(8, abs=1e-10)
        torch.testing.assert_close(x, play.total, rtol=0, atol=1e-10)


def test_counters_are_float64_and_shared_where_shares_are_equal() -> None:
    play = Play(RunningSums(), 0, n=8)
    play.x = [x.float() for x in play.x]
    messages = play.send()
    assert {m.payload.arrays["x"].dtype for m in messages} == {"float64"}
    assert len({id(m.payload) for m in messages if m.src == 0}) == 1
    assert len({id(counter.x) for counter in play.states[0].sent.values()}) == 1
    play.mix(messages)
    assert play.x[0].dtype == torch.float32
