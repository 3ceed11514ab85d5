"""Stochastic quantization: a number becomes one of 2 s + 1 levels from minus to plus the norm of its bucket."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.compression import rice
from netdfl.compression.arrays import (
    Vector,
    as_vector,
    check_names,
    from_numpy,
    read_count,
    read_numpy,
    read_scales,
    refuse_non_finite,
)
from netdfl.compression.base import Compressor, EncodedVector
from netdfl.compression.bits import code_dtype, pack, packed_nbytes, unpack
from netdfl.compression.buckets import (
    bucket_totals,
    buffer_for,
    num_buckets,
    pieces,
    plus_scaled,
    spans,
    times_scales,
)
from netdfl.compression.dither import fractions
from netdfl.core.errors import MalformedMessage

_SAFE_SQUARE = (1e-30, 1e30)
_SAFE_NORM = (1e-140, 1e150)


@dataclass(frozen=True, slots=True)
class Qsgd(Compressor):
    """Quantize to `levels` = s levels a sign: C(x)_i = |x| / s * floor(s x_i / |x| + u_i), u_i uniform in [0, 1).

    That is the quantizer of Alistarh et al. 2017 (QSGD, section 3.1) written without the split of sign and
    magnitude: the same two neighboring levels with the same probabilities. |x| is the `norm` of the bucket of
    `bucket` numbers (0: of the whole vector). Unbiased, with exact variance sum f(1-f) |x|^2 / s^2 in which
    f = frac(s |x_i| / |x|). `scaled` multiplies by 1 / (1 + variance(d)), which makes it a contraction
    (Koloskova et al. 2019, section 2.2) and biased. Buckets whose norm is under s / 3.4e38 become zero: their levels
    would be too small for float32 (s / 1.8e308 for float64).

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
        """The number of bits per number, including the sign."""
        return (2 * self.levels).bit_length()

    @property
    def unbiased(self) -> bool:
        """Whether the expected decoded vector is the vector itself, which it is unless rescaled."""
        return not self.scaled

    def variance(self, dim: int) -> float:
        """Return the bound of E|x - C(x)|^2 / |x|^2: tau, or tau / (1 + tau) if rescaled.

        With the norm l2, tau = min(B / s^2, sqrt(B) / s), lemma 3.1 of QSGD with B the bucket's size and s the levels
        of each sign. With max it is min((B - 1) / (4 s^2), (1 + sqrt(B)) / (2 s)): from f(1-f) <= 1/4 and f(1-f) <= s
        |x_i| / |x|.
        """
        size, s = min(self.bucket or dim, dim), self.levels
        if self.norm == "l2":
            tau = min(size / s**2, math.sqrt(size) / s)
        else:
            tau = min(max(size - 1, 0) / (4 * s**2), (1 + math.sqrt(size)) / (2 * s))
        return tau / (1 + tau) if self.scaled else tau

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
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
        """Return the code floor(x_i * f + u_i) + 2^(bits - 1) of each number, with f of its bucket and u_i random."""
        covering = spans(len(vector), self.bucket)
        codes = np.empty(len(vector), code_dtype(self.bits))
        column, double = factors.view(-1, 1), factors.dtype == torch.float64
        dither = fractions(rng, covering, 2 ** (self.bits - 1), double=double)
        for span, sums in zip(covering, dither, strict=True):
            numbers = span.of(vector)
            _add_products(sums, numbers.double() if double else numbers, column[span.buckets], span.width)
            found = sums.numpy()[: len(numbers)]
            np.copyto(codes[span.start : span.stop], found.astype(np.int64) if double else found, casting="unsafe")
        if self.bits not in (8, 16):
            codes &= codes.dtype.type(2**self.bits - 1)
        return codes

    def _norms(self, vector: Vector) -> Vector:
        """Return the norm of each bucket in the vector's dtype, at least the bucket's largest magnitude."""
        if self.norm == "max":
            norms = _largest(torch.from_numpy(vector), self.bucket)
        else:
            views = pieces(torch.from_numpy(vector), self.bucket)
            squares = np.concatenate([np.empty(0), *(_squares(view.numpy()) for view in views)])
            with np.errstate(over="ignore"):
                norms = np.sqrt(bucket_totals(np.add, squares, len(vector), self.bucket)).astype(vector.dtype)
            if vector.dtype == np.float64:
                _measure_again(norms, vector, self.bucket)
            np.nextafter(norms, vector.dtype.type(np.inf), out=norms, where=norms > 0)
        if not np.isfinite(norms).all():
            refuse_non_finite(vector)
            raise ValueError(f"a bucket's l2 norm is beyond {vector.dtype}: use norm: max, or lower the learning rate")
        with np.errstate(over="ignore"):
            highest = norms.max(initial=0) / norms.dtype.type(self.levels) * norms.dtype.type(self.levels)
        if not np.isfinite(highest):
            raise ValueError(
                f"the highest level is beyond {vector.dtype}: lower the learning rate or clip the gradient"
            )
        return norms

    def _encoded(self, codes: Vector, norms: Vector) -> EncodedVector:
        dim, scales = len(codes), from_numpy(norms)
        if self.entropy and dim:
            folded = rice.fold(codes, self.bits)
            k, nbytes = rice.shortest(folded, self.bits)
            if nbytes < packed_nbytes(dim, bits=self.bits):
                quotients, remainders = (from_numpy(a) for a in rice.encode(folded, k))
                arrays = {"scales": scales, "quotients": quotients, "remainders": remainders}
                return EncodedVector(dim, arrays, {"rice": k})
        return EncodedVector(dim, {"scales": scales, "codes": from_numpy(pack(codes, self.bits))})

    def decompress(self, encoded: EncodedVector) -> Tensor:
        """Decode to shape (d,), in the dtype of the scales. Raises MalformedMessage."""
        return times_scales(*self._levels_and_steps(encoded), self.bucket)

    def add_to(self, base: Tensor, encoded: EncodedVector) -> Tensor:
        """Return `base` plus the decoded vector, in fewer passes over memory. Raises MalformedMessage if invalid."""
        levels, steps = self._levels_and_steps(encoded)
        if base.is_cpu and base.dtype == steps.dtype:
            return plus_scaled(base, levels, steps, self.bucket)
        return base + times_scales(levels, steps, self.bucket).to(base.device, base.dtype)

    def _levels_and_steps(self, encoded: EncodedVector) -> tuple[Tensor, Tensor]:
        """Return the quantized level of each number, and the size of one level in each bucket."""
        levels = self._rice(encoded) if self.entropy and "quotients" in encoded.arrays else self._fixed(encoded)
        norms = read_scales(encoded, num_buckets(len(levels), self.bucket))
        return torch.from_numpy(levels), torch.from_numpy(norms / norms.dtype.type(self.levels))

    def _fixed(self, encoded: EncodedVector) -> Vector:
        dim = check_names(encoded, ("scales", "codes"))
        codes = unpack(read_numpy(encoded, "codes", ("uint8",), packed_nbytes(dim, bits=self.bits)), dim, self.bits)
        zero = 2 ** (self.bits - 1)
        most = zero + self.levels  # of 8 and 16 bits the largest code there is
        if dim and (codes.min() < zero - self.levels or (most < 2**self.bits - 1 and codes.max() > most)):
            raise MalformedMessage(f"a level beyond {self.levels}; expected {-self.levels} to {self.levels}")
        signed: Vector = (codes - codes.dtype.type(zero)).view(f"i{codes.itemsize}")
        return signed

    def _rice(self, encoded: EncodedVector) -> NDArray[Any]:
        dim = check_names(encoded, ("scales", "quotients", "remainders"))
        k = read_count(encoded, "rice", 0, self.bits - 1)
        remainders = read_numpy(encoded, "remainders", ("uint8",), packed_nbytes(dim, bits=k))
        quotients = read_numpy(encoded, "quotients", ("uint8",), None)
        if len(quotients) + len(remainders) > packed_nbytes(dim, bits=self.bits):
            raise MalformedMessage(
                f"{len(quotients)} bytes of quotients; expected less than fixed codes of {self.bits} bits take"
            )
        folded = rice.decode(quotients, remainders, dim, k)
        if folded is None or (dim and folded.max() > 2 * self.levels):
            raise MalformedMessage(f"quotients that are not {dim} levels from {-self.levels} to {self.levels}")
        return rice.unfold(folded)


def _reciprocal(norms: Vector, levels: int) -> Vector:
    """Return levels / norms, rounded down so that no product with a number exceeds `levels`; 0 for tiny norms."""
    with np.errstate(divide="ignore", over="ignore"):
        factors: Vector = norms.dtype.type(levels) / norms
    factors[np.isinf(factors)] = 0
    np.nextafter(factors, norms.dtype.type(0), out=factors)
    return factors


def _largest(vector: Tensor, bucket: int) -> Vector:
    """Return the largest magnitude of each bucket."""
    covering = spans(len(vector), bucket)
    magnitudes = buffer_for(covering, vector.dtype)
    plain = magnitudes.numpy()
    largest = np.zeros(num_buckets(len(vector), bucket), plain.dtype)
    for span in covering:
        numbers = span.of(vector).numpy()
        np.abs(numbers, out=plain[: len(numbers)])
        plain[len(numbers) : span.numel] = 0
        found, known = torch.amax(span.matrix(magnitudes), dim=1).numpy(), largest[span.buckets]
        np.maximum(known, found, out=known)
    return largest


def _add_products(sums: Tensor, numbers: Tensor, factors: Tensor, width: int) -> None:
    """Add to `sums` each number times its bucket's factor; the last bucket may be shorter than `width`."""
    whole = len(numbers) // width
    if whole:
        sums[: whole * width].view(-1, width).addcmul_(numbers[: whole * width].view(-1, width), factors[:whole])
    if whole < len(factors):
        sums[whole * width : len(numbers)].addcmul_(numbers[whole * width :], factors[whole])


def _measure_again(norms: Vector, vector: Vector, bucket: int) -> None:
    """Recompute in place the norms of buckets whose numbers' squares overflow or underflow, on rescaled numbers."""
    odd = ~((norms > _SAFE_NORM[0]) & (norms < _SAFE_NORM[1]))
    if not odd.any():
        return
    size, largest = bucket or len(vector), _largest(torch.from_numpy(vector), bucket)
    for i in np.flatnonzero(odd & np.isfinite(largest)):
        exponent = np.frexp(largest[i])[1]
        near = np.ldexp(vector[i * size : (i + 1) * size], -exponent)
        with np.errstate(over="ignore"):
            norms[i] = np.ldexp(np.sqrt(np.einsum("i,i->", near, near)), exponent)


def _squares(piece: Vector) -> NDArray[np.float64]:
    """Return the sum of squares of each row, by numpy: torch's sums may depend on the number of threads."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        sums: NDArray[np.float64] = np.einsum("ij,ij->i", piece, piece).astype(np.float64)
    unsafe = ~((sums > _SAFE_SQUARE[0]) & (sums < _SAFE_SQUARE[1]))
    if piece.dtype == np.float32:
        wide = piece[unsafe].astype(np.float64)
        sums[unsafe] = np.einsum("ij,ij->i", wide, wide)
    return sums
