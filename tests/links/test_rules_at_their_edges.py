"""Rules at their first and last values: an empty queue, a trace of one line, what is said by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.core.types import Kind
from netdfl.links.rules.base import DROPPED, Transit
from netdfl.links.rules.mahimahi import Opportunities, read_trace
from netdfl.links.rules.rate import Rate, Shape

MS = 10**6


def unit(nbytes: int) -> Transit:
    return Transit(0, 1, Kind.DATA, 0, 0, 0, nbytes)


def test_a_queue_of_bytes_takes_what_fits_exactly_and_no_byte_more_beside_what_is_in_service() -> None:
    for second, third, fits in ((1000, 1000, True), (1000, 1001, False), (2000, 1, False), (1999, 1, True)):
        rate = Rate(Shape(8e6, queue_bytes=2000))
        assert rate.advance(unit(5000), 0) == 5 * MS
        assert rate.advance(unit(second), 0) == 5 * MS + second * 1000
        assert (rate.advance(unit(third), 0) != DROPPED) == fits
    later = Rate(Shape(8e6, queue_bytes=2000))
    later.advance(unit(5000), 0)
    later.advance(unit(2000), 0)
    assert later.advance(unit(2000), 5 * MS) == 9 * MS


TRACES = [((), "empty"), ((0,), "empty"), ((0, 0), "empty"), ((2, 1), "back in time"), ((-1, 1), "back in time")]


@pytest.mark.parametrize(("at_ns", "wrong"), TRACES)
def test_a_trace_ascends_from_0_to_a_time_above_it(at_ns: tuple[int, ...], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Opportunities(at_ns)


def test_a_trace_may_begin_at_0_and_repeats_with_its_last_time() -> None:
    trace = Opportunities((0, 1, 1, 4))
    assert trace.period_ns == 4
    assert [trace.at(index) for index in range(6)] == [0, 1, 1, 4, 4, 5]
    assert [trace.first(now) for now in (0, 1, 2, 4, 5)] == [0, 1, 3, 3, 5]


@pytest.mark.parametrize(
    ("text", "times_ms"),
    [("5 10", [5, 10]), ("5\n10\n", [5, 10]), ("5\n\n10 12\n", [5, 10, 12]), ("", [])],
)
def test_times_in_ms_are_read_from_lines_of_any_length(text: str, times_ms: list[int], tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    assert read_trace(str(file)) == (tuple(each * MS for each in times_ms), times_ms[-1] * MS if times_ms else 0)
