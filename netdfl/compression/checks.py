"""What a compressor lets in: finite flat vectors from its own node, plausible arrays from a peer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.compression.base import Encoded
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Array

Vector = NDArray[Any]

FLOATS = ("float32", "float64")
_ROW = 8192
_COPIED = 64 * _ROW
"""From 1 MiB on glibc copies past the cache, which costs a third less."""


def as_vector(x: Tensor) -> Vector:
    """View a flat floating-point tensor as numpy's float32, or float64 where it is that. Half precision is widened.

    Raises ValueError where `x` is not flat or not floating-point.
    """
    if x.dim() != 1 or not x.is_floating_point():
        raise ValueError(f"compress takes a flat floating-point vector, got shape {tuple(x.shape)} of {x.dtype}")
    host = x.detach().to("cpu")
    return (host if host.dtype == torch.float64 else host.to(torch.float32)).contiguous().numpy()


def is_finite(x: Vector) -> bool:
    """Whether no number of `x` is NaN or infinite.

    Sums of squares show it at the speed of reading; only where one overflows is every number looked at.
    """
    whole = x[: len(x) // _ROW * _ROW].reshape(-1, 1, _ROW)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = whole @ whole.transpose(0, 2, 1)
    rest = x[whole.size :]
    return bool(np.isfinite(squares).all() and np.isfinite(rest).all()) or bool(np.isfinite(x).all())


def copy_finite(x: Vector) -> Vector | None:
    """A copy of `x`, whose pieces are checked and then copied from the cache; None where a number is not finite."""
    out = np.empty_like(x)
    for start in range(0, len(x), _COPIED):
        piece = x[start : start + _COPIED]
        if not is_finite(piece):
            return None
        out[start : start + _COPIED] = piece
    return out


def refuse_non_finite(x: Vector) -> None:
    """Raise the ValueError that names the first NaN or infinity of `x`, if there is one."""
    if not is_finite(x):
        raise_non_finite(x)


def raise_non_finite(x: Vector) -> NoReturn:
    """Raise the ValueError that names the first NaN or infinity of `x`, which has one."""
    bad = np.flatnonzero(~np.isfinite(x))
    raise ValueError(
        f"x[{bad[0]}] is {x[bad[0]]}, and {len(bad)} of {len(x)} numbers are NaN or infinite: "
        "only finite vectors can be compressed; lower the learning rate or clip the gradient"
    )


def read_dim(encoded: Encoded) -> int:
    """Return the dimension of `encoded`; raise MalformedMessage unless it is a count."""
    if type(encoded.dim) is not int or encoded.dim < 0:
        raise MalformedMessage(f"an encoded vector of dimension {encoded.dim!r}; expected a count")
    return encoded.dim


def check_names(encoded: Encoded, names: Collection[str]) -> int:
    """Return the dimension of `encoded`; raise MalformedMessage unless its arrays are exactly `names`."""
    dim = read_dim(encoded)
    if set(encoded.arrays) != set(names):
        raise MalformedMessage(f"arrays {sorted(encoded.arrays)}; expected {sorted(names)}")
    return dim


def read_count(encoded: Encoded, name: str, low: int, high: int) -> int:
    """Return the integer `name` of the metadata; raise MalformedMessage unless low <= it <= high."""
    value = encoded.meta.get(name)
    if type(value) is not int or not low <= value <= high:
        raise MalformedMessage(f"{name} = {value!r}; expected an integer from {low} to {high}")
    return value


def read_array(encoded: Encoded, name: str, dtypes: Collection[str], length: int | None) -> Array:
    """Return the flat array `name` if it has one of `dtypes` and `length`, else raise MalformedMessage.

    Nothing is allocated. A `length` of None accepts any that agrees with the buffer.
    """
    array = encoded.arrays.get(name)
    if not isinstance(array, Array) or array.dtype not in dtypes:
        raise MalformedMessage(
            f"array {name!r} is {getattr(array, 'dtype', 'missing')}; expected {' or '.join(dtypes)}"
        )
    itemsize = 2 if array.dtype == "bfloat16" else np.dtype(array.dtype).itemsize
    if length is None:
        length = array.data.nbytes // itemsize
    if array.shape != (length,) or array.data.nbytes != length * itemsize or not array.data.c_contiguous:
        raise MalformedMessage(
            f"array {name!r} has shape {array.shape} in {array.data.nbytes} bytes; "
            f"expected shape ({length},) in {length * itemsize}"
        )
    return array


def read_numpy(encoded: Encoded, name: str, dtypes: Collection[str], length: int | None) -> Vector:
    """View the array `name` as numpy after the checks of `read_array`."""
    array = read_array(encoded, name, dtypes, length)
    return np.frombuffer(array.data, np.dtype(array.dtype))


def read_finite(encoded: Encoded, name: str, length: int) -> Vector:
    """View float32 or float64 numbers; raise MalformedMessage where one is NaN or infinite."""
    values = read_numpy(encoded, name, FLOATS, length)
    if not is_finite(values):
        raise MalformedMessage(f"array {name!r} holds a NaN or an infinity; expected finite numbers")
    return values


def read_scales(encoded: Encoded, length: int) -> Vector:
    """View the buckets' scales; raise MalformedMessage where one is negative, NaN or infinite."""
    scales = read_finite(encoded, "scales", length)
    if length and scales.min() < 0:
        raise MalformedMessage(f"a scale of {scales.min()}; expected none below 0")
    return scales
