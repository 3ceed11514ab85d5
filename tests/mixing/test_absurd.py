"""Valid messages with absurd contents: the mixing refuses them, names the sender, and keeps its state."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
import torch
from torch import Tensor

from netdfl.compression.arrays import snapshot
from netdfl.compression.catalog import qsgd
from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, Payload, View
from netdfl.mixing.by_loss import BOARD, ByLoss
from netdfl.mixing.compressed.gossip import Choco, DeepSqueeze
from netdfl.mixing.compressed.push_sum import EdgePushSum, QuantizedPushSum
from netdfl.mixing.compressed.references import Differences
from netdfl.mixing.control import ControlAveraging, MomentumAveraging
from netdfl.mixing.dynamic import SmooAveraging
from netdfl.mixing.payloads import is_finite, pack
from netdfl.mixing.push_sum import OverlappedPushSum, PushSum
from netdfl.mixing.running_sums import RunningSums
from netdfl.mixing.synthetic import SharedSynthesis
from netdfl.training.base import Update
from netdfl.training.control import MOMENTUM, PATH
from netdfl.training.distill import Distiller
from netdfl.training.guided import INPUTS, LABELS

DIM = 6
X = torch.arange(DIM, dtype=torch.float64)
COMPRESSOR = qsgd(bits=8)
NOT_A_SHARE: list[Any] = [-5.0, -1e-9, nan, inf, True, "1", None, 4.1]  # 2 nodes have no more than 4


def view(node: int) -> View:
    return View(node, 0, 2, (1 - node,), (1 - node,), 0.5, {1 - node: 0.5}, {1 - node: 0.5})


def said(mixing: Any, meta: dict[str, Any]) -> Message:
    """What node 1 sends node 0, with `meta` in place of what it says beside the vector."""
    _, outbox = mixing.outgoing(mixing.init(X, view(1)), Update(X, X, {}, 0.5), 0, view(1))
    return Message(1, 0, Kind.DATA, 0, 0, 0, 0, Payload(outbox[0].arrays, {**outbox[0].meta, **meta}))


def mix(mixing: Any, meta: dict[str, Any]) -> Tensor:
    state, update = mixing.init(-X, view(0)), Update(-X, -X, {}, 0.5)
    state, _ = mixing.outgoing(state, update, 0, view(0))
    mixed: Tensor = mixing.mix(state, update, Inbox([said(mixing, meta)]), 0, view(0)).update.x
    return mixed


def refuses(mixing: Any, meta: dict[str, Any]) -> None:
    assert bool(mix(mixing, {}).isfinite().all())
    with pytest.raises(MalformedMessage, match="message 1->0 of round 0"):
        mix(mixing, meta)


@pytest.mark.parametrize("gamma", [-1e9, 0.0, 1.5, nan, inf, True, None])
@pytest.mark.parametrize(
    "mixing", [Choco(differences=Differences(compressor=COMPRESSOR)), DeepSqueeze(compressor=COMPRESSOR)]
)
def test_a_step_size_is_above_0_and_at_most_1(mixing: Any, gamma: Any) -> None:
    refuses(mixing, {"gamma": gamma})


@pytest.mark.parametrize("w", NOT_A_SHARE)
@pytest.mark.parametrize("mixing", [PushSum(), RunningSums()])
def test_a_weight_is_finite_and_not_negative(mixing: Any, w: Any) -> None:
    refuses(mixing, {"w": w})


@pytest.mark.parametrize("w", NOT_A_SHARE)
def test_a_weight_that_comes_between_rounds_is_too(w: Any) -> None:
    bad = Message(1, 0, Kind.DATA, 0, 0, 0, 0, pack(X, meta={"w": w}))
    overlapped = OverlappedPushSum(before_training=True, lag=1)
    with pytest.raises(MalformedMessage, match="message 1->0"):
        overlapped.take(overlapped.init(X, view(0)), X, Inbox([bad]), view(0))


@pytest.mark.parametrize("name", ["w", "share"])
@pytest.mark.parametrize("value", NOT_A_SHARE)
@pytest.mark.parametrize("scheme", [QuantizedPushSum, EdgePushSum])
def test_a_share_of_a_reference_is_finite_and_not_negative(scheme: Any, name: str, value: Any) -> None:
    refuses(scheme(differences=Differences(compressor=COMPRESSOR, mass=True)), {name: value})


MOST = 4.0
"""Twice the number of nodes."""


OF_A_CODE = Differences(compressor=COMPRESSOR, mass=True)


@pytest.mark.parametrize("mixing", [PushSum(), RunningSums(), QuantizedPushSum(differences=OF_A_CODE)])
def test_a_weight_of_twice_the_number_of_nodes_is_taken(mixing: Any) -> None:
    assert bool(mix(mixing, {"w": MOST}).isfinite().all())


def test_a_weight_of_twice_the_number_of_nodes_that_comes_between_rounds_is_taken() -> None:
    overlapped = OverlappedPushSum(before_training=True, lag=1)
    heavy = Message(1, 0, Kind.DATA, 0, 0, 0, 0, pack(X, meta={"w": MOST}))
    state, _ = overlapped.take(overlapped.init(X, view(0)), X, Inbox([heavy]), view(0))
    assert state.weight == 1 + MOST


def test_a_running_sum_may_have_as_much_for_each_exchange_so_far() -> None:
    sums = RunningSums(steps=2)
    state, update = sums.init(X, view(0)), Update(X, X)

    def counts(w: float) -> Message:
        """What node 1 has sent up to the second step of round 3."""
        return Message(1, 0, Kind.DATA, 0, 3, 1, 0, pack(X, meta={"w": w}))

    assert sums.mix(state, update, Inbox([counts(8 * MOST)]), 1, view(0)).state.weight == 0.5 + 8 * MOST
    with pytest.raises(MalformedMessage, match=r"w = 32\.1 in|w from 0 to 32"):
        sums.mix(state, update, Inbox([counts(8 * MOST + 0.1)]), 1, view(0))


def test_a_counter_that_fell_is_still_a_counter() -> None:
    """A sender that lost its state counts anew: what it sends is less than before, and no mistake."""
    sums = RunningSums()
    state, update = sums.init(X, view(0)), Update(X, X)
    for round, w in enumerate((3.0, 0.5)):
        message = Message(1, 0, Kind.DATA, 0, round, 0, 0, pack(X * w, meta={"w": w}))
        state = sums.mix(state, update, Inbox([message]), 0, view(0)).state
    assert state.weight == (1.0 * 0.5 + 3.0) * 0.5 - 2.5


@pytest.mark.parametrize("post", [[1, 0, nan], [1, 0, -inf], [1, 1, 0.5], [2, 0, 0.5], [True, 0, 0.5], [1, 0, True]])
def test_a_board_holds_finite_losses_of_nodes_up_to_its_own_round(post: list[Any]) -> None:
    refuses(ByLoss(inner=PushSum(), neighbors=1, temperature=1.0, max_age=5, streams=Streams(0)), {BOARD: [post]})


def report(extras: dict[str, Tensor]) -> Inbox:
    return Inbox([Message(1, 0, Kind.DATA, 0, 0, 1, 0, pack(X, extras))])


@pytest.mark.parametrize("path", [-1.0, nan, inf])
def test_a_path_has_a_length(path: float) -> None:
    server = MomentumAveraging()
    with pytest.raises(MalformedMessage, match="message 1->0"):
        server.aggregate(
            server.init_server(X, view(0)), X, report({PATH: torch.tensor([path], dtype=X.dtype)}), view(0)
        )


def test_a_report_without_its_control_is_refused() -> None:
    server = ControlAveraging()
    with pytest.raises(MalformedMessage, match="message 1->0"):
        server.aggregate(server.init_server(X, view(0)), X, report({}), view(0))


@pytest.mark.parametrize("server", [ControlAveraging(), MomentumAveraging(), SmooAveraging(rho=0.1)])
def test_a_model_without_what_goes_beside_it_is_refused(server: Any) -> None:
    with pytest.raises(MalformedMessage, match="message 1->0"):
        server.adopt(report({}), X, view(0))


def test_a_model_with_what_goes_beside_it_is_taken() -> None:
    x, received = MomentumAveraging().adopt(report({MOMENTUM: 2 * X}), X, view(0)) or pytest.fail("nothing came")
    assert torch.equal(x, X)
    assert torch.equal(received.extras[MOMENTUM], 2 * X)


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (torch.full((2, 3), nan, dtype=torch.float64), torch.tensor([0, 1])),
        (torch.ones(2, 3, dtype=torch.float32), torch.tensor([0, 1])),
        (torch.ones(2, 3, dtype=torch.float64), torch.tensor([0, -1])),
    ],
)
def test_synthetic_examples_are_finite_and_labelled_from_0(inputs: Tensor, labels: Tensor) -> None:
    distiller = Distiller(
        per_class=1, iterations=1, steps=1, gap=1, optimizer="sgd", input_lr=1.0, rate=0.1, rate_lr=0.1
    )
    payload = Payload({**pack(X).arrays, INPUTS: snapshot(inputs), LABELS: snapshot(labels)})
    exchange = SharedSynthesis(warmup=1, distiller=distiller)
    with pytest.raises(MalformedMessage, match="message 1->0"):
        exchange.adopt(Inbox([Message(1, 0, Kind.DATA, 0, 0, 0, 0, payload)]), X, view(0))


@pytest.mark.parametrize("numbers", [3, 300, 3000])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_pass_tells_what_can_be_computed_with(dtype: torch.dtype, numbers: int) -> None:
    """The square of a vector's length is finite: in float64 for float64, in float32 for every other type."""
    computed = torch.float64 if dtype == torch.float64 else torch.float32
    most = min(torch.finfo(dtype).max, (0.99 * torch.finfo(computed).max / numbers) ** 0.5)
    large = torch.full((numbers,), most, dtype=dtype)
    assert is_finite(pack(large))
    bad = [nan, inf, -inf] + [torch.finfo(dtype).max] * (dtype != torch.float16)
    for value in bad:
        x = large.clone()
        x[numbers // 2] = value
        assert not is_finite(pack(x))
        assert not is_finite(pack(X, {"dual": x}))
    assert not is_finite(pack(torch.tensor([inf, -inf], dtype=dtype)))
    assert is_finite(pack(torch.arange(5), meta={"w": nan}))
