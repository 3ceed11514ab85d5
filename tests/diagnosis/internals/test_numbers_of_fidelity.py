"""How often the lateness of a loop is looked at, and how many late links are named."""

from __future__ import annotations

from typing import cast

import pytest

from netdfl.core.clock import Clock
from netdfl.diagnosis import fidelity
from netdfl.diagnosis.fidelity import (
    Meter,
)


async def test_a_loop_that_wakes_before_its_time_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fidelity, "_SAMPLE_NS", 0)

    class Set:
        """A clock that shows these times, and ends the watch with the last one."""

        def __init__(self, times_ns: list[int]) -> None:
            self.times_ns = times_ns

        def now_ns(self) -> int:
            return self.times_ns.pop(0)

    meter, clock = Meter(), cast(Clock, Set([10, 17, 20, 18, 30, 30]))
    with pytest.raises(IndexError):
        await meter.watch_loop(clock)
    assert meter.lags_ns == [7, 0, 0]


def test_a_loop_is_looked_at_twenty_times_a_second_and_twenty_late_links_are_named() -> None:
    assert (fidelity._SAMPLE_NS, fidelity._SHOWN) == (10**9 // 20, 20)
