"""The compressors by the names that a scenario uses.

Importing this file is cheap, so that a scenario is checked quickly: each function imports its compressor, and torch
with it, when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from netdfl.core.tables import by_name
from netdfl.core.units import Bound, NonNegativeInt, PositiveInt, Probability

if TYPE_CHECKING:
    from netdfl.compression.base import Compressor

Norm = Literal["max", "l2"]
Bits = Annotated[int, Bound(ge=1, le=16)]
Levels = Annotated[int, Bound(ge=0, le=32767)]


def identity() -> Compressor:
    """Send every number unchanged."""
    from netdfl.compression.identity import IdentityCompressor

    return IdentityCompressor()


def float16() -> Compressor:
    """Round to IEEE half precision: 3 digits, magnitudes from 6e-5 to 65504; a magnitude below 3e-8 becomes 0."""
    from netdfl.compression.identity import Cast

    return Cast("float16")


def bfloat16() -> Compressor:
    """Round to bfloat16: 2 digits, the range of float32."""
    from netdfl.compression.identity import Cast

    return Cast("bfloat16")


def qsgd(
    *,
    bits: Bits = 8,
    levels: Levels = 0,
    bucket: NonNegativeInt = 512,
    norm: Norm = "max",
    scaled: bool = False,
    entropy: bool = False,
) -> Compressor:
    """Round at random to 2^(bits-1) - 1 levels a sign of each bucket's norm; unbiased unless scaled.

    A bucket whose norm is so small that a float32 can't hold its levels, 4e-37 for 8 bits, 1e-34 for 16, becomes 0.

    Args:
        bits: Bits a number, sign included; 1 is `sign`.
        levels: Levels a sign in place of the number that follows from `bits`, if not 0.
        bucket: Numbers that share a norm; 0 for the whole vector.
        norm: What the levels divide: the largest magnitude, or the Euclidean norm of the paper.
        scaled: Multiply by 1 / (1 + variance), which makes it a contraction; CHOCO needs that.
        entropy: Use Golomb-Rice codes where they are shorter.

    Raises:
        ValueError: `scaled` or `entropy` with 1 bit, where they have no meaning.
    """
    from netdfl.compression.qsgd import Qsgd
    from netdfl.compression.sign import Sign

    if bits == 1 and not levels:
        if scaled or entropy:
            raise ValueError("qsgd with bits: 1 is the sign compressor: leave out scaled and entropy, or use 2 bits")
        return Sign(bucket)
    return Qsgd(levels or 2 ** (bits - 1) - 1, bucket, norm, scaled, entropy)


def top_k(
    *, fraction: Probability = 0.1, count: NonNegativeInt = 0, method: Literal["exact", "threshold"] = "exact"
) -> Compressor:
    """Send the numbers of largest magnitude: a fraction of all, or `count` if that is not 0.

    Raises:
        ValueError: Neither a fraction nor a count.
    """
    from netdfl.compression.sparsify import TopK

    return TopK(_fraction(fraction, count), count, method == "threshold")


def random_k(*, fraction: Probability = 0.1, count: NonNegativeInt = 0, unbiased: bool = False) -> Compressor:
    """Send numbers drawn at random from a seed that travels in place of indices.

    Args:
        fraction: The share of the numbers that is sent.
        count: How many, in place of `fraction`, where not 0.
        unbiased: Multiply by d / k, which removes the bias; otherwise it is a contraction.

    Raises:
        ValueError: Neither a fraction nor a count.
    """
    from netdfl.compression.sparsify import RandomK

    return RandomK(_fraction(fraction, count), count, unbiased)


def sign(*, bucket: NonNegativeInt = 512) -> Compressor:
    """Send one bit a number, and the mean magnitude of each bucket (0: of the whole vector)."""
    from netdfl.compression.sign import Sign

    return Sign(bucket)


def low_rank(*, rank: PositiveInt = 4) -> Compressor:
    """Send the vector, seen as a square matrix, as a product of two matrices of this rank."""
    from netdfl.compression.low_rank import LowRank

    return LowRank(rank)


def chain(
    *,
    select: Literal["top_k", "random_k"] = "top_k",
    fraction: Probability = 0.1,
    count: NonNegativeInt = 0,
    bits: Bits = 8,
    bucket: NonNegativeInt = 512,
    norm: Norm = "max",
    scaled: bool = False,
    entropy: bool = False,
) -> Compressor:
    """Send only some numbers, chosen by `top_k` or `random_k` and quantized by `qsgd`.

    Raises:
        ValueError: Neither a fraction nor a count; `scaled` or `entropy` with 1 bit.
    """
    from netdfl.compression.sparsify import Chain, RandomK, TopK

    values = qsgd(bits=bits, bucket=bucket, norm=norm, scaled=scaled, entropy=entropy)
    share = _fraction(fraction, count)
    return Chain(TopK(share, count) if select == "top_k" else RandomK(share, count), values)


def _fraction(fraction: float, count: int) -> float:
    if not fraction and not count:
        raise ValueError("fraction: 0 and count: 0 send nothing; write a fraction over 0, or a count")
    return fraction


COMPRESSORS = by_name(identity, float16, bfloat16, qsgd, top_k, random_k, sign, low_rank, chain)
