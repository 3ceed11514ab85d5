"""Unsigned integers of a few bits each, packed; and sorted or small ones in unary.

`pack` keeps 8-bit planes apart (the first bytes of all codes, then the second ones), and what is left over, 1 to 7 bits
a code, little-endian without gaps. n codes of b bits take n * (b // 8) + ceil(n * (b % 8) / 8) bytes = ceil(n * b / 8).
A long vector is cut into pieces that stay in a core's cache, along the borders of its buckets.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.compression.arrays import empty

Codes = NDArray[Any]
Bytes = NDArray[np.uint8]

_UNSIGNED = ((8, np.uint8), (16, np.uint16), (32, np.uint32), (64, np.uint64))


def code_dtype(bits: int) -> np.dtype[Any]:
    """The smallest unsigned dtype that holds `bits` bits."""
    return np.dtype(next(dtype for width, dtype in _UNSIGNED if bits <= width))


def packed_nbytes(num: int, bits: int) -> int:
    """Bytes of `num` packed codes of `bits` bits."""
    return -(-num * bits // 8)


def pack(codes: Codes, bits: int) -> Bytes:
    """Pack codes of dtype `code_dtype(bits)`, each below 2^bits. Codes of 8 bits are returned as they are."""
    if bits == 8:
        return codes
    planes, left = divmod(bits, 8)
    out = np.empty(packed_nbytes(len(codes), bits), np.uint8)
    as_bytes = codes.view(np.uint8).reshape(len(codes), codes.itemsize)
    for plane in range(planes):
        out[plane * len(codes) : (plane + 1) * len(codes)] = as_bytes[:, plane]
    if left:
        _pack_small(np.ascontiguousarray(as_bytes[:, planes]), left, out[planes * len(codes) :])
    return out


def unpack(packed: Bytes, num: int, bits: int) -> Codes:
    """The `num` codes of `bits` bits in `packed`, which has exactly `packed_nbytes` bytes."""
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
    """Pack codes of 1 to 7 bits, eight at a time as the bytes of a 64-bit word, halving the gaps."""
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
            shifted = np.right_shift(words, np.uint64(lane - width))
            np.bitwise_and(shifted, high, out=shifted)
            words = np.bitwise_and(words, low)
            np.bitwise_or(words, shifted, out=words)
            lane, width = 2 * lane, 2 * width
        target = out[start * bits // 8 : (start + PIECE) * bits // 8]
        if width == 8:
            np.copyto(target, words.view(f"u{lane // 8}")[: len(target)], casting="unsafe")
        else:
            target[:] = words.view(np.uint8).reshape(-1, 8)[:, :bits].reshape(-1)[: len(target)]


def _unpack_small(packed: Bytes, num: int, bits: int) -> Bytes:
    """Undo `_pack_small`."""
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
            shifted = np.bitwise_and(words, high)
            np.left_shift(shifted, np.uint64(lane - width), out=shifted)
            np.bitwise_and(words, low, out=words)
            np.bitwise_or(words, shifted, out=words)
            lane, width = lane // 2, width // 2
        out[start : start + count] = words.view(np.uint8)[:count]
    return out


def _spread(packed: Bytes, num: int, bits: int, group: int) -> NDArray[np.uint64]:
    """Copy packed codes to 64-bit words so that each `group` of codes starts its own `group` bytes."""
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
    """Encode a non-decreasing sequence from 0 up: bit heights[i] + i is set, in ceil((heights[-1] + n) / 8) bytes."""
    if not len(heights):
        return np.empty(0, np.uint8)
    bits = np.zeros(int(heights[-1]) + len(heights), np.bool_)
    bits[heights + np.arange(len(heights))] = True
    return np.packbits(bits, bitorder="little")


def from_unary(packed: Bytes, num: int) -> NDArray[np.int64] | None:
    """The `num` heights behind `packed`, or None where another number of bits is set."""
    ones = np.flatnonzero(np.unpackbits(packed, bitorder="little").view(np.bool_))
    if len(ones) != num:
        return None
    ones -= np.arange(num)
    return ones


PIECE = 65536
"""Coordinates handled at once: what is at hand of them fits a 1 MiB cache. torch may share a piece between
threads, so only maxima and element-wise operations are torch's; sums are numpy's, in one thread."""


def num_buckets(dim: int, bucket: int) -> int:
    """Buckets of a vector of `dim` numbers; `bucket` 0 is one for the whole vector."""
    return -(-dim // bucket) if bucket else min(dim, 1)


def pieces(vector: Tensor, bucket: int) -> list[Tensor]:
    """Views of shape (buckets, numbers), in order, that cover a flat vector.

    A bucket over `PIECE` becomes several pieces of shape (1, numbers); the last bucket may be shorter.
    """
    bucket = bucket or max(1, len(vector))
    if bucket > PIECE:
        return [piece.view(1, -1) for whole in vector.split(bucket) for piece in whole.split(PIECE) if len(piece)]
    whole = len(vector) // bucket * bucket
    result = list(vector[:whole].view(-1, bucket).split(PIECE // bucket)) if whole else []
    return result + [vector[whole:].view(1, -1)] * (whole < len(vector))


def piece_scales(scales: Tensor, dim: int, bucket: int) -> list[Tensor]:
    """The scales of the buckets in each piece, of shape (buckets, 1)."""
    bucket = bucket or max(1, dim)
    column = scales.view(-1, 1)
    if not dim:
        return []
    if bucket > PIECE:
        lengths = [min(bucket, dim - start) for start in range(0, dim, bucket)]
        return [scale for scale, n in zip(column.split(1), lengths, strict=True) for _ in range(math.ceil(n / PIECE))]
    whole = dim // bucket
    result = list(column[:whole].split(PIECE // bucket)) if whole else []
    return result + [column[whole:]] * (whole * bucket < dim)


def times_scales(numbers: Tensor, scales: Tensor, bucket: int) -> Tensor:
    """Each number times the scale of its bucket, of shape (d,), in the dtype of the scales."""
    result = empty(len(numbers), scales.dtype)
    views = zip(pieces(result, bucket), pieces(numbers, bucket), strict=True)
    for (view, number), scale in zip(views, piece_scales(scales, len(numbers), bucket), strict=True):
        view.copy_(number).mul_(scale)
    return result


def bucket_totals(ufunc: np.ufunc, partial: NDArray[Any], dim: int, bucket: int) -> NDArray[Any]:
    """Reduce one figure per row of `pieces` to one per bucket."""
    bucket = bucket or max(1, dim)
    if bucket <= PIECE or not dim:
        return partial
    starts = np.arange(num_buckets(dim, bucket)) * math.ceil(bucket / PIECE)
    totals: NDArray[Any] = ufunc.reduceat(partial, starts)
    return totals


def scratch(views: list[Tensor], dtype: torch.dtype) -> dict[torch.Size, Tensor]:
    """One buffer for each of the few shapes among `views`."""
    return {shape: torch.empty(shape, dtype=dtype) for shape in {view.shape for view in views}}
