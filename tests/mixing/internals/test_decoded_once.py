"""A code is decoded once for all who get it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from netdfl.compression.base import Compressor
from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.types import Message
from netdfl.mixing import payloads
from netdfl.mixing.compressed.gossip import Choco, DeepSqueeze
from netdfl.mixing.compressed.push_sum import EdgePushSum, QuantizedPushSum
from netdfl.mixing.payloads import add_encoded, unpack_encoded
from tests.mixing.compressed_fleets import Fleet, differences, net, normal


def mixings(name: str, **options: Any) -> dict[str, Any]:
    """Every scheme of gossip and push-sum with the compressor `name`."""
    compressor = COMPRESSORS[name](**options)
    return {
        "choco": Choco(differences=differences(name, **options)),
        "delicoco": Choco(differences=differences(name, **options), steps=3),
        "deepsqueeze": DeepSqueeze(compressor=compressor),
        "edge": EdgePushSum(differences=differences(name, mass=True, **options)),
        "push_sum": QuantizedPushSum(differences=differences(name, mass=True, **options)),
    }


@pytest.mark.parametrize("scheme", mixings("qsgd"))
def test_a_code_is_decoded_once_for_all_who_get_it_and_nobody_writes_to_that(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[tuple[Tensor, Tensor]] = []

    def noted(found: Tensor) -> Tensor:
        decoded.append((found, found.clone()))
        return found

    def decode(message: Message, compressor: Compressor, like: Tensor, of: str) -> Tensor:
        return noted(unpack_encoded(message.payload, compressor, like))

    monkeypatch.setattr(payloads, "_decode", decode)
    monkeypatch.setattr(payloads, "add_encoded", lambda *given: noted(add_encoded(*given)))
    mixing = mixings("qsgd")[scheme]
    Fleet(mixing, net("grid", 9), normal(9, 40)).play(4)
    assert all(torch.equal(now, then) for now, then in decoded)
    if not mixing.push:  # whose messages differ by the receiver's share
        assert len(decoded) == 9 * 4 * mixing.num_steps(0, net("grid", 9).view(0, 0))
