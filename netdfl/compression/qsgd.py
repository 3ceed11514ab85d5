"""Stochastic quantization: every number becomes one of 2 s + 1 levels of its bucket's norm.

Drawing 16 random bits a coordinate for the rounding takes longer than all the rest. So one block of them is drawn, and
piece m of the vector uses u = R_i xor c_m, with a fresh c_m a piece. Each u is uniform, and any two are independent:
R_i and R_j are, and for i = j the c are. The mean, the variance and every covariance of what is rounded with them are
those of independent draws.

The u lie on the grid (2j + 1) / 2^16, j < 2^15. So floor(y + u) rounds y to the nearest multiple of 2^-15 first:
P(up) is off by at most 2^-16. With 8 bits that is 1.2e-7 of the norm, the spacing of float32 there; 2^32 draws would
be needed to see it at one standard error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.compression import rice
from netdfl.compression.arrays import (
    DTYPES,
    Vector,
    as_vector,
    check_names,
    from_numpy,
    read_count,
    read_numpy,
    read_scales,
    refuse_non_finite,
)
from netdfl.compression.base import Compressor, Encoded
from netdfl.compression.bits import (
    bucket_totals,
    code_dtype,
    num_buckets,
    pack,
    packed_nbytes,
    piece_scales,
    pieces,
    scratch,
    times_scales,
    unpack,
)
from netdfl.core.errors import MalformedMessage

_SAFE_SQUARE = (1e-30, 1e30)


@dataclass(frozen=True, slots=True)
class Qsgd(Compressor):
    """Quantize to `levels` = s levels a sign: C(x)_i = |x| / s * floor(s x_i / |x| + u_i), u_i uniform in [0, 1).

    That is the quantizer of Alistarh et al. 2017 (QSGD, section 3.1) written without the split of sign and
    magnitude: the same two neighboring levels with the same probabilities. |x| is the `norm` of the bucket of
    `bucket` numbers (0: of the whole vector). Unbiased, with exact variance sum f(1-f) |x|^2 / s^2 in which
    f = frac(s |x_i| / |x|). `scaled` multiplies by 1 / (1 + variance(d)), which makes it a contraction
    (Koloskova et al. 2019, section 2.2) and biased. Buckets whose norm is under s / 3.4e38 become zero.

    nbytes: ceil(d b / 8) + 4 ceil(d / bucket), b = bits of 2 s; 8 a bucket for float64. With `entropy`,
    Golomb-Rice codes in place of ceil(d b / 8) where they are shorter.
    """

    levels: int
    bucket: int
    norm: Literal["max", "l2"]
    scaled: bool = False
    entropy: bool = False

    @property
    def bits(self) -> int:
        """Bits a number, sign included."""
        return (2 * self.levels).bit_length()

    @property
    def unbiased(self) -> bool:
        """Whether it is not rescaled."""
        return not self.scaled

    def variance(self, dim: int) -> float:
        """Tau, or tau / (1 + tau) if scaled.

        For l2 tau = min(B / s^2, sqrt(B) / s), lemma 3.1 of QSGD with B the bucket's size. For max it is
        min((B - 1) / (4 s^2), (1 + sqrt(B)) / (2 s)): from f(1-f) <= 1/4 and f(1-f) <= s |x_i| / |x|.
        """
        size, s = min(self.bucket or dim, dim), self.levels
        if self.norm == "l2":
            tau = min(size / s**2, math.sqrt(size) / s)
        else:
            tau = min(max(size - 1, 0) / (4 * s**2), (1 + math.sqrt(size)) / (2 * s))
        return tau / (1 + tau) if self.scaled else tau

    def compress(self, x: Tensor, rng: np.random.Generator) -> Encoded:
        """Encode `x` of shape (d,). Raises ValueError where a number is not finite."""
        vector = as_vector(x)
        double = vector.dtype == np.float64 or self.bits > 8
        norms = self._norms(vector)
        factors = torch.from_numpy(_reciprocal(norms, self.levels))
        if double:
            factors = factors.double()
        codes = self._round(torch.from_numpy(vector), factors, rng)
        if self.scaled:
            norms *= norms.dtype.type(1.0 - self.variance(len(vector)))
        return self._encoded(codes, norms)

    def _round(self, vector: Tensor, factors: Tensor, rng: np.random.Generator) -> Vector:
        """floor(x_i * factor + u_i) + 2^(bits - 1), in the factors' precision."""
        views = pieces(vector, self.bucket)
        codes = np.empty(len(vector), code_dtype(self.bits))
        double = factors.dtype == torch.float64
        dither = fractions(rng, [view.shape for view in views], 2 ** (self.bits - 1), double=double)
        at = 0
        for view, factor, dithered in zip(views, piece_scales(factors, len(vector), self.bucket), dither, strict=True):
            sums = dithered.addcmul_(view.double() if double else view, factor).numpy().reshape(-1)
            np.copyto(codes[at : at + len(sums)], sums.astype(np.int64) if double else sums, casting="unsafe")
            at += len(sums)
        if self.bits not in (8, 16):
            np.bitwise_and(codes, codes.dtype.type(2**self.bits - 1), out=codes)
        return codes

    def _norms(self, vector: Vector) -> Vector:
        """The norm of each bucket in the vector's dtype, never below the bucket's largest magnitude."""
        views = pieces(torch.from_numpy(vector), self.bucket)
        if self.norm == "max":
            norms = bucket_totals(np.maximum, _largest(views, DTYPES[vector.dtype.name]), len(vector), self.bucket)
        else:
            squares = np.concatenate([np.empty(0), *(_squares(view.numpy()) for view in views)])
            with np.errstate(over="ignore"):
                norms = np.sqrt(bucket_totals(np.add, squares, len(vector), self.bucket)).astype(vector.dtype)
            np.nextafter(norms, vector.dtype.type(np.inf), out=norms, where=norms > 0)
        if not np.isfinite(norms).all():
            refuse_non_finite(vector)
            raise ValueError(f"a bucket's l2 norm is beyond {vector.dtype}: use norm: max, or lower the learning rate")
        return norms

    def _encoded(self, codes: Vector, norms: Vector) -> Encoded:
        dim, scales = len(codes), from_numpy(norms)
        if self.entropy and dim:
            folded = rice.fold(codes, self.bits)
            k, nbytes = rice.shortest(folded, self.bits)
            if nbytes < packed_nbytes(dim, self.bits):
                quotients, remainders = (from_numpy(a) for a in rice.encode(folded, k))
                arrays = {"scales": scales, "quotients": quotients, "remainders": remainders}
                return Encoded(dim, arrays, {"rice": k})
        return Encoded(dim, {"scales": scales, "codes": from_numpy(pack(codes, self.bits))})

    def decompress(self, encoded: Encoded) -> Tensor:
        """Decode to shape (d,), in the dtype of the scales. Raises MalformedMessage."""
        levels = self._rice(encoded) if self.entropy and "quotients" in encoded.arrays else self._fixed(encoded)
        norms = read_scales(encoded, num_buckets(len(levels), self.bucket))
        steps = torch.from_numpy(norms / norms.dtype.type(self.levels))
        return times_scales(torch.from_numpy(levels), steps, self.bucket)

    def _fixed(self, encoded: Encoded) -> Vector:
        dim = check_names(encoded, ("scales", "codes"))
        codes = unpack(read_numpy(encoded, "codes", ("uint8",), packed_nbytes(dim, self.bits)), dim, self.bits)
        zero = 2 ** (self.bits - 1)
        if dim and not zero - self.levels <= codes.min() <= codes.max() <= zero + self.levels:
            raise MalformedMessage(f"a level beyond {self.levels}; expected {-self.levels} to {self.levels}")
        signed: Vector = (codes - codes.dtype.type(zero)).view(f"i{codes.itemsize}")
        return signed

    def _rice(self, encoded: Encoded) -> NDArray[Any]:
        dim = check_names(encoded, ("scales", "quotients", "remainders"))
        k = read_count(encoded, "rice", 0, self.bits - 1)
        remainders = read_numpy(encoded, "remainders", ("uint8",), packed_nbytes(dim, k))
        quotients = read_numpy(encoded, "quotients", ("uint8",), None)
        if len(quotients) + len(remainders) > packed_nbytes(dim, self.bits):
            raise MalformedMessage(
                f"{len(quotients)} bytes of quotients; expected less than fixed codes of {self.bits} bits take"
            )
        folded = rice.decode(quotients, remainders, dim, k)
        if folded is None or (dim and folded.max() > 2 * self.levels):
            raise MalformedMessage(f"quotients that are not {dim} levels from {-self.levels} to {self.levels}")
        return rice.unfold(folded)


def _reciprocal(norms: Vector, levels: int) -> Vector:
    """levels / norms, rounded down so that no |x_i| * it exceeds `levels`; 0 for a norm of 0."""
    with np.errstate(divide="ignore", over="ignore"):
        factors: Vector = np.minimum(norms.dtype.type(levels) / norms, np.finfo(norms.dtype).max)
    factors[norms == 0] = 0
    np.nextafter(factors, norms.dtype.type(0), out=factors)
    return factors


def _largest(views: list[Tensor], dtype: torch.dtype) -> Vector:
    """The largest magnitude of each row."""
    magnitudes = scratch(views, dtype)
    rows = [view.shape[0] for view in views]
    largest = torch.empty(sum(rows), dtype=dtype)
    for view, out in zip(views, largest.split(rows), strict=True):
        torch.amax(torch.abs(view, out=magnitudes[view.shape]), dim=1, out=out)
    return largest.numpy()


def _squares(piece: Vector) -> NDArray[np.float64]:
    """Sum of squares of each row, by numpy alone: torch's sums may depend on the number of threads."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        sums: NDArray[np.float64] = np.einsum("ij,ij->i", piece, piece).astype(np.float64)
    unsafe = ~((sums > _SAFE_SQUARE[0]) & (sums < _SAFE_SQUARE[1]))
    if piece.dtype == np.float32 and unsafe.any():
        wide = piece[unsafe].astype(np.float64)
        sums[unsafe] = np.einsum("ij,ij->i", wide, wide)
    return sums


def fractions(rng: np.random.Generator, shapes: Sequence[torch.Size], offset: int, *, double: bool) -> Iterator[Tensor]:
    """Yield `2^e + offset + u` of each shape, the consumer's to overwrite, until the next one.

    The integer part is `offset` modulo 2^8 in float32 (e = 7) and modulo 2^16 in float64 (e = 20). The bits of
    that float that stand for u are 16 zeros; u is put there as an integer, so no float operation is needed.
    """
    dtype, low, exponent = ("f8", 16, 20) if double else ("f4", 0, 7)
    word = np.dtype("u8" if double else "u4")
    num = max((shape.numel() for shape in shapes), default=0)
    block: NDArray[Any] = np.full(num, 2**exponent + offset % 2**exponent, dtype).view(word)
    block |= (rng.integers(0, 2**16, num, np.uint16) | np.uint16(1)).astype(word) << word.type(low)
    shifts: NDArray[Any] = (rng.integers(0, 2**15, len(shapes), np.uint16) << np.uint16(1)).astype(word)
    shifts <<= word.type(low)
    shifted = np.empty_like(block)
    floats = torch.from_numpy(shifted.view(dtype))
    views = {shape: floats[: shape.numel()].view(shape) for shape in set(shapes)}
    for shape, shift in zip(shapes, shifts, strict=True):
        np.bitwise_xor(block, shift, out=shifted)
        yield views[shape]
