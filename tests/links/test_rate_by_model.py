"""A serializer with its bucket, its queue and its changes, against a plain model that keeps all ends as fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netdfl.core.types import Kind
from netdfl.links.rules.base import DROPPED, Departure, Drop, Hold, StageOutcome, Transit
from netdfl.links.rules.mahimahi import Opportunities, TraceRate
from netdfl.links.rules.rate import Rate, Shape

End: TypeAlias = tuple[str, int, int | None]
"""What becomes of a unit: `leaves`, `queue`, `reset` or `held`, its number, and when it leaves."""
BITS = 8 * 10**9


class Model:
    """A byte takes `cost` ns (0: none, None: for ever); `burst` bytes may be owed."""

    def __init__(self, shape: Shape, scale: float) -> None:
        self.queue: list[tuple[Fraction, int, int]] = []  # end, bytes, number
        self.still: list[tuple[Fraction, int, int]] = []  # bytes to be sent, bytes, number
        self.end = Fraction(0)
        self.take(shape, scale)

    def take(self, shape: Shape, scale: float) -> None:
        self.shape, self.scale = shape, scale
        rate = None if shape.rate_bps is None else shape.rate_bps * scale
        self.cost = Fraction(0) if rate is None else None if rate == 0 else Fraction(BITS) / Fraction(rate)
        self.slack = shape.burst_bytes * (self.cost or 0)

    def leaves(self, end: Fraction, now: int) -> int:
        return max(now, ceil(end - self.slack))

    def pending(self, now: int) -> list[tuple[Fraction, int, int]]:
        return [each for each in self.queue if each[0] - self.slack > now]

    def is_full(self, nbytes: int) -> bool:
        held = self.queue + self.still
        if not held:
            return False
        if self.shape.queue_messages is not None:
            return len(held) > self.shape.queue_messages
        bound = self.shape.queue_bytes
        return bound is not None and sum(each[1] for each in held[1:]) + nbytes > bound

    def enter(self, number: int, nbytes: int, now: int) -> list[End]:
        if self.cost is not None:
            self.queue = self.pending(now)
        if self.is_full(nbytes):
            return [("queue", number, None)]
        if self.cost is None:
            self.still.append(((self.still[-1][0] if self.still else Fraction(0)) + nbytes, nbytes, number))
            return []
        self.end = max(self.end, Fraction(now)) + nbytes * self.cost
        self.queue.append((self.end, nbytes, number))
        return [("leaves", number, self.leaves(self.end, now))]

    def change(self, shape: Shape, scale: float, now: int, *, reset: bool) -> list[End]:
        if reset:
            gone = [number for *_, number in (*self.pending(now), *self.still)]
            self.queue, self.still, self.end = [], [], Fraction(0)
            self.take(shape, scale)
            return [("reset", number, None) for number in gone]
        if (shape, scale) == (self.shape, self.scale):
            return []
        left, owed = self.still, self.still[-1][0] if self.still else Fraction(0)
        if self.cost:
            left = [((end - now) / self.cost, nbytes, number) for end, nbytes, number in self.pending(now)]
            owed = max(Fraction(0), (self.end - now) / self.cost)
        self.queue, self.still, self.end = [], [], Fraction(0)
        self.take(shape, scale)
        if self.cost is None:
            self.still = left
            return [("held", number, None) for *_, number in left]
        self.end = now + owed * self.cost
        self.queue = [(now + work * self.cost, nbytes, number) for work, nbytes, number in left]
        return [("leaves", number, self.leaves(end, now)) for end, _, number in self.queue]


def told(outcomes: Sequence[StageOutcome]) -> list[End]:
    found: list[End] = []
    for each in outcomes:
        if isinstance(each, Departure):
            found.append(("leaves", each.unit.round, each.at_ns))
        else:
            found.append((each.reason if isinstance(each, Drop) else "held", each.unit.round, None))
        assert isinstance(each, Departure | Drop | Hold)
    return found


def unit(number: int, nbytes: int) -> Transit:
    return Transit(0, 1, Kind.DATA, number, 0, 0, nbytes)


RATES = st.sampled_from([None, 0.0, BITS, BITS / 2, BITS / 4, BITS / 16])  # powers of two: no end is rounded
SHAPES = st.builds(
    Shape,
    RATES,
    st.sampled_from([0, 0, 100, 250]),
    st.sampled_from([None, None, 0, 300]),
    st.sampled_from([None, None, None, 0, 2]),
)
SCALES = st.sampled_from([1.0, 1.0, 0.5, 0.0])
STEPS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 200) | st.tuples(SHAPES, SCALES, st.integers(0, 4))), max_size=30
)
SLOW, BOUND = Shape(BITS / 4), Shape(BITS / 4, 100, 300)


STILL, STILL_BYTES = Shape(0.0, 0, None, 0), Shape(0.0, 0, 100, None)


@given(SHAPES, STEPS)
@example(BOUND, [*[(0, 100)] * 4, (1, (BOUND, 1.0, 0)), *[(0, 100)] * 5])
@example(STILL, [(0, 100), (0, 100), (0, (SLOW, 1.0, 1)), (0, 100)])
@example(STILL_BYTES, [(0, 100), (0, 100), (0, 100), (0, (STILL, 1.0, 1)), (0, 1)])
@example(SLOW, [(0, 100), (0, 50), (200, (BOUND, 1.0, 1)), (0, 200), (0, 200), (0, 200), (0, 200)])
@example(BOUND, [(0, 100), (0, 100), (10, (SLOW, 0.0, 1)), (0, 100), (5, (BOUND, 1.0, 1)), (0, 100), (900, 100)])
@example(BOUND, [(0, 100), (10, (BOUND, 0.5, 1)), (0, 10), (10, (BOUND, 0.5, 1)), (0, (BOUND, 1.0, 0)), (0, 10)])
@example(BOUND, [(0, 100), (0, 100), (700, 100), (0, 100), (0, 100), (0, 100), (0, 100), (300, 100)])
def test_what_leaves_and_when_is_as_a_plain_model_says(shape: Shape, steps: list[Any]) -> None:
    stage, model, now = Rate(shape), Model(shape, 1.0), 0
    for number, (pause, step) in enumerate(steps):
        now += pause
        if isinstance(step, int):
            assert told(stage.enter(unit(number, step), now)) == model.enter(number, step, now)
        else:
            new, scale, how = step
            event: dict[str, Any] = {"rate": new, "rate_scale": scale} | ({} if how else {"state": "down_reset"})
            assert told(stage.changed(event, now)) == model.change(new, scale, now, reset=not how)
        rests = model.cost is not None and model.end <= now
        assert stage.rests(now) == rests


@pytest.mark.parametrize(("rate", "nbytes", "ends"), [(3e9, 1, [3, 6, 8, 11]), (7e9, 3, [4, 7, 11, 14])])
def test_ends_are_rounded_up_each_by_itself(rate: float, nbytes: int, ends: list[int]) -> None:
    stage = Rate(Shape(rate))
    assert [stage.advance(unit(n, nbytes), 0) for n in range(4)] == ends
    assert ends == [ceil(Fraction(BITS * nbytes * (n + 1), int(rate))) for n in range(4)]


MOMENTS = st.lists(st.integers(0, 40), min_size=1, max_size=5).map(sorted).filter(lambda at: at[-1] > 0)
ENTRIES = st.lists(st.tuples(st.integers(0, 30), st.sampled_from([1, 700, 1500, 1501, 4000])), max_size=16)
BOUNDS = st.sampled_from([(None, None), (0, None), (3000, None), (None, 0), (None, 2)])


@given(MOMENTS, st.integers(0, 10), ENTRIES, BOUNDS)
@example([10, 20], 0, [(5, 1500), (5, 1500), (0, 1500), (0, 1500), (10, 1500), (0, 1500)], (None, 0))
@example([10, 20], 0, [(5, 1500), (0, 1500), (0, 1500), (0, 1), (5, 1501), (0, 1500)], (3000, None))
@example([10, 20], 5, [(0, 4000), (40, 700), (0, 700), (0, 700), (100, 1)], (None, None))
def test_a_trace_serves_each_unit_at_the_moments_that_carry_it(
    at_ns: list[int], more: int, sent: list[tuple[int, int]], bounds: tuple[int | None, int | None]
) -> None:
    """Each moment from the entry on carries 1500 bytes of those that wait, in order; what it does not carry is lost."""
    period = at_ns[-1] + more
    stage = TraceRate(Opportunities(tuple(at_ns), *bounds, period_ns=period))
    moments = [cycle * period + at for cycle in range(400) for at in at_ns]
    place, left, now = -1, 0, 0
    queue: list[tuple[int, int]] = []  # when each leaves, and its bytes
    for number, (pause, nbytes) in enumerate(sent):
        now += pause
        queue = [each for each in queue if each[0] > now]
        waiting = sum(each[1] for each in queue[1:])
        full_bytes = bounds[0] is not None and waiting + nbytes > bounds[0]
        if queue and (full_bytes or (bounds[1] is not None and len(queue) > bounds[1])):
            assert stage.advance(unit(number, nbytes), now) == DROPPED
            continue
        first = next(place for place, at in enumerate(moments) if at >= now)
        if first > place:
            place, left = first - 1, 0
        while left < nbytes:
            place, left = place + 1, left + 1500
        left -= nbytes
        queue.append((max(now, moments[place]), nbytes))
        assert stage.advance(unit(number, nbytes), now) == queue[-1][0]
