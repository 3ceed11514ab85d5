"""Unsigned integers of a few bits each, packed without gaps; and non-decreasing sequences of integers in unary.

`pack` keeps 8-bit planes apart (the first bytes of all codes, then the second ones), and packs the remaining 1 to 7
bits of each code little-endian without gaps. n codes of b bits take n * (b // 8) + ceil(n * (b % 8) / 8) bytes =
ceil(n * b / 8). A long vector is packed in pieces that stay in a core's cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netdfl.compression.buckets import PIECE

Codes = NDArray[Any]
Bytes = NDArray[np.uint8]

_FEW = 16384
"""The number of integers encoded in unary at a time: so many 8-byte indices stay in a core's cache."""
_UNSIGNED = ((8, np.uint8), (16, np.uint16), (32, np.uint32), (64, np.uint64))


def code_dtype(bits: int) -> np.dtype[Any]:
    """Return the smallest unsigned dtype that can hold `bits` bits."""
    return np.dtype(next(dtype for width, dtype in _UNSIGNED if bits <= width))


def packed_nbytes(num: int, *, bits: int) -> int:
    """Return the size in bytes of `num` packed codes of `bits` bits."""
    return -(-num * bits // 8)


def pack(codes: Codes, bits: int) -> Bytes:
    """Pack codes of dtype `code_dtype(bits)`, each below 2^bits. Codes of 8 bits are returned unchanged."""
    if bits == 8:
        return codes
    planes, left = divmod(bits, 8)
    out = np.empty(packed_nbytes(len(codes), bits=bits), np.uint8)
    as_bytes = codes.view(np.uint8).reshape(len(codes), codes.itemsize)
    for plane in range(planes):
        out[plane * len(codes) : (plane + 1) * len(codes)] = as_bytes[:, plane]
    if left:
        _pack_small(np.ascontiguousarray(as_bytes[:, planes]), left, out[planes * len(codes) :])
    return out


def unpack(packed: Bytes, num: int, bits: int) -> Codes:
    """Return the `num` codes of `bits` bits in `packed`, which has exactly `packed_nbytes` bytes."""
    if bits == 8:
        return packed
    planes, left = divmod(bits, 8)
    codes = np.zeros(num, code_dtype(bits))
    as_bytes = codes.view(np.uint8).reshape(num, codes.itemsize)
    for plane in range(planes):
        as_bytes[:, plane] = packed[plane * num : (plane + 1) * num]
    if left:
        rest = _unpack_small(packed[planes * num :], num, left)
        if codes.itemsize == 1:
            return rest
        as_bytes[:, planes] = rest
    return codes


def _masks(lane: int, bits: int) -> tuple[np.uint64, np.uint64]:
    low = sum(((1 << bits) - 1) << at for at in range(0, 64, 2 * lane))
    return np.uint64(low), np.uint64(low << bits)


def _pack_small(codes: Bytes, bits: int, out: Bytes) -> None:
    """Pack codes of 1 to 7 bits, eight at a time within a 64-bit word."""
    if bits == 1:
        out[:] = np.packbits(codes, bitorder="little")
        return
    for start in range(0, len(codes), PIECE):
        piece = codes[start : start + PIECE]
        if len(piece) % 8:
            piece = np.concatenate([piece, np.zeros(-len(piece) % 8, np.uint8)])
        words: NDArray[Any] = piece.view(np.uint64)
        lane, width = 8, bits
        while lane < 64 and width != 8:
            low, high = _masks(lane, width)
            shifted = words >> np.uint64(lane - width)
            shifted &= high
            words = words & low
            words |= shifted
            lane, width = 2 * lane, 2 * width
        target = out[start * bits // 8 : (start + PIECE) * bits // 8]
        if width == 8:
            np.copyto(target, words.view(f"u{lane // 8}")[: len(target)], casting="unsafe")
        else:
            target[:] = words.view(np.uint8).reshape(-1, 8)[:, :bits].reshape(-1)[: len(target)]


def _unpack_small(packed: Bytes, num: int, bits: int) -> Bytes:
    """Unpack codes that `_pack_small` packed."""
    if bits == 1:
        return np.unpackbits(packed, count=num, bitorder="little")
    out = np.empty(num, np.uint8)
    group = {2: 4, 4: 2}.get(bits, 8)
    for start in range(0, num, PIECE):
        count = min(PIECE, num - start)
        words = _spread(packed[start * bits // 8 : (start + PIECE) * bits // 8], -(-count // 8) * 8, bits, group)
        lane, width = 4 * group, bits * group // 2
        while lane >= 8:
            low, high = _masks(lane, width)
            shifted = words & high
            shifted <<= np.uint64(lane - width)
            words &= low
            words |= shifted
            lane, width = lane // 2, width // 2
        out[start : start + count] = words.view(np.uint8)[:count]
    return out


def _spread(packed: Bytes, num: int, bits: int, group: int) -> NDArray[np.uint64]:
    """Copy packed codes to 64-bit words, so that each `group` of codes begins at a multiple of `group` bytes."""
    if group < 8:
        groups = np.zeros(num // group, f"u{group}")
        groups[: len(packed)] = packed
        return groups.view(np.uint64)
    whole = np.zeros(num * bits // 8, np.uint8)
    whole[: len(packed)] = packed
    spread = np.zeros((num // 8, 8), np.uint8)
    spread[:, :bits] = whole.reshape(-1, bits)
    return spread.reshape(-1).view(np.uint64)


def unary(heights: NDArray[np.int64]) -> Bytes:
    """Encode the non-decreasing integers `heights` in unary: bit heights[i] + i of the result is set for each i."""
    if not len(heights):
        return np.empty(0, np.uint8)
    bits = np.zeros(int(heights[-1]) + len(heights), np.bool_)
    steps = np.arange(min(_FEW, len(heights)))
    for start in range(0, len(heights), _FEW):
        at = heights[start : start + _FEW] + steps[: len(heights) - start]
        bits[start:][at] = True
    return np.packbits(bits, bitorder="little")


def from_unary(packed: Bytes, num: int) -> NDArray[np.int64] | None:
    """Decode `num` integers that `unary` encoded; None if the number of set bits is not `num`."""
    ones = np.flatnonzero(np.unpackbits(packed, bitorder="little").view(np.bool_))
    if len(ones) != num:
        return None
    ones -= np.arange(num)
    return ones
