"""A mask travels in bits of whole bytes, at any length; how late a share may come; what a compressor refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.compression.arrays import snapshot
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.identity import IdentityCompressor
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Inbox, Kind, Message, Payload, View
from netdfl.mixing.masked import MaskedAverage
from netdfl.mixing.payloads import followed, pack_encoded
from netdfl.training.base import Update
from netdfl.training.masked import MASK, NEXT_MASK
from netdfl.training.sgd import NoState

VIEW = View(0, 0, 2, (1,), (1,), 0.5, {1: 0.5}, {1: 0.5})


def update(size: int, seed: int) -> Update:
    generator = torch.Generator().manual_seed(seed)
    masks = {name: torch.rand(size, generator=generator) < 0.5 for name in (MASK, NEXT_MASK)}
    x = torch.randn(size, generator=generator) * masks[MASK]
    return Update(x, x, masks)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 17, 72, 100])
def test_the_mean_is_over_those_that_have_a_coordinate(size: int) -> None:
    mixing, ours, theirs = MaskedAverage(), update(size, 1), update(size, 2)
    payload = mixing.outgoing(NoState(), theirs, 0, VIEW)[1][1]
    message = Message(1, 0, Kind.DATA, 0, 0, 0, 0, payload)
    found = mixing.mix(NoState(), ours, Inbox([message]), 0, VIEW).update.x
    count = (ours.extras[MASK].float() + theirs.extras[MASK].float()).clamp(min=1)
    assert torch.allclose(found, (ours.x + theirs.x) / count * ours.extras[NEXT_MASK])
    short = {name: array for name, array in payload.arrays.items() if name != MASK}
    for arrays in (short, {**short, MASK: snapshot(torch.zeros(size // 8 + 2, dtype=torch.uint8))}):
        with pytest.raises(MalformedMessage, match=f"expected a mask of {size} bits, got"):
            mixing.mix(NoState(), ours, Inbox([message._replace(payload=Payload(arrays))]), 0, VIEW)


@pytest.mark.parametrize(
    ("name", "tau", "lag"), [("asyng", 1, 0), ("asyng", 3, 2), ("asyng", None, None), ("overlap_sgp", 2, 1)]
)
def test_a_share_may_come_a_round_less_late_than_tau(name: str, tau: int | None, lag: int | None) -> None:
    assert ALGORITHMS[name].build(Exchange(), tau=tau).mixing.lag == lag


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["identity", "float16", "bfloat16"])
def test_whole_vectors_of_any_type_are_refused_where_a_number_is_not_finite(name: str, dtype: torch.dtype) -> None:
    compressor = COMPRESSORS[name]()
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"x\[1\] is (nan|inf), and 1 of 3 numbers"):
            compressor.compress(torch.tensor([1.0, bad, 2.0], dtype=dtype), np.random.default_rng(0))


def test_a_difference_is_followed_once_for_all_receivers_and_again_for_another_kind() -> None:
    identity, base = IdentityCompressor(), torch.ones(3)
    payload = pack_encoded(identity.compress(torch.full((3,), 2.0), np.random.default_rng(0)))
    message = Message(1, 0, Kind.DATA, 0, 0, 0, 0, payload)
    first = followed(message, identity, base)
    assert torch.equal(first, torch.full((3,), 3.0))
    assert followed(message, identity, base) is first
    assert followed(message, identity, base.double()).dtype == torch.float64
