"""Rows with the same hash go by their lines, however many there are."""

from __future__ import annotations

import pytest

from netdfl.record.event_log import _in_order


@pytest.mark.parametrize("count", [5, 500])
def test_entries_with_the_same_hash_go_by_their_lines(count: int) -> None:
    hashes = [(number * 7919) % 11 + (1 << 63) for number in range(count)]
    lines = [f"{(number * 104729) % count:05d}" for number in range(count)]
    told = sorted(zip(hashes, lines, strict=True))
    assert _in_order((hashes, lines)) == [line for _, line in told]
