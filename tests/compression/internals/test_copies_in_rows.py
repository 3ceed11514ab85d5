"""Vectors are copied and judged row by row from a length on, and what comes of it is the same at each edge."""

from __future__ import annotations

import numpy as np
import pytest

from netdfl.compression.arrays import _COPIED, _ROW, copy_finite, is_finite


@pytest.mark.parametrize("rest", [0, 1, 5])
def test_the_first_and_the_last_number_of_each_part_are_looked_at(rest: int) -> None:
    rows = 4 * _COPIED + 2
    size = rows * _ROW + rest
    borders = {0, _ROW - 1, _ROW, _COPIED * _ROW, rows * _ROW - 1, size - 1} | ({rows * _ROW} if rest else set())
    good = np.zeros(size, np.float32)
    assert np.shares_memory(copy_finite(good), good) is False
    for at in borders:
        bad = good.copy()
        bad[at] = np.inf
        assert not is_finite(bad)
        with pytest.raises(ValueError, match=rf"x\[{at}\] is inf"):
            copy_finite(bad)
