"""Vectors are read to where the node's own lies, and an automatic step size is looked at where it is left to netdfl."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch

from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.types import Inbox, Kind, Message, View
from netdfl.mixing.compressed.gossip import Choco, DeepSqueeze
from netdfl.mixing.compressed.references import Differences
from netdfl.mixing.compressed.step_size import StepSize
from netdfl.mixing.payloads import encoded_vector, followed, pack, pack_encoded, vector, vectors
from netdfl.training.base import Update

X = torch.tensor([1.0, -2.0, 0.5, 4.0], dtype=torch.float64)
AT = View(0, 0, 2, (1,), (1,), 0.5, {1: 0.5}, {1: 0.5})
QSGD = COMPRESSORS["qsgd"]()


def test_vectors_come_to_the_device_of_the_nodes_own() -> None:
    """The device without memory stands for any other."""
    elsewhere = torch.empty(4, dtype=X.dtype, device="meta")
    sent = [Message(src, 0, Kind.DATA, 0, 0, 0, 0, pack(src * X)) for src in (1, 2)]
    for like, device in ((X, "cpu"), (elsewhere, "meta"), (X, "cpu"), (elsewhere, "meta")):
        found = vectors(Inbox(sent), like)
        assert {each.device.type for each in found.values()} == {device}
        assert vector(sent[0], like).device.type == device
    assert torch.equal(vectors(Inbox(sent), X)[2], 2 * X)

    coded = Message(1, 0, Kind.DATA, 0, 0, 0, 0, pack_encoded(QSGD.compress(X, np.random.default_rng(0))))
    for like, device in ((X, "cpu"), (elsewhere, "meta")):
        assert encoded_vector(coded, QSGD, like).device.type == device
    assert followed(coded, QSGD, 0 * X).device.type == "cpu"


def test_a_vector_is_read_once_and_freed_with_its_message_so_the_next_one_there_is_read_anew() -> None:
    for value in range(100):  # many a payload lies where the one before it did
        sent = Message(1, 0, Kind.DATA, 0, 0, 0, 0, pack(value + X))
        read = vector(sent, X)
        assert torch.equal(read, value + X)
        assert vectors(Inbox([sent]), X)[1] is read is vector(sent, X)
        freed = ref(read)
        del read
        assert freed() is not None
        del sent
        assert freed() is None


@pytest.mark.parametrize("gamma", ["auto", 0.5])
@pytest.mark.parametrize(
    "make", [lambda g: DeepSqueeze(compressor=QSGD, gamma=g), lambda g: Choco(differences=HOW, gamma=g)]
)
def test_a_step_size_that_is_given_stays_and_one_that_is_left_grows_older(make: Any, gamma: Any) -> None:
    mixing = make(gamma)
    state = mixing.init(X, AT)
    for round in range(3):
        state, _ = mixing.outgoing(state, Update(X, X), 0, AT._replace(round=round))
        state = mixing.mix(state, Update(X, X), Inbox([], [1]), 0, AT._replace(round=round)).state
    assert state.step.age == (3 if gamma == "auto" else 0)
    assert gamma == "auto" or state.step == StepSize(0.5)


HOW = Differences(compressor=QSGD)
