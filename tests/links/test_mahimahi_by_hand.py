"""A Mahimahi trace against a model that counts the bytes of every opportunity, with queues of every kind."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from netdfl.core.types import Kind
from netdfl.links.rules.base import DROPPED, Drop, Transit
from netdfl.links.rules.mahimahi import OPPORTUNITY_BYTES, Opportunities, TraceRate

TRACES = st.lists(st.integers(0, 4), min_size=1, max_size=5).map(
    lambda gaps: [sum(gaps[: i + 1]) for i in range(len(gaps))]
)
SENT = st.tuples(st.integers(0, 6), st.sampled_from([1, 700, 1499, 1500, 1501, 3000, 4000]), st.booleans())
BOUNDS = st.sampled_from(
    [{}, *({"queue_bytes": n} for n in (0, 700, 1500, 3001)), *({"queue_messages": n} for n in (0, 1, 2))]
)


class Model:
    """The moments of all opportunities, what each can still carry, and who leaves when."""

    def __init__(self, trace: list[int], queue_bytes: int | None = None, queue_messages: int | None = None) -> None:
        self.times = [cycle * trace[-1] + at for cycle in range(200) for at in trace]
        self.left = [OPPORTUNITY_BYTES] * len(self.times)
        self.bytes, self.messages = queue_bytes, queue_messages
        self.leaving: list[tuple[int, int]] = []
        self.last = 0

    def send(self, nbytes: int, now: int) -> int | None:
        self.leaving = [each for each in self.leaving if each[0] > now]
        behind = self.leaving[1:]
        if self.leaving and self.bytes is not None and sum(size for _, size in behind) + nbytes > self.bytes:
            return None
        if self.leaving and self.messages is not None and len(behind) >= self.messages:
            return None
        size, place = nbytes, next(i for i, at in enumerate(self.times) if at >= now)
        place = max(place, self.last)
        while nbytes > self.left[place]:
            nbytes -= self.left[place]
            self.left[place] = 0
            place += 1
        self.left[place] -= nbytes
        self.last = place
        self.leaving.append((self.times[place], size))
        return self.times[place]

    def reset(self, now: int) -> int:
        """What is held is lost, the moments that it had are there again; how many units that are."""
        held = sum(at > now for at, _ in self.leaving)
        self.leaving = []
        self.last = min(self.last, next(i for i, at in enumerate(self.times) if at >= now))
        self.left[self.last :] = [OPPORTUNITY_BYTES] * len(self.left[self.last :])
        return held


@given(TRACES.filter(lambda trace: trace[-1] > 0), BOUNDS, st.lists(SENT, max_size=12))
@example([1], {"queue_bytes": 1500}, [(0, 3000, False), (0, 1500, False), (0, 1, False), (1, 1, False)])
@example([2, 5], {"queue_messages": 1}, [(0, 1500, False), (0, 1500, False), (1, 1500, False), (2, 1500, False)])
def test_each_unit_leaves_at_the_moment_that_carries_its_last_byte(
    trace: list[int], bound: dict[str, int], sent: list[tuple[int, int, bool]]
) -> None:
    stage, model, now = TraceRate(Opportunities(tuple(trace), **bound)), Model(trace, **bound), 0
    for number, (gap, nbytes, reset) in enumerate(sent):
        now += gap
        if reset:
            dropped = stage.changed({"state": "down_reset"}, now)
            assert len(dropped) == model.reset(now)
            assert all(isinstance(each, Drop) for each in dropped)
        found = stage.advance(Transit(0, 1, Kind.DATA, number, 0, 0, nbytes), now)
        assert (None if found == DROPPED else found) == model.send(nbytes, now)
