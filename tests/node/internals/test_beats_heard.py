"""The share of heartbeats that are lost, and when a beat is overdue."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netdfl.core.fates import Fate
from netdfl.core.types import Kind, Message, Payload
from netdfl.node.heartbeats import AVERAGES, MOST_BEATS, RECENT, Heartbeats, _Beats
from netdfl.node.mailbox import Mailbox

EVERY, MISSES = 100, 3


@given(st.lists(st.integers(1, 3) | st.integers(90, 130) | st.integers(-400, 0), max_size=250))
@example([1] * 250)
@example([1] * 60 + [40] + [1] * 60 + [40] + [1] * 60)
@example([2] * 120)
@example([5, 101, 1, 2, 99, 2, 100, 2])
@example([7, -3, 1, 1, 2, -9, 4])
def test_what_is_lost_is_told_of_the_last_hundred_beats_and_those_before(steps: list[int]) -> None:
    beats, number, gap, lossy_ns = _Beats(), 0, None, 0
    heard: list[int] = []  # of this stretch
    before = 0, 0
    for at_ns, step in enumerate([0, *steps]):
        number = max(0, number + step)
        if at_ns and step <= 0:  # another life of the peer
            heard, before, gap = [], (0, 0), None
        elif at_ns and step > 1:
            lossy_ns = at_ns if gap is None or number - gap > RECENT else lossy_ns
            gap = number
        if heard and number - heard[0] >= RECENT:
            heard, before = [], (len(heard), number - heard[0])
        heard.append(number)
        beats.take(number, at_ns)
        sent = number - heard[0] + 1 + before[1]
        assert beats.lost == pytest.approx(1 - (len(heard) + before[0]) / sent)
        assert beats.lossy_ns == lossy_ns
    assert _Beats().lost == 0.0


def heartbeats(now: int) -> Heartbeats:
    clock: Any = SimpleNamespace(now_ns=lambda: now)
    return Heartbeats(
        0,
        (1,),
        every_ns=EVERY,
        misses=MISSES,
        clock=clock,
        transport=None,  # type: ignore[arg-type]
        mailbox=Mailbox(keep_late=False),
        gone=lambda peer: None,
        returned=lambda peer: None,
    )


@pytest.mark.parametrize(("heard_ns", "overdue"), [(10_000, False), (9_850, False), (9_849, True)])
def test_a_beat_is_overdue_after_one_and_a_half_of_its_times(heard_ns: int, overdue: bool) -> None:
    its = heartbeats(10_000)
    its._heard_ns[1] = heard_ns
    assert its.may_call_gone(1, 0) is overdue
    assert not its.may_call_gone(2, 0)
    its.silent.add(1)
    assert not its.may_call_gone(1, 0)


def expected(came: int, sent: int) -> int:
    """After how many beats three in a row are lost on average, by each beat's own chance; 0 where that is rare."""
    lost = 1 - came / sent
    if lost <= 0:
        return 0
    mean = (1 - lost**MISSES) / (lost**MISSES * (1 - lost))
    return int(mean) if mean <= MOST_BEATS else 0


@pytest.mark.parametrize(("came", "chance"), [(100, 0), (99, 0), (90, 0), (89, 843), (50, 14), (40, 9), (1, 3)])
def test_a_wait_is_left_to_losses_in_a_row_for_five_times_as_long_as_they_take(came: int, chance: int) -> None:
    assert expected(came, 100) == chance
    now = 10**6
    its = heartbeats(now)
    its._heard_ns[1] = now
    its._beats[1] = _Beats(last=99, first=0, came=came)
    limit = EVERY * (MISSES + 1 + AVERAGES * chance)
    assert [its.may_call_gone(1, now - limit - more) for more in (0, 1)] == [True, False]
    its._beats[1].lossy_ns = now - limit + 5
    assert its.may_call_gone(1, now - limit - 1) is (chance > 0), "it counts from when beats began to be lost"


@pytest.mark.parametrize(("epoch", "heard", "lost"), [(0, (0, 1, 4), 0.4), (1, (0, 1, 4), 0.4), (1, (7, 8, 11), 0.4)])
def test_a_later_life_counts_from_the_first_beat_that_it_hears(epoch: int, heard: tuple[int, ...], lost: float) -> None:
    its = heartbeats(7)
    its.epoch = epoch
    for number in heard:
        its.hear(Message(1, 0, Kind.HEARTBEAT, 0, number, 0, 0, Payload()))
    assert its._beats[1].lost == pytest.approx(lost)


def test_a_strangers_beat_is_taken_and_is_nothing() -> None:
    its = heartbeats(7)
    assert its.hear(Message(8, 0, Kind.HEARTBEAT, 0, 3, 0, 0, Payload())) is Fate.DELIVERED
    assert (its._heard_ns, its._beats[1]) == ({1: 0}, _Beats())
    assert its.hear(Message(1, 0, Kind.HEARTBEAT, 0, 3, 0, 0, Payload())) is Fate.DELIVERED
    assert (its._heard_ns, its._beats[1].last) == ({1: 7}, 3)


@given(st.sets(st.integers(0, RECENT - 1), min_size=1))
@example({1})
@example({0})
@example({0, 2})
def test_the_share_of_lost_beats_is_of_all_since_the_first(heard: set[int]) -> None:
    beats, gap = _Beats(), None
    for number in sorted(heard):
        if number and number - 1 not in heard:
            gap = number if gap is None else gap
        beats.take(number, 10 * number)
    assert beats.lost == pytest.approx(1 - len(heard) / (max(heard) + 1))
    assert beats.lossy_ns == (0 if gap is None else 10 * gap)
    beats.take(0, 5000)  # another life, of which nothing is lost yet
    assert beats.lost == 0
    beats.take(2, 5020)
    assert (beats.lost, beats.lossy_ns) == (pytest.approx(1 / 3), 5020)
