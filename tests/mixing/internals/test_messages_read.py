"""What a message says of examples, weights and controls, and what is refused."""

from __future__ import annotations

from typing import Any

import torch

from netdfl.compression.arrays import snapshot
from netdfl.core.types import Kind, Message, Payload
from netdfl.mixing.payloads import pack
from netdfl.mixing.synthetic import _synthetic
from netdfl.training.guided import INPUTS, LABELS

X = torch.tensor([1.0, -2.0, 0.5, 4.0], dtype=torch.float64)


def message(payload: Payload, src: int = 1, **more: Any) -> Message:
    return Message(src, 0, Kind.DATA, 0, 0, 0, 0, payload)._replace(**more)


def test_synthetic_examples_that_did_not_come_are_none() -> None:
    assert _synthetic(message(pack(X)), X) == {}
    both = Payload({INPUTS: snapshot(X[None]), LABELS: snapshot(torch.tensor([2]))})
    found = _synthetic(message(both), X)
    assert (found[INPUTS].tolist(), found[LABELS].tolist()) == ([X.tolist()], [2])
    soft = Payload({INPUTS: snapshot(X[None]), LABELS: snapshot(torch.tensor([[0.5, 0.5]]).double())})
    assert _synthetic(message(soft), X)[LABELS].tolist() == [[0.5, 0.5]]
