"""Compression and loss together: references that a lost message leaves behind are found out, asked for, and mended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_fleets import HERE, Fleet, differences, each_lost, net, normal
from compressed_server import fleet_under_loss, optimum

from netdfl.core.errors import TrainingError
from netdfl.core.types import Acknowledgement, Inbox, Kind, Message
from netdfl.mixing.compressed.gossip import Choco, DeepSqueeze
from netdfl.mixing.compressed.push_sum import EdgePushSum, QuantizedPushSum
from netdfl.node.checkpoint import load_state, save_state
from netdfl.testing.contract import equal
from netdfl.training.base import Update

EDGE = EdgePushSum(differences=differences("qsgd", mass=True))
STATIC = QuantizedPushSum(differences=differences("qsgd", mass=True))
CHOCO = Choco(differences=differences("qsgd"))


@pytest.mark.parametrize("on_missing", ["self", "last"])
def test_choco_recovers_from_loss(on_missing: Any) -> None:
    """Under 10 % loss for 25 rounds copies are mended, and without loss nodes agree as ever, on a mean that moved."""
    fleet = Fleet(replace(CHOCO, on_missing=on_missing), net("grid", 6), normal(6, 64), each_lost(0.1, 25)).play(120)
    z = torch.stack(fleet.x)
    assert float((z - z.mean(0)).abs().max()) < 1e-6
    assert fleet.error() < 0.5
    for i, state in enumerate(fleet.states):
        for j, copy in state.heard.copies.items():
            assert torch.equal(copy.vector, fleet.states[j].own.vector), (i, j)
    tallies = [state.heard.tally for state in fleet.states]
    assert sum(t.resyncs for t in tallies) > 10
    assert sum(t.resync_bytes for t in tallies) == 64 * 8 * sum(t.resyncs for t in tallies)


@pytest.mark.parametrize(("mixing", "graph"), [(EDGE, {}), (STATIC, {"redraw_every": 0})])
def test_push_sum_loses_what_the_network_loses_and_nothing_else(mixing: Any, graph: dict[str, Any]) -> None:
    """Nodes, what waits, lost messages, and the little behind a second gap hold all of w, at every round."""
    fleet = Fleet(mixing, net("random_push", 8, out_neighbors=3, **graph), normal(8, 32), each_lost(0.1, 30))
    for _ in range(50):
        fleet.play(1)
        lost = sum(float(m.payload.meta.get("w", 0.0)) for m in fleet.lost_messages)
        waits = sum(p.share.w for s in fleet.states for c in s.heard.copies.values() for p in c.pending)
        behind = sum(s.heard.tally.lost_w for s in fleet.states)
        assert float(fleet.weights.sum()) + waits + lost + behind == pytest.approx(8, abs=1e-12)
    assert behind < 0.2 * lost
    assert sum(s.heard.tally.gaps for s in fleet.states) > 5
    z = torch.stack(fleet.x) / fleet.weights[:, None]
    assert float((z - z.mean(0)).abs().max()) < 1e-3
    assert waits == 0


def test_deepsqueeze_needs_no_mending() -> None:
    squeeze = DeepSqueeze(compressor=differences("qsgd").compressor)
    fleet = Fleet(squeeze, net("random_sym", 9), normal(9, 64), each_lost(0.1, 20)).play(60)
    z = torch.stack(fleet.x)
    assert float((z - z.mean(0)).abs().max()) < 0.1


def test_each_loss_moves_deepsqueezes_mean_for_good_and_chocos_only_until_nodes_agree() -> None:
    how, start = differences("top_k", fraction=0.25), normal(5, 32)
    shifts = []
    for mixing in (DeepSqueeze(compressor=how.compressor), Choco(differences=how)):
        fleet = Fleet(mixing, net("ring", 5), start, each_lost(0.1))
        shifts.append([float((fleet.play(n).total / 5 - start.mean(0)).square().mean().sqrt()) for n in (40, 100)])
    (squeeze, later), (choco, settled) = shifts
    assert later > 1.5 * squeeze
    assert settled == pytest.approx(choco, rel=1e-3)


def test_ef21_at_a_server_survives_lost_reports() -> None:
    assert float((fleet_under_loss("ef21", 0.1) - optimum()).norm()) < 1e-7


@pytest.mark.parametrize("mixing", [CHOCO, EDGE, STATIC], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("kept", [True, False])
def test_a_crash_and_restart(mixing: Any, kept: bool, tmp_path: Path) -> None:
    """With kept state nothing happens; without, copies are mended at the price of full references."""
    options = {"out_neighbors": 3, "redraw_every": 0}
    network = net("random_push", 8, **options) if mixing.push else net("grid", 8)
    fleet = Fleet(mixing, network, normal(8, 32)).play(10)
    first = mixing.init(fleet.start[2], network.view(2, 0))
    if kept:
        save_state(fleet.states[2], tmp_path / "2")
        fleet.states[2] = load_state(tmp_path / "2", first)
    else:
        fleet.states[2], fleet.x[2] = first, fleet.start[2].clone()
    fleet.epochs[2] = 1
    fleet.play(20)
    if kept:
        undisturbed = Fleet(mixing, network, fleet.start).play(30)
        assert torch.equal(torch.stack(fleet.x), torch.stack(undisturbed.x))
        return
    assert sum(s.heard.tally.resyncs for s in fleet.states) > 0
    fleet.play(60)
    z = torch.stack(fleet.x) / fleet.weights[:, None]
    assert float((z - z.mean(0)).abs().max()) < 1e-5


@pytest.mark.parametrize("mixing", [CHOCO, EDGE, STATIC], ids=lambda m: type(m).__name__)
def test_a_crash_whose_first_message_afterwards_is_lost(mixing: Any) -> None:
    """Versions fit then, contents do not: both neighbors ask, and their copies are mended bit for bit."""
    network = net("ring", 4)
    fleet = Fleet(mixing, network, normal(4, 40), lambda m: (m.src, m.dst, m.epoch, m.round) == (3, 0, 1, 1)).play(1)
    fleet.states[3], fleet.x[3] = mixing.init(fleet.start[3], network.view(3, 0)), fleet.start[3].clone()
    fleet.epochs[3] = 1
    fleet.play(79)
    copy, sender = fleet.states[0].heard.copies[3], fleet.states[3]
    assert torch.equal(copy.vector, (sender.sent[0] if mixing is EDGE else sender.own).vector)
    assert fleet.states[0].heard.tally.gaps > 0
    assert sender.heard.tally.resyncs == 2
    z = torch.stack(fleet.x) / fleet.weights[:, None]
    assert float((z - z.mean(0)).abs().max()) < 1e-9


@pytest.mark.parametrize(
    "mixing",
    [CHOCO, EDGE, STATIC, DeepSqueeze(compressor=CHOCO.differences.compressor)],
    ids=lambda m: type(m).__name__,
)
def test_state_survives_save_and_load_while_something_waits(mixing: Any, tmp_path: Path) -> None:
    network = net("random_push", 6, out_neighbors=2, redraw_every=0) if mixing.push else net("ring", 6)
    fleet = Fleet(mixing, network, normal(6, 16), each_lost(0.3)).play(6)
    for i, state in enumerate(fleet.states):
        save_state(state, tmp_path / "state")
        assert equal(load_state(tmp_path / "state", mixing.init(fleet.start[i], network.view(i, 0))), state)


def test_a_model_that_is_not_finite_is_refused() -> None:
    x = torch.tensor([1.0, float("inf")])
    with pytest.raises(TrainingError, match=r"^can't compress: x\[1\] is inf"):
        CHOCO.outgoing(CHOCO.init(x, HERE), Update(x, x), 0, HERE)


def test_what_a_receiver_refuses_is_the_senders_again() -> None:
    """Three versions refused in a row, and one that was taken before: the sums are exact."""
    x, view = normal(1, 12)[0], HERE
    state = EDGE.init(x, view)
    refused: list[Message] = []
    current = Update(x, x)
    taken_x, taken_w = torch.zeros_like(x), 0.0
    for round in range(4):
        now = view._replace(round=round)
        state, outbox = EDGE.outgoing(state, current, 0, now)
        message = Message(0, 1, Kind.DATA, 0, round, 0, 0, outbox[1])
        if round == 0:
            share = float(message.payload.meta["w"])  # type: ignore[arg-type]
            taken_x, taken_w = state.sent[1].vector * share, share
        else:
            refused.append(message)
        answers = [Acknowledgement(message, False) for message in refused] if round == 3 else []
        mixed = EDGE.mix(state, current, Inbox(acknowledgements=answers), 0, now)
        state, current = mixed.state, mixed.update
    torch.testing.assert_close(current.x + taken_x, x, rtol=0, atol=1e-14)
    assert state.weight + taken_w == pytest.approx(1.0, abs=1e-14)
