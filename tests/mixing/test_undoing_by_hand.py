"""Exchanges that are undone where they failed, worked out by hand; what is not said; passes that just pay."""

from __future__ import annotations

from typing import Any

import torch

from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.types import Acknowledgement, Inbox, Kind, Message, View
from netdfl.mixing.compressed.copies import Copy, CopyStep, Heard, PushShare, Reference, Tally
from netdfl.mixing.compressed.references import KEPT, Differences
from netdfl.mixing.compressed.step_size import StepSize, first_step_size
from netdfl.mixing.gossip import Gossip, GossipState
from netdfl.mixing.payloads import pack
from netdfl.mixing.running_sums import RunningSumsState
from netdfl.training.base import Update

X = torch.tensor([1.0, -2.0, 0.5, 4.0], dtype=torch.float64)
Y = torch.tensor([3.0, 0.0, -1.5, 1.0], dtype=torch.float64)
AT = View(0, 0, 3, (1, 2), (1, 2), 0.5, {1: 0.25, 2: 0.25}, {1: 0.25, 2: 0.25})
UNDO: Any = Gossip(on_missing="undo")


def came(src: int, round: int = 0, step: int = 0) -> Message:
    return Message(src, 0, Kind.DATA, 0, round, step, 0, pack(src * Y))


def said(dst: int, taken: bool, round: int = 0, step: int = 0) -> Acknowledgement:
    return Acknowledgement(Message(0, dst, Kind.DATA, 0, round, step, 0, pack(X)), taken)


def mixed(state: GossipState, x: torch.Tensor, *parts: Any, round: int = 0) -> tuple[GossipState, torch.Tensor]:
    messages = [part for part in parts if isinstance(part, Message)]
    heard = [part for part in parts if isinstance(part, Acknowledgement)]
    found = UNDO.mix(state, Update(x, x), Inbox(messages, (), heard), 0, AT._replace(round=round))
    return found.state, found.update.x


def test_an_exchange_counts_until_it_is_known_to_have_failed_and_is_then_taken_back() -> None:
    begun = UNDO.init(X, AT)
    state, x = mixed(begun, X, came(1), came(2))
    torch.testing.assert_close(x, X + 0.25 * (Y - X) + 0.25 * (2 * Y - X))
    assert len(state.open) == 2
    after, same = mixed(state, x, said(1, True))
    assert torch.equal(same, x)
    assert len(after.open) == 1
    gone, back = mixed(after, x, said(2, False))
    torch.testing.assert_close(back, X + 0.25 * (Y - X))
    assert not gone.open
    assert torch.equal(mixed(gone, back, said(2, False))[1], back), "only once"


def test_what_is_known_to_have_failed_is_not_mixed_and_what_was_taken_is_for_good() -> None:
    begun = UNDO.init(X, AT)
    state, x = mixed(begun, X, came(1), said(1, False), came(2), said(2, True))
    torch.testing.assert_close(x, X + 0.25 * (2 * Y - X))
    assert not state.open
    stranger, same = mixed(begun, X, came(7))
    assert torch.equal(same, X)
    assert len(stranger.open) == 1


def test_exchanges_of_other_rounds_and_steps_are_others() -> None:
    state, x = mixed(UNDO.init(X, AT), X, came(1, 3), round=3)
    for other in (said(1, False, 2), said(1, False, 3, 1), said(2, False, 3)):
        after, same = mixed(state, x, other, round=4)
        assert torch.equal(same, x)
        assert after.open.keys() == state.open.keys()
    torch.testing.assert_close(mixed(state, x, said(1, False, 3), round=4)[1], X)


def test_what_is_not_said_is_nothing() -> None:
    assert GossipState({}) == GossipState({}, {}, {}, None)
    assert RunningSumsState(1.0) == RunningSumsState(1.0, {}, {})
    assert Reference(X) == Reference(X, 0, 0)
    assert PushShare() == PushShare(1.0, 0.0)
    assert Copy(X) == Copy(X, 0, 0, 0, (), 0, ())
    assert Tally() == Tally(0, 0.0, 0, 0)
    assert CopyStep(Copy(X))[1:] == ((), 0.0, False)
    assert Heard(Reference(X), {})[2:] == ((), (), Tally())
    assert StepSize(0.5) == StepSize(0.5, 0, -1.0)
    how = Differences(compressor=COMPRESSORS["qsgd"]())
    assert (how.common_start, how.mass, how.kept, how.streams.seed) == (False, False, KEPT, 0)
    assert not how.first(X).start.vector.any()
    plain = first_step_size("auto", COMPRESSORS["sign"](), 50)
    assert plain == first_step_size("auto", COMPRESSORS["sign"](), 50, common_start=False)
    assert plain != first_step_size("auto", COMPRESSORS["sign"](), 50, common_start=True)
