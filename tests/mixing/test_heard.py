"""What a receiver makes of a sender's differences that come late, twice, in any order, of another life, or never."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from compressed_fleets import HERE, THERE, differences, normal
from hypothesis import example, given
from hypothesis import strategies as st

from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Inbox, Kind, Message, Payload
from netdfl.mixing.compressed.copies import Heard, Reference
from netdfl.mixing.compressed.references import KEPT, KEPT_SURE, Differences, address


class Stream:
    """A sender of versions 1, 2, ... of a vector, and one receiver that gets what `hear` is given."""

    def __init__(self, mass: bool = True, kept: int = KEPT) -> None:
        self.differences: Differences = replace(differences("qsgd", mass=mass), kept=kept)
        self.x = normal(40, 9)
        self.heard = self.differences.first(self.x[0])
        self.reference, self.owed, self.round = self.heard.start, self.heard, 0
        self.exact: dict[int, torch.Tensor] = {}

    def say(self, epoch: int = 0) -> Message:
        before = self.reference
        self.reference, code = self.differences.send(before, self.x[self.round], HERE._replace(round=self.round), 0)
        self.owed, outbox = address(self.owed, before, code, {"share": 0.5, "w": 0.25}, [1])
        self.exact[self.reference.version] = self.reference.vector
        self.round += 1
        return Message(0, 1, Kind.DATA, epoch, self.round, 0, 0, outbox[1])

    def asked(self) -> None:
        self.owed = self.owed._replace(owed=(1,))

    def hear(self, *messages: Message) -> list[torch.Tensor]:
        self.heard, came = self.differences.receive(self.heard, Inbox(messages), THERE)
        return [each.vector for each in came.get(0, ())]

    def close(self, got: list[torch.Tensor], *versions: int) -> None:
        assert len(got) == len(versions)
        for vector, version in zip(got, versions, strict=True):
            torch.testing.assert_close(vector, self.exact[version], rtol=0, atol=1e-14)


def test_differences_in_order_are_followed_bit_for_bit() -> None:
    stream = Stream()
    for version in (1, 2, 3):
        (got,) = stream.hear(stream.say())
        assert torch.equal(got, stream.exact[version])
    assert stream.heard.asks == ()
    assert stream.heard.tally.gaps == 0


def test_a_gap_is_asked_about_once_until_an_answer_is_due() -> None:
    stream = Stream()
    stream.hear(stream.say())
    stream.say()
    asked = []
    for _ in range(4):
        assert stream.hear(stream.say()) == []
        asked.append(stream.heard.asks == (0,))
        stream.heard = stream.heard._replace(asks=())
    assert asked == [True, False, True, False]
    assert stream.heard.tally.gaps == 4


def test_a_full_reference_settles_what_waited_backwards() -> None:
    stream = Stream()
    stream.hear(stream.say())
    stream.say()
    stream.hear(stream.say(), stream.say())
    stream.asked()
    stream.close(stream.hear(stream.say()), 4, 3, 5)
    assert torch.equal(stream.heard.copies[0].vector, stream.exact[5])
    assert stream.heard.tally.lost_w == 0
    assert stream.owed.tally == (0, 0, 1, 9 * 8)
    (after,) = stream.hear(stream.say())
    assert torch.equal(after, stream.exact[6])


def test_what_lies_behind_a_second_gap_waits_for_it_and_is_lost_at_last() -> None:
    stream = Stream()
    stream.say()
    stream.hear(stream.say())
    stream.say()
    stream.hear(stream.say())
    stream.asked()
    stream.close(stream.hear(stream.say()), 4, 5)
    for version in range(6, 12):
        stream.close(stream.hear(stream.say()), version)
    assert stream.heard.tally.lost_w == 0
    stream.close(stream.hear(stream.say()), 12)
    assert stream.heard.tally.lost_w == 0.25
    assert stream.heard.copies[0].holes == ()


def test_in_any_order_everything_is_settled_once() -> None:
    stream = Stream()
    m = {version: stream.say() for version in range(1, 6)}
    assert stream.hear(m[2]) == []
    stream.asked()
    m[6] = stream.say()
    stream.close(stream.hear(m[4]))
    stream.close(stream.hear(m[6]), 6)
    stream.close(stream.hear(m[5]), 5, 4)
    assert stream.hear(m[1]) == []
    stream.close(stream.hear(m[3]), 3, 2, 1)
    assert stream.heard.tally.lost_w == 0


@given(st.lists(st.integers(0, 25), min_size=10, max_size=40))
@example([0, 9, 0, 12, 0, 0, *[0] * 14])  # a second gap behind the first, and both closed late
@example([25, *[0] * 30])
def test_where_all_comes_in_the_end_nothing_is_lost_however_late_it_is(delays: list[int]) -> None:
    stream, due = Stream(kept=KEPT_SURE), dict[int, list[Message]]()
    settled: list[torch.Tensor] = []
    for tick in range(len(delays) + 26):
        if stream.heard.asks:
            stream.heard = stream.heard._replace(asks=())
            stream.asked()
        if tick < len(delays):
            due.setdefault(tick + delays[tick], []).append(stream.say())
        settled += stream.hear(*due.pop(tick, []))
    assert len(settled) == len(delays)
    for exact in stream.exact.values():
        assert min(float((exact - vector).abs().max()) for vector in settled) < 1e-13
    assert stream.heard.tally.lost_w == 0
    assert stream.heard.copies[0].pending == stream.heard.copies[0].holes == ()


def test_a_late_difference_closes_its_gap() -> None:
    stream = Stream()
    late, *others = (stream.say() for _ in range(3))
    assert stream.hear(*others) == []
    stream.close(stream.hear(late), 1, 2, 3)
    assert stream.heard.copies[0].pending == ()


def test_a_difference_that_comes_after_its_resynchronisation_still_counts() -> None:
    stream = Stream()
    late = stream.say()
    stream.asked()
    stream.close(stream.hear(stream.say()), 2)
    stream.close(stream.hear(late), 1)
    assert torch.equal(stream.heard.copies[0].vector, stream.exact[2])


def test_a_sender_that_returns_from_an_older_state_is_not_believed_until_it_says_all() -> None:
    stream = Stream()
    stream.hear(stream.say())
    old = stream.reference
    stream.hear(stream.say(), stream.say())
    stream.reference = old
    assert stream.hear(stream.say(epoch=1)) == []
    assert stream.heard.asks == (0,)
    stream.asked()
    stream.close(stream.hear(stream.say(epoch=1)), 2, 3)


def test_a_sender_that_returns_with_its_state_goes_on_where_it_was() -> None:
    stream = Stream()
    stream.hear(stream.say())
    (got,) = stream.hear(stream.say(epoch=1))
    assert torch.equal(got, stream.exact[2])
    assert stream.heard.asks == ()


@pytest.mark.parametrize(("heard", "kept"), [(1, 0), (3, 2), (4, 1)])
def test_a_new_life_that_reaches_the_old_ones_version_unheard_is_found_out(heard: int, kept: int) -> None:
    """It began afresh, or from an older state, and the receiver missed what it said on the way to the same number."""
    stream = Stream()
    lives = [stream.reference]
    for _ in range(heard):
        stream.hear(stream.say())
        lives.append(stream.reference)
    stream.reference = lives[kept]
    for _ in range(kept, heard):
        stream.say(epoch=1)
    assert stream.hear(stream.say(epoch=1)) == []
    assert stream.heard.asks == (0,)
    assert stream.heard.tally.gaps == 1
    stream.asked()
    stream.close(stream.hear(stream.say(epoch=1)), heard + 1, heard + 2)
    assert torch.equal(stream.heard.copies[0].vector, stream.exact[heard + 2])
    assert stream.owed.tally == (0, 0, 1, 9 * 8)


def test_what_waits_of_an_earlier_life_is_not_taken_for_the_new_ones() -> None:
    stream = Stream()
    stream.hear(stream.say())
    kept = stream.reference
    stream.say()
    assert stream.hear(stream.say()) == []
    stream.reference = kept
    stream.close(stream.hear(stream.say(epoch=1), stream.say(epoch=1)), 2, 3)
    assert torch.equal(stream.heard.copies[0].vector, stream.exact[3])
    assert stream.heard.tally.lost_w == 0.25


def test_a_sender_that_returns_with_another_start_is_not_believed() -> None:
    stream = Stream()
    stream.differences = replace(stream.differences, common_start=True)
    stream.heard = stream.differences.first(stream.x[0])
    stream.reference = stream.differences.first(stream.x[5]).start
    assert stream.hear(stream.say()) == []
    assert stream.heard.asks == (0,)


def test_no_more_than_a_few_differences_wait() -> None:
    stream = Stream()
    stream.say()
    for _ in range(11):
        stream.hear(stream.say())
    assert len(stream.heard.copies[0].pending) == 8
    assert stream.heard.tally.lost_w == 0.75


def test_gossip_keeps_no_differences_that_it_can_not_decode() -> None:
    stream = Stream(mass=False)
    stream.say()
    stream.hear(stream.say())
    assert stream.heard.copies[0].pending == ()
    assert stream.heard.asks == (0,)


@pytest.mark.parametrize(
    "meta",
    [
        {"version": 0},
        {"version": 1.5},
        {"version": 1, "after": "none"},
        {"version": 1, "mark": -4},
        {"version": 1, "share": float("nan")},
        {"ask": "all"},
        {"version": 1, "code": 3},
        {"version": 1, "passes": 2},
        {"version": 1, "passes": 10**9},
    ],
)
def test_absurd_metadata_is_refused_with_the_message(meta: dict[str, Any]) -> None:
    stream = Stream()
    sound = stream.say()
    message = sound._replace(payload=Payload(sound.payload.arrays, {**sound.payload.meta, **meta}))
    with pytest.raises(MalformedMessage) as refused:
        stream.hear(message)
    assert refused.value.message is message


def test_a_difference_of_another_size_is_refused() -> None:
    stream = Stream()
    stream.heard = Heard(Reference(torch.zeros(5, dtype=torch.float64)), {})
    with pytest.raises(MalformedMessage, match="message 0->1"):
        stream.hear(stream.say())
