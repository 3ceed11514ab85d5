"""The header of an IDX file, and a share of every class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netdfl.core.errors import DatasetError
from netdfl.training.data.datasets import _idx_shape, _stratified, read_records


def test_a_header_says_how_many_axes_and_numbers_there_are(tmp_path: Path) -> None:
    good = bytes([0, 0, 8, 2]) + bytes([0, 0, 0, 3, 0, 0, 1, 0])
    assert _idx_shape(good, tmp_path) == (3, 256)
    assert _idx_shape(good + b"more", tmp_path) == (3, 256)
    assert _idx_shape(bytes([0, 0, 8, 0]), tmp_path) == ()
    for bad in (good[:11], good[:3], b"", bytes([0, 0, 9, 0]), bytes([1, 0, 8, 0])):
        with pytest.raises(DatasetError, match="does not start like an IDX file of bytes"):
            _idx_shape(bad, tmp_path)
    file = tmp_path / "records.bin"
    file.write_bytes(bytes(range(2 * 7)))
    x, y = read_records(file, (1, 2, 3), 2)
    assert (x.shape, y.tolist(), x[1, 0, 0].tolist()) == ((2, 1, 2, 3), [0, 7], [8, 9, 10])
    with pytest.raises(DatasetError, match="is damaged: 14 bytes, expected 21"):
        read_records(file, (1, 2, 3), 3)


def test_a_share_of_every_class_is_chosen() -> None:
    labels = np.repeat(np.arange(3), [10, 5, 1])
    chosen = _stratified(labels, 0.3, np.random.default_rng(0))
    assert [int(chosen[labels == label].sum()) for label in range(3)] == [3, 2, 0]
