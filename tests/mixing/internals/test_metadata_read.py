"""What a message says of itself is checked before it is used, and its mark tells both ends of one reference."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch

from netdfl.compression.arrays import snapshot
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Kind, Message, Payload
from netdfl.mixing.compressed.references import _mark
from netdfl.mixing.synthetic import _synthetic
from netdfl.training.guided import INPUTS, LABELS


def said(**meta: object) -> Message:
    return Message(3, 0, Kind.DATA, 0, 7, 0, 0, Payload({}, meta))  # type: ignore[arg-type]


X = torch.zeros(3)
GOOD = {INPUTS: torch.zeros(2, 5), LABELS: torch.tensor([0, 3])}


def synthesized(arrays: dict[str, torch.Tensor]) -> Message:
    return Message(3, 0, Kind.DATA, 0, 7, 0, 0, Payload({name: snapshot(array) for name, array in arrays.items()}))


@pytest.mark.parametrize(
    "wrong",
    [
        {INPUTS: torch.zeros(2, 5, dtype=torch.float64)},
        {INPUTS: torch.tensor([[nan], [0.0]])},
        {INPUTS: torch.zeros(3, 5)},
        {LABELS: torch.tensor([0, 3], dtype=torch.int32)},
        {LABELS: torch.tensor([0.0, 1.0], dtype=torch.float64)},
        {LABELS: torch.tensor([0, -1])},
        {LABELS: torch.tensor([0.0, inf])},
        {LABELS: torch.zeros(3, dtype=torch.int64)},
        {INPUTS: None},
        {LABELS: None},
    ],
)
def test_synthetic_examples_are_finite_inputs_with_as_many_labels_from_0(wrong: dict[str, torch.Tensor | None]) -> None:
    arrays = {name: array for name, array in (GOOD | wrong).items() if array is not None}
    with pytest.raises(MalformedMessage, match="message 3->0 of round 7: expected"):
        _synthetic(synthesized(arrays), X)


@pytest.mark.parametrize("labels", [torch.tensor([0, 3]), torch.tensor([0.0, 2.5])])
def test_good_synthetic_examples_come_as_they_were_sent(labels: torch.Tensor) -> None:
    found = _synthetic(synthesized(GOOD | {LABELS: labels}), X)
    assert torch.equal(found[INPUTS], GOOD[INPUTS])
    assert torch.equal(found[LABELS], labels)
    assert _synthetic(synthesized({}), X) == {}


def test_a_mark_tells_what_was_said_apart_and_is_a_whole_number_that_the_wire_holds() -> None:
    said = [Payload({"x": snapshot(torch.tensor([float(i)]))}, {"version": v}) for i in range(20) for v in (1, 2)]
    said.append(Payload({"y": snapshot(torch.tensor([0.0]))}, {"version": 1}))
    marks = [_mark(after, payload) for after in (1, 2, 2**63) for payload in said]
    assert all(1 <= mark <= 2**63 for mark in marks)
    assert len(set(marks)) == len(marks)
    assert marks == [_mark(after, payload) for after in (1, 2, 2**63) for payload in said]
