"""Averaging at a server, plain and with a second vector beside the model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from netdfl.core.types import Inbox, Kind, Message, NodeId, Outbox, Role, View
from netdfl.mixing.averaging import Averaging
from netdfl.mixing.base import Aggregation
from netdfl.mixing.control import Beside, ControlAveraging, MomentumAveraging
from netdfl.training.base import Extras, Received, Update
from netdfl.training.sgd import NoState

W = torch.tensor([1.0, -1.0], dtype=torch.float64)
HUB, CLIENTS = 4, (0, 1, 3)
SERVER = View(HUB, 2, 4, CLIENTS, CLIENTS, 0.0, {}, {}, Role.SERVER, HUB)


def client(i: NodeId) -> View:
    return View(i, 2, 4, (HUB,), (HUB,), 0.0, {}, {}, Role.CLIENT, HUB)


def delivered(src: NodeId, outbox: Outbox, step: int) -> Inbox:
    return Inbox([Message(src, dst, Kind.DATA, 0, 2, step, 0, payload) for dst, payload in outbox.items()])


def reports(mixing: Aggregation, vectors: dict[NodeId, tuple[Tensor, Extras]]) -> Inbox:
    inbox = list[Message]()
    for i, (y, extras) in vectors.items():
        inbox += delivered(i, mixing.report(Update(W, y, extras), Received(), client(i)), 1).messages
    return Inbox(inbox)


@pytest.mark.parametrize("server_lr", [1.0, 0.5, 2.0])
def test_the_server_moves_by_the_mean_of_what_came(server_lr: float) -> None:
    mixing = Averaging(server_lr=server_lr)
    inbox = reports(mixing, {0: (W + 3, {}), 3: (W - 1, {})})
    _, x = mixing.aggregate(NoState(), W, inbox, SERVER)
    torch.testing.assert_close(x, W + server_lr, rtol=0, atol=1e-15)


@pytest.mark.parametrize("mixing", [Averaging(), ControlAveraging(), MomentumAveraging()], ids=repr)
def test_without_reports_everything_stays(mixing: Aggregation) -> None:
    before = Beside(W * 7) if mixing != Averaging() else NoState()
    state, x = mixing.aggregate(before, W, Inbox(), SERVER)
    assert torch.equal(x, W)
    assert len(state) == len(before)
    assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))


@pytest.mark.parametrize("mixing", [Averaging(), ControlAveraging(), MomentumAveraging()], ids=repr)
def test_a_client_adopts_a_vector_of_its_own_and_only_if_one_came(mixing: Aggregation) -> None:
    assert mixing.adopt(Inbox(), W, client(0)) is None
    outbox = mixing.broadcast(mixing.init_server(W, SERVER), W, SERVER)
    assert tuple(outbox) == CLIENTS
    adopted = mixing.adopt(delivered(HUB, {0: outbox[0]}, 0), W, client(0))
    assert adopted is not None
    adopted[0].zero_()
    again = mixing.adopt(delivered(HUB, {1: outbox[1]}, 0), W, client(1))
    assert again is not None
    assert torch.equal(again[0], W)


def test_the_control_goes_down_and_takes_the_mean_change_over_all_clients() -> None:
    mixing = ControlAveraging()
    state = Beside(W * 2)
    adopted = mixing.adopt(delivered(HUB, mixing.broadcast(state, W, SERVER), 0), W, client(0))
    assert adopted is not None
    assert torch.equal(adopted[1].extras["control"], W * 2)
    inbox = reports(mixing, {0: (W, {"control": W * 4}), 1: (W + 2, {"control": -W})})
    after, x = mixing.aggregate(state, W, inbox, SERVER)
    torch.testing.assert_close(after.vector, W * 2 + W * 3 / 4, rtol=0, atol=1e-15)
    torch.testing.assert_close(x, W + 1, rtol=0, atol=1e-15)


def test_the_momentum_is_the_mean_gradient_along_the_path() -> None:
    mixing = MomentumAveraging()
    one, two = torch.tensor([3.0, 1.0]).double(), torch.tensor([-1.0, 5.0]).double()
    paths = {0: 0.5, 1: 0.25, 3: 0.0}
    vectors = {0: W - 0.5 * one, 1: W - 0.25 * two, 3: W}
    inbox = reports(mixing, {i: (y, {"path": W.new_tensor([paths[i]])}) for i, y in vectors.items()})
    after, _ = mixing.aggregate(Beside(W), W, inbox, SERVER)
    torch.testing.assert_close(after.vector, (one + two) / 2, rtol=0, atol=1e-14)
