"""Packed codes, unary and Rice codes come back as they were, in exactly the bytes promised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.compression import rice
from netdfl.compression.bits import code_dtype, from_unary, pack, packed_nbytes, unary, unpack


@pytest.mark.parametrize("bits", range(1, 41))
@pytest.mark.parametrize("num", [0, 1, 5, 8, 1000, 32768, 70_003])
def test_codes_come_back_in_exactly_their_bits(bits: int, num: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 2**bits, num, np.uint64).astype(code_dtype(bits))
    packed = pack(codes, bits)
    assert len(packed) == packed_nbytes(num, bits=bits) == -(-num * bits // 8)
    assert np.array_equal(unpack(packed, num, bits), codes)


def test_small_codes_are_little_endian_without_gaps() -> None:
    codes = np.array([1, 2, 7, 0, 5, 3, 6, 4, 1], np.uint8)
    as_bits = [(code >> i) & 1 for code in codes.tolist() for i in range(3)]
    assert np.array_equal(pack(codes, 3), np.packbits(as_bits, bitorder="little"))


@given(gaps=st.lists(st.integers(0, 50)))
def test_unary_heights_come_back(gaps: list[int]) -> None:
    heights = np.cumsum(np.array(gaps, np.int64))
    written = unary(heights)
    assert len(written) == (-(-(int(heights[-1]) + len(gaps)) // 8) if gaps else 0)
    back = from_unary(written, len(gaps))
    assert back is not None
    assert np.array_equal(back, heights)
    assert from_unary(written, len(gaps) + 1) is None


@given(levels=st.lists(st.integers(-7, 7), min_size=1), data=st.data())
def test_rice_levels_come_back_in_the_length_announced(levels: list[int], data: st.DataObject) -> None:
    folded = rice.fold(np.array(levels, np.int64).astype(np.int8).astype(np.uint8) + np.uint8(8), 4)
    best, nbytes = rice.shortest(folded, 4)
    assert nbytes == sum(map(len, rice.encode(folded, best)))
    k = data.draw(st.integers(0, 3))
    quotients, remainders = rice.encode(folded, k)
    assert len(quotients) + len(remainders) >= nbytes
    back = rice.decode(quotients, remainders, len(levels), k)
    assert back is not None
    assert rice.unfold(back).tolist() == levels
