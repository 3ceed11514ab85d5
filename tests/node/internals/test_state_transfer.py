"""A model that a peer gives: the first good one of those asked is taken, any other is answered by what is wrong."""

from __future__ import annotations

import re
from math import nan
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from netdfl.core.types import Kind, Message, Payload
from netdfl.mixing.payloads import pack
from netdfl.node.mailbox import Mailbox
from netdfl.node.state_transfer import ROUND, StateTransfer
from netdfl.transport.base import Fate, deliver_one

X = torch.arange(3.0)


class Member(SimpleNamespace):
    """Node 0 as its state transfer sees it, with what it posted and refused."""

    def __init__(self, latest: Any = None) -> None:
        posted, refused = list[Message](), list[Any]()
        ledger = SimpleNamespace(refused=lambda *said: refused.append(said))
        super().__init__(
            id=0, epoch=3, num_rounds=9, mailbox=Mailbox(keep_late=False), ledger=ledger, latest=latest,
            algorithm="its own", post=posted.append, posted=posted, refusals=refused,
        )  # fmt: skip


def asking() -> tuple[Member, StateTransfer]:
    """A node that has asked nodes 1 and 2 for a model like `X`."""
    member = Member()
    transfer = StateTransfer(member)
    transfer._like, transfer._asked = torch.zeros(3), {1, 2}
    return member, transfer


def give(member: Member, payload: Payload, src: int = 1) -> Fate | None:
    return deliver_one(member.mailbox, Message(src, 0, Kind.MODEL, 5, 0, 0, 0, payload))


def test_the_first_model_of_those_that_were_asked_is_taken_once() -> None:
    member, transfer = asking()
    assert give(member, pack(X, meta={ROUND: 4}), src=7) is Fate.LATE
    assert transfer._came is None
    assert give(member, pack(X, meta={ROUND: 4}), src=2) is Fate.DELIVERED
    assert give(member, pack(X + 1, meta={ROUND: 9}), src=1) is Fate.DUPLICATE
    assert (transfer._came[0].tolist(), transfer._came.round, transfer._came.source) == (X.tolist(), 4, 2)
    assert member.refusals == []


def test_nobody_who_does_not_ask_takes_a_model() -> None:
    member = Member()
    transfer = StateTransfer(member)
    transfer._asked = {1}
    assert give(member, pack(X, meta={ROUND: 4})) is Fate.LATE


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (pack(torch.zeros(4), meta={ROUND: 4}), "3"),
        (
            pack(torch.tensor([0.0, nan, 1.0]), meta={ROUND: 4}),
            "node 1 answered .*: expected a finite model and a round",
        ),
        (pack(X, meta={}), "node 1 answered .*: expected the round of a model, got None"),
        (pack(X, meta={ROUND: "4"}), "expected the round of a model, got '4'"),
        (pack(X, meta={ROUND: True}), "expected the round of a model, got True"),
        (pack(X, meta={ROUND: 10**9}), "expected the round of a model, got 1000000000"),
        (pack(X, meta={ROUND: -1}), "expected the round of a model, got -1"),
        (Payload(), ""),
    ],
)
def test_what_is_no_model_is_refused_with_its_edge_and_reason(payload: Payload, said: str) -> None:
    member, transfer = asking()
    assert give(member, payload) is Fate.REFUSED
    assert transfer._came is None
    ((edge, reason, text),) = member.refusals
    assert (edge, reason) == ((1, 0), "malformed")
    assert re.search(said, text)
    assert give(member, pack(X, meta={ROUND: 4})) is Fate.DELIVERED, "another may still come"


def test_who_has_a_model_gives_it_with_its_round_and_who_has_none_says_nothing() -> None:
    request = Message(4, 0, Kind.FETCH, 2, 6, 1, 3, Payload())
    empty = Member()
    StateTransfer(empty)
    assert deliver_one(empty.mailbox, request) is Fate.DELIVERED
    assert empty.posted == []
    full = Member(latest=SimpleNamespace(round=8, model=lambda algorithm: X if algorithm == "its own" else None))
    StateTransfer(full)
    assert deliver_one(full.mailbox, request) is Fate.DELIVERED
    (answer,) = full.posted
    assert answer[:7] == (0, 4, Kind.MODEL, 3, 6, 1, 3)
    assert answer.payload.meta[ROUND] == 8
    back, transfer = asking()
    assert give(back, answer.payload) is Fate.DELIVERED
    assert transfer._came[0].tolist() == X.tolist()
