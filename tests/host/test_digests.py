"""The digests of models that come, by which a member is found that sends its neighbors different ones."""

from __future__ import annotations

import numpy as np

from netdfl.core.types import Message, StepId
from netdfl.host.comparison import ModelComparison
from netdfl.host.network import PausableSink
from netdfl.node.mailbox import Mailbox
from netdfl.testing.transports import data_message, vector_payload
from netdfl.transport.base import Fate, deliver_one
from netdfl.transport.wire import FrameWriter


def _model(value: float, src: int = 1) -> Message:
    return data_message((src, 0), 0, vector_payload(np.full(8, value, np.float32)))


def _digests(*messages: Message) -> list[object]:
    return [[each.round, each.src, each.epoch, f"{FrameWriter.checksum(each.payload):016x}"] for each in messages]


def _sink(mailbox: Mailbox) -> PausableSink:
    return PausableSink(mailbox, compared=ModelComparison(frozenset({0}), 1))


def test_the_digest_is_of_what_is_mixed_whatever_comes_behind_it() -> None:
    sink = _sink(Mailbox(keep_late=False))
    mixed, shown = _model(1.0), _model(2.0)
    assert sink.deliver([mixed]) == [Fate.DELIVERED]
    assert [deliver_one(sink, each) for each in (shown, shown._replace(epoch=1))] == [Fate.DUPLICATE] * 2
    assert sink.digests == _digests(mixed)


def test_what_comes_after_its_round_is_compared_too() -> None:
    mailbox = Mailbox(keep_late=False)
    sink = _sink(mailbox)
    mailbox.open(StepId(0, 0), lambda *came: None)
    mailbox.close(StepId(0, 0))
    assert [deliver_one(sink, _model(each)) for each in (1.0, 2.0)] == [Fate.LATE, Fate.DUPLICATE]
    assert sink.digests == _digests(_model(1.0))


def test_what_has_no_room_is_noted_once_it_has() -> None:
    mailbox = Mailbox(keep_late=False, bound=1)
    sink = _sink(mailbox)
    assert sink.deliver([_model(1.0), _model(2.0, src=2)]) == [Fate.DELIVERED, None]
    assert sink.digests == _digests(_model(1.0))
