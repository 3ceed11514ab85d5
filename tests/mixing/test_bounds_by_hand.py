"""Where mixings decide: the last distance that is drift, the shortest path, who is read and who is asked to say all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from netdfl.compression.arrays import snapshot
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.identity import IdentityCompressor
from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, Payload, Role, View
from netdfl.mixing.averaging import Averaging
from netdfl.mixing.by_loss import ByLoss
from netdfl.mixing.compressed.copies import Copy, Heard, Reference, Tally
from netdfl.mixing.compressed.gossip import Choco
from netdfl.mixing.compressed.references import FULL, Differences, address, ask_others
from netdfl.mixing.compressed.server import CompressedReports
from netdfl.mixing.compressed.step_size import StepSize, watch
from netdfl.mixing.confirming import UNREAD, ConfirmingAggregation
from netdfl.mixing.control import MomentumAveraging
from netdfl.mixing.masked import MaskedAverage
from netdfl.mixing.payloads import pack, vector
from netdfl.mixing.slow_momentum import SlowMomentum
from netdfl.training.base import Received, Update

X = torch.tensor([1.0, -2.0, 0.5, 4.0], dtype=torch.float64)
Y = torch.tensor([3.0, 0.0, -1.5, 1.0], dtype=torch.float64)
CONFIRMING = ConfirmingAggregation(inner=Averaging())
AT = View(0, 0, 3, (1, 2), (1, 2), 0.5, {1: 0.25, 2: 0.25}, {1: 0.25, 2: 0.25})


def message(payload: Payload, src: int = 1, **more: Any) -> Message:
    return Message(src, 0, Kind.DATA, 0, 0, 0, 0, payload)._replace(**more)


@pytest.mark.parametrize(
    ("before", "square", "halved"),
    [(1.0, 16.0, False), (1.0, 16.25, True), (0.0, 1.0, True), (0.0, 0.0, False), (-1.0, 9e9, False)],
)
def test_models_part_where_they_are_more_than_eight_times_as_far_as_at_the_last_look(
    before: float, square: float, halved: bool
) -> None:
    own, other = torch.zeros(2), torch.tensor([square, 0.0]).sqrt()
    after = watch(StepSize(0.5, 7, before), own, {1: other}, {1: 0.5})
    assert (after.gamma, after.age) == ((0.25, 0) if halved else (0.5, 8))
    assert after.distance == pytest.approx(square / 2)
    unlooked = StepSize(0.5, 5, before)
    assert watch(unlooked, own, {1: other}, {1: 0.5}) == unlooked._replace(age=6)


def test_a_path_too_short_to_divide_by_is_none() -> None:
    server, shortest = MomentumAveraging(), 1.0 / torch.finfo(X.dtype).max
    begun = server.init_server(X, AT)._replace(vector=Y)
    for moves, expected in (
        ([(X, shortest)], Y),
        ([(X, 0.0), (2 * X, 0.5)], -2 * X),
        ([(X, 2.0), (2 * X, 0.5)], -X),
        ([(1e20 * X, 1e-300), (2 * X, 0.5)], -2 * X),  # the first is beyond what a number holds
    ):
        extras = [{"path": torch.tensor([path], dtype=X.dtype)} for _, path in moves]
        reports = [message(pack(x, extra), src) for src, ((x, _), extra) in enumerate(zip(moves, extras, strict=True))]
        state, _ = server.aggregate(begun, X, Inbox(reports), AT)
        torch.testing.assert_close(state.vector, expected)


def test_who_asks_gets_the_reference_in_full_once_and_the_rest_the_difference() -> None:
    heard = Heard(Reference(X), {}, asks=(2, 5), owed=(1, 7), tally=Tally(resyncs=1, resync_bytes=8))
    code = Payload({"code.values": snapshot(Y)}, {"a": 1})
    after, outbox = address(heard, Reference(X), code, {"gamma": 0.5}, (1, 2))
    assert sorted(outbox) == [1, 2]
    assert set(outbox[1].arrays) == {FULL, "code.values"}
    assert set(outbox[2].arrays) == {"code.values"}
    assert torch.equal(vector(message(outbox[1]), X, FULL), X)
    assert all(dict(each.meta) == {"a": 1, "gamma": 0.5, "ask": [2, 5]} for each in outbox.values())
    assert after.owed == (7,)
    assert (after.tally.resyncs, after.tally.resync_bytes) == (2, 8 + X.nbytes)
    last, asking = ask_others(after, outbox)
    assert last.asks == ()
    assert dict(asking[5].meta) == {"ask": [5]}
    assert asking[1] is outbox[1]
    whole = Payload({FULL: snapshot(X)}, {})
    again, plain = address(heard, Reference(X), whole, {}, (1,))
    assert plain[1].arrays is whole.arrays
    assert again.tally == heard.tally


def test_of_missing_neighbors_the_last_reference_stands_in_only_where_it_is_said() -> None:
    identity = IdentityCompressor()
    for how, expected in (("self", 0.75 * X + 0.25 * Y), ("last", 0.5 * X + 0.25 * Y + 0.25 * 2 * Y)):
        choco = Choco(differences=Differences(compressor=identity), gamma=1.0, on_missing=how)  # type: ignore[arg-type]
        state, _ = choco.outgoing(choco.init(X, AT), Update(X, X), 0, AT)
        known = {2: Copy(2 * Y, 3), 9: Copy(7 * Y, 0)}
        state = state._replace(heard=state.heard._replace(copies=known))
        other = choco.outgoing(choco.init(Y, AT._replace(node=1)), Update(Y, Y), 0, AT._replace(node=1))[1]
        payload = next(iter(other.values()))
        mixed = choco.mix(state, Update(X, X), Inbox([message(payload)]), 0, AT).update.x
        torch.testing.assert_close(mixed, expected)


def test_of_two_gammas_the_smaller_one_moves_both() -> None:
    qsgd = COMPRESSORS["qsgd"]()
    choco = Choco(differences=Differences(compressor=qsgd, common_start=True), gamma=0.5)
    state, _ = choco.outgoing(choco.init(X, AT), Update(X, X), 0, AT)
    for theirs, used in ((0.25, 0.25), (1.0, 0.5)):
        other = Choco(differences=choco.differences, gamma=theirs)
        at = AT._replace(node=1)
        payload = next(iter(other.outgoing(other.init(X, at), Update(X, Y), 0, at)[1].values()))
        after = choco.mix(state, Update(X, X), Inbox([message(payload)]), 0, AT)
        said = after.state.heard.copies[1].vector
        torch.testing.assert_close(after.update.x, X + used * 0.25 * (said - X))
        assert after.state.step == state.step


@pytest.mark.parametrize("feedback", ["plain", "ef14", "ef21"])
def test_what_compression_left_of_a_report_is_said_later_only_with_memory(feedback: Any) -> None:
    top = COMPRESSORS["top_k"](count=1)
    server = CompressedReports(inner=Averaging(), differences=Differences(compressor=top), feedback=feedback)
    client = AT._replace(role=Role.CLIENT, server=1, out_neighbors=(1,))
    state = server.init_client(X, client)
    move = torch.tensor([3.0, 2.0, 0.0, 0.0], dtype=X.dtype)
    state, _, read, unsaid = server.report_from(state, Update(X, X + move), Received(), client)
    assert (read - X).tolist() == [3.0, 0.0, 0.0, 0.0]
    assert not unsaid
    state, _, read, _ = server.report_from(state, Update(X, X + move), Received(), client)
    second = {"plain": [3.0, 0.0, 0.0, 0.0], "ef14": [0.0, 4.0, 0.0, 0.0], "ef21": [3.0, 2.0, 0.0, 0.0]}
    assert (read - X).tolist() == second[feedback]
    assert server.changes == ()
    assert server.moves_vanish is False


def test_a_mean_of_masks_is_for_the_next_round_where_it_is_said() -> None:
    own, theirs = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for for_next in (False, True):
        mixing = MaskedAverage(for_next=for_next)
        update = Update(X, X * own, {"mask": own, "next_mask": torch.tensor([True, False, True, True])})
        state = mixing.init(X, AT)
        _, outbox = mixing.outgoing(state, Update(Y, Y * theirs, {"mask": theirs}), 0, AT)
        mixed = mixing.mix(state, update, Inbox([message(outbox[1])]), 0, AT)
        mean = torch.tensor([2.0, 0.0, -1.5, 0.0], dtype=X.dtype)
        found = mixed.received.extras["mean"] if for_next else mixed.update.x
        torch.testing.assert_close(found, mean)
        assert (mixed.update is update) is for_next
    assert MaskedAverage() == MaskedAverage(for_next=False)


@pytest.mark.parametrize("lost", [[1], [1, 2, 3], [1, 2.0], [1.0, 2], [True, 2], [1, "2"], "12", {1: 2}, 7, [None, 1]])
def test_what_was_not_read_is_a_list_of_nodes_each_with_a_round(lost: Any) -> None:
    for good in ([], [0, 4], (1, -1, 0, 4)):
        adopted = CONFIRMING.adopt(Inbox([message(pack(X, meta={UNREAD: good}))]), X, AT)
        assert adopted is not None
        assert adopted[1].last_read == (4 if good else None)
    with pytest.raises(MalformedMessage, match="message 1->0 of round 0: expected nodes and rounds under 'unread'"):
        CONFIRMING.adopt(Inbox([message(pack(X, meta={UNREAD: lost}))]), X, AT)


def test_who_was_not_read_is_told_in_one_payload_and_where_all_were_nothing_is_added() -> None:
    at = AT._replace(role=Role.SERVER, round=3)
    state = CONFIRMING.init_server(X, at)
    assert not CONFIRMING.broadcast(state, X, at)[1].meta
    state, _ = CONFIRMING.aggregate(state, X, Inbox([message(pack(Y), 1)], [2]), at)
    outbox = CONFIRMING.broadcast(state, X, at._replace(round=4))
    assert outbox[1] is outbox[2]
    assert dict(outbox[1].meta) == {UNREAD: [2, -1]}
    state, _ = CONFIRMING.aggregate(state, X, Inbox([message(pack(Y), 2)], [1]), at._replace(round=4))
    assert dict(CONFIRMING.broadcast(state, X, at._replace(round=5))[1].meta) == {UNREAD: [1, 3]}


def test_what_wraps_a_mixing_begins_it_where_the_node_begins() -> None:
    choco = Choco(differences=Differences(compressor=IdentityCompressor(), common_start=True), gamma=1.0)
    slow = SlowMomentum(inner=choco, every=2, alpha=1.0, beta=0.5, base_mixes=True, rate=lambda view: 0.1)
    begun = slow.init(X, AT)
    assert begun.inner.own.vector is X
    assert begun.anchor is X
    assert not begun.momentum.any()
    assert slow.weight(begun) == 1.0
    chosen = ByLoss(inner=choco, neighbors=1, temperature=1.0, max_age=1, streams=Streams(0))
    assert chosen.init(X, AT).inner.own.vector is X
    assert (chosen.weight(chosen.init(X, AT)), chosen.push, chosen.num_steps(0, AT)) == (1.0, False, 1)
