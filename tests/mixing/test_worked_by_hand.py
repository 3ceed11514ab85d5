"""Mixings worked out by hand: the bounds of what a message may say, what is decoded anew, refused, chosen and drawn."""

from __future__ import annotations

import sys
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from netdfl.compression.arrays import snapshot
from netdfl.compression.base import Compressor, EncodedVector
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.identity import IdentityCompressor
from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Acknowledgement, Inbox, Kind, Message, Payload, Role, View
from netdfl.mixing.by_loss import BOARD, ByLoss, ByLossState, Posted, draw_by_loss
from netdfl.mixing.compressed.push_sum import EdgePushSum, QuantizedPushSum
from netdfl.mixing.compressed.references import Differences, length
from netdfl.mixing.compressed.server import CompressedReports
from netdfl.mixing.compressed.step_size import StepSize, first_step_size
from netdfl.mixing.confirming import ConfirmingState
from netdfl.mixing.control import ControlAveraging
from netdfl.mixing.payloads import (
    MOST_PASSES,
    PASSES,
    encoded_vector,
    extras_of,
    followed,
    mass,
    pack,
    pack_encoded,
    scalar,
    share,
    step_size,
    unpack_encoded,
    vector,
    vectors,
)
from netdfl.mixing.push_sum import PushSum
from netdfl.training.base import Received, Update

X = torch.tensor([1.0, -2.0, 0.5, 4.0], dtype=torch.float64)
Y = torch.tensor([3.0, 0.0, -1.5, 1.0], dtype=torch.float64)
QSGD = COMPRESSORS["qsgd"]()


def view(node: int = 0, round: int = 0, **more: Any) -> View:
    """Of three nodes that all hear each other, a quarter from each."""
    others = tuple(j for j in range(3) if j != node)
    quarter = dict.fromkeys(others, 0.25)
    return View(node, round, 3, others, others, 0.5, quarter, quarter)._replace(**more)


def message(payload: Payload, src: int = 1, round: int = 0, step: int = 0) -> Message:
    return Message(src, 0, Kind.DATA, 0, round, step, 0, payload)


# the bounds of numbers


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (mass, [0, 0.0, 5e-324, 1, 1.5, sys.float_info.max], [-5e-324, -1, inf, nan, True, "1", None, [1]]),
        (step_size, [5e-324, 0.5, 1, 1.0], [0, 0.0, -0.5, 1.0000001, 2, inf, nan, True, "1", None]),
    ],
)
def test_a_number_beside_the_arrays_is_taken_up_to_its_bounds(read: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert read(message(Payload({}, {"n": value})), "n") == value
        assert type(read(message(Payload({}, {"n": value})), "n")) is float
    for value in bad:
        with pytest.raises(MalformedMessage, match="message 1->0 of round 0: expected"):
            read(message(Payload({}, {"n": value})), "n")


def test_a_number_among_the_arrays_is_one_finite_and_not_negative() -> None:
    def sent(*numbers: float) -> Message:
        return message(Payload({"n": snapshot(torch.tensor(numbers, dtype=X.dtype))}))

    for good in (0.0, 5e-324, 3.0, sys.float_info.max):
        assert scalar(sent(good), X, "n") == good
    for bad in (-5e-324, -1.0, inf, nan):
        with pytest.raises(MalformedMessage, match="a finite number 'n' from 0"):
            scalar(sent(bad), X, "n")
    with pytest.raises(MalformedMessage, match=r"vector 'n' as float64\[1\], got float64\[2\]"):
        scalar(sent(1.0, 2.0), X, "n")


def test_extras_go_under_names_of_their_own_and_come_back_by_name() -> None:
    payload = pack(X, {"control": Y, "x": -Y}, {"w": 0.5})
    assert sorted(payload.arrays) == ["extra.control", "extra.x", "x"]
    found = extras_of(message(payload), X)
    assert {name: value.tolist() for name, value in found.items()} == {"control": Y.tolist(), "x": (-Y).tolist()}
    assert dict(payload.meta) == {"w": 0.5}
    assert not pack(X).meta
    shared = share(X, 0.25, {"w": 1.0})
    assert (vector(message(shared), X).tolist(), dict(shared.meta)) == ((X / 4).tolist(), {"w": 1.0})


def test_a_passes_count_is_a_whole_number_up_to_the_most() -> None:
    compressor = IdentityCompressor()
    codes = [pack_encoded(compressor.compress(X, np.random.default_rng(0)), n) for n in range(1, MOST_PASSES + 2)]
    arrays = {name: array for code in codes for name, array in code.arrays.items()}
    for passes in (1, 2, MOST_PASSES):
        assert torch.equal(unpack_encoded(Payload(arrays, {PASSES: passes}), compressor, X), passes * X)
    for wrong in (0, MOST_PASSES + 1, 1.0, True, None):
        with pytest.raises(MalformedMessage, match=f"expected 1 to {MOST_PASSES} passes, got {wrong}"):
            unpack_encoded(Payload(arrays, {PASSES: wrong}), compressor, X)


# what is decoded once


class Factor(Compressor):
    """Says `first` of a vector at the first call, `later` afterwards."""

    def __init__(self, first: float, later: float | None = None) -> None:
        self.first, self.later, self.calls, self.decoded = first, first if later is None else later, 0, 0

    def variance(self, dim: int) -> float:
        return 0.5

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        self.calls += 1
        return EncodedVector(len(x), {"v": snapshot(x * (self.first if self.calls == 1 else self.later))})

    def decompress(self, encoded: EncodedVector) -> Tensor:
        self.decoded += 1
        found: Tensor = torch.frombuffer(bytearray(encoded.arrays["v"].data), dtype=torch.float64)
        return found


def test_a_code_is_decoded_again_for_another_compressor_type_or_shape_and_else_once() -> None:
    def coded(compressor: Compressor) -> Message:
        return message(pack_encoded(compressor.compress(X, np.random.default_rng(0))))

    for read in (encoded_vector, followed):
        one = Factor(1.0)
        sent = coded(one)
        first = read(sent, one, X)
        assert read(sent, one, X) is first
        assert one.decoded == 1
        assert read(sent, one, X.float()).dtype == torch.float32
        assert read(sent, one, X).dtype == torch.float64
        assert one.decoded == 3, "of another type"
        other = Factor(1.0)
        read(sent, other, X)
        assert (one.decoded, other.decoded) == (3, 1), "by another compressor"
    identity = IdentityCompressor()
    sent = coded(identity)
    assert len(encoded_vector(sent, identity, X)) == 4
    for read in (encoded_vector, followed):
        with pytest.raises(MalformedMessage, match="message 1->0 of round 0"):
            read(sent, identity, X[:3])


def test_an_inbox_of_vectors_is_read_as_each_message_is() -> None:
    sent = [message(pack(X * k), src=k) for k in (2, 1)]
    assert {j: v.tolist() for j, v in vectors(Inbox(sent), X).items()} == {2: (2 * X).tolist(), 1: X.tolist()}
    again = vectors(Inbox(sent), X)
    assert all(again[m.src] is vector(m, X) for m in sent)
    with pytest.raises(MalformedMessage, match=r"expected vector 'x' as float32\[4\], got float64\[4\]"):
        vectors(Inbox(sent), X.float())


# differences


@pytest.mark.parametrize(
    ("first", "later", "within", "passes", "left"),
    [
        (0.6, 0.6, inf, 1, 0.4),
        (0.45, 0.45, 0.0, 1, 0.55),  # the first pass does not halve what is missing
        (0.45, 0.9, 0.0, 1, 0.55),
        (0.5, 0.5, 0.0, MOST_PASSES, 0.5**MOST_PASSES),  # each just does
        (0.6, 0.6, 0.41, 1, 0.4),  # near enough
        (0.6, 0.6, 0.2, 2, 0.16),
        (0.55, 0.55, 0.3, 2, 0.2025),
        (0.6, 0.6, 0.1, 3, 0.064),
        (0.6, 0.6, 0.0, MOST_PASSES, 0.4**MOST_PASSES),
        (0.6, 0.4, 0.0, 1, 0.4),  # the second pass does not pay
        (0.6, -1.0, 0.0, 1, 0.4),
    ],
)
def test_a_difference_goes_in_as_many_passes_as_pay(
    first: float, later: float, within: float, passes: int, left: float
) -> None:
    how = Differences(compressor=Factor(first, later))
    reference, payload = how.send(how.first(X).start, X, view(), 0, 1, within * length(X))
    assert payload.meta.get(PASSES, 1) == passes
    assert length(X - reference.vector) == pytest.approx(left * length(X))
    assert (reference.version, payload.meta["version"], payload.meta["mark"]) == (1, 1, reference.mark)
    moved = followed(message(payload), how.compressor, torch.zeros_like(X))
    assert torch.equal(moved, reference.vector)


class Recording(Streams):
    """Remembers what was asked for."""

    def __init__(self) -> None:
        super().__init__(0)
        object.__setattr__(self, "asked", [])

    def rng(self, *key: Any) -> np.random.Generator:
        self.asked.append(key)  # type: ignore[attr-defined]
        return super().rng(*key)


def test_every_code_is_drawn_from_a_stream_of_its_own() -> None:
    streams: Any = Recording()
    how = Differences(compressor=QSGD, streams=streams)
    server = CompressedReports(inner=ControlAveraging(), differences=how, said=("control", "more"))
    at = view(2, 7, role=Role.CLIENT, server=0, out_neighbors=(0,))
    update = Update(X, Y, {"control": X, "more": Y})
    server.report_from(server.init_client(X, at), update, Received(), at)
    assert sorted(streams.asked) == [("compress", 2, 7, 1), ("compress", 2, 7, 2), ("compress", 2, 7, 3)]
    streams.asked.clear()
    edges = EdgePushSum(differences=Differences(compressor=QSGD, streams=streams), gamma=1.0)
    edges.outgoing(edges.init(X, view(2)), Update(X, X), 4, view(2, 7))
    assert {key[:5] for key in streams.asked} == {("compress", 2, 7, 4, 0), ("compress", 2, 7, 4, 1)}
    assert all(number > 1 for key in streams.asked for number in key[5:])


@pytest.mark.parametrize("refused", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", [EdgePushSum, QuantizedPushSum])
@pytest.mark.parametrize("compressor", [QSGD, IdentityCompressor()], ids=["qsgd", "identity"])
def test_whatever_was_refused_since_some_message_is_the_senders_again(
    compressor: Compressor, kind: Any, refused: int
) -> None:
    """The last `refused` of four rounds; what those before have given away is not."""
    mixing = kind(differences=Differences(compressor=compressor, mass=True), gamma=0.5)
    state, update, sent, kept = mixing.init(X, view()), Update(X, X), list[Message](), list[tuple[Tensor, float]]()
    for round in range(4):
        kept.append((update.x, state.weight))
        state, outbox = mixing.outgoing(state, update, 0, view(0, round))
        sent += [Message(0, j, Kind.DATA, 0, round, 0, 0, payload) for j, payload in outbox.items()]
        back = sent[-2 * refused :] if round == 3 else []
        mixed = mixing.mix(
            state, update, Inbox((), (), [Acknowledgement(each, False) for each in back]), 0, view(0, round)
        )
        state, update = mixed.state, mixed.update
    x, weight = kept[4 - refused]
    assert state.weight == pytest.approx(weight, rel=1e-14)
    torch.testing.assert_close(update.x, x, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", [EdgePushSum, QuantizedPushSum])
def test_an_automatic_gamma_of_push_sum_looks_at_how_far_the_model_is_from_where_references_begin(kind: Any) -> None:
    mixing = kind(differences=Differences(compressor=QSGD, common_start=True))
    at = view(out_neighbors=(), out_weights={}, self_weight=1.0)
    state = mixing.init(X, at)
    for round in range(4):
        state = state._replace(weight=0.5)
        assert state.step.distance == -1.0
        state, _ = mixing.outgoing(state, Update(Y, Y), 0, at._replace(round=round))
        state = mixing.mix(state, Update(Y, Y), Inbox(), 0, at._replace(round=round)).state
    assert state.step.distance == pytest.approx(float((2 * Y - X).square().sum()))
    fixed = kind(differences=Differences(compressor=QSGD), gamma=0.5)
    assert fixed.mix(fixed.init(X, at), Update(X, X), Inbox(), 0, at).state.step == StepSize(0.5)


@pytest.mark.parametrize("dim", [9, 5000])
@pytest.mark.parametrize("name", ["qsgd", "top_k", "sign", "low_rank"])
def test_the_first_step_is_that_of_one_normal_vector_the_same_on_every_node(name: str, dim: int) -> None:
    """4096 numbers of float64 stand for more, but where the bound goes by how many there are."""
    compressor = COMPRESSORS[name](**({"bucket": 0} if name == "sign" else {}))
    many = dim > 4096 and name in ("sign", "low_rank")
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal(dim if many else min(dim, 4096), np.float32 if many else np.float64))
    said = compressor.decompress(compressor.compress(x, rng)).double()
    kept = 1 - float((said - x).square().sum()) / float(x.double().square().sum())
    assert first_step_size("auto", compressor, dim, common_start=True).gamma == pytest.approx(kept, rel=1e-6)


# who is chosen, and who is known


def test_of_candidates_whose_loss_is_unknown_none_is_preferred() -> None:
    quiet = np.zeros(4)
    assert draw_by_loss({1: 0.5, 3: 0.1}, (0, 1, 2, 3), 2, 1.0, quiet) == (1, 3)
    assert draw_by_loss({1: 0.5}, (0, 1, 2, 3), 3, 1.0, quiet) == (0, 1, 2), "of equal ones the lower"
    assert draw_by_loss({2: 3.0}, (0, 1, 2, 3), 1, 1.0, np.array([0, 2.5, 0, 0])) == (2,)
    assert draw_by_loss({2: 3.0}, (0, 1, 2, 3), 1, 2.0, np.array([0, 2.5, 0, 0])) == (1,), "the temperature divides"
    assert draw_by_loss({2: inf, 3: 1.0}, (0, 1, 2, 3), 2, 1e-9, quiet) == (2, 3)
    for k in (4, 5):
        assert draw_by_loss({}, (0, 1, 2, 3), k, 1.0, quiet) == (0, 1, 2, 3)


def test_of_a_nodes_posted_losses_the_newest_stays_and_each_board_goes_to_all_chosen_in_one_payload() -> None:
    mixing = ByLoss(inner=PushSum(), neighbors=2, temperature=1.0, max_age=9, streams=Streams(0))
    known = {1: Posted(3, 0.5), 2: Posted(3, 0.5)}
    state = ByLossState(mixing.inner.init(X, view()), known, {}, (1, 2))
    posts = [[1, 2, 9.0], [2, 4, 7.0], [0, 4, 6.0]]
    payload = pack(X, meta={"w": 0.5, BOARD: posts})
    after = mixing.mix(state, Update(X, X), Inbox([message(payload, round=5)]), 0, view(round=5)).state
    assert after.board == {0: Posted(4, 6.0), 1: Posted(3, 0.5), 2: Posted(4, 7.0)}
    same = pack(X, meta={"w": 0.5, BOARD: [[1, 3, 9.0]]})
    again = mixing.mix(state, Update(X, X), Inbox([message(same, round=5)]), 0, view(round=5)).state
    assert again.board[1] == Posted(3, 0.5), "of the same round the first"
    _, outbox = mixing.outgoing(state, Update(X, X, loss=0.25), 0, view(round=5))
    assert sorted(outbox) == [1, 2]
    assert outbox[1] is outbox[2]
    assert outbox[1].meta[BOARD] == [[0, 5, 0.25], [1, 3, 0.5], [2, 3, 0.5]]
    assert mixing.apart({3: 1.0, 4: nan}, 2.0, {1: Posted(3, 0.5), 2: Posted(4, 0.5), 5: Posted(9, 5.0)}) == {
        1: 0.5,
        5: 3.0,
    }


def test_clients_that_were_asked_since_their_last_report_are_told_the_round_of_that() -> None:
    state = ConfirmingState(None, {0: 4, 1: 4, 2: 4, 3: 4}, {0: 4, 1: 3, 2: 5})
    assert state.unread() == {1: 3, 3: -1}
