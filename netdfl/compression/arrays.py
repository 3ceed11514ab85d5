"""Conversion of tensors to the read-only arrays of messages and back, without a copy where none is needed.

A compressor checks its input here: a vector of its own node must be flat and finite. Arrays from a peer must have the
expected names, types, lengths and ranges of values.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.compression.base import EncodedVector
from netdfl.compression.vector import SHORT_BYTES, name_of
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import ITEM_BYTES, Array

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_BYTES}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
with warnings.catch_warnings():  # torch says it once in a process: a buffer that can't be written to must not be
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


def to_array(tensor: Tensor) -> Array:
    """View a tensor as an `Array`, the read-only buffer of a message, without a copy; don't write to `tensor` later.

    A tensor on a GPU, or not contiguous, is copied to the host first.
    """
    host = tensor.detach().to("cpu").contiguous()
    flat = host.reshape(-1).view(torch.uint8).numpy()
    return Array(_NAMES[tensor.dtype], tuple(tensor.shape), memoryview(flat.data).toreadonly())


def snapshot(tensor: Tensor) -> Array:
    """Copy a tensor into a new `Array`, which later writes to `tensor` do not change.

    From a GPU it is one copy, into pinned memory.
    """
    if tensor.is_cuda:
        return to_array(torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor.detach()))
    if tensor.nbytes <= SHORT_BYTES and tensor.dtype is not torch.bfloat16:  # which numpy doesn't know
        return Array(_NAMES[tensor.dtype], tuple(tensor.shape), memoryview(tensor.detach().numpy().tobytes()))
    return to_array(empty(tensor.numel(), tensor.dtype).view(tensor.shape).copy_(tensor.detach()))


def scaled(tensor: Tensor, factor: float) -> Array:
    """Return `factor` times a tensor as an `Array` for a message, computed in one pass over memory."""
    if tensor.is_cuda:
        return snapshot(tensor * factor)
    out = empty(tensor.numel(), tensor.dtype).view(tensor.shape)
    return to_array(torch.mul(tensor.detach(), factor, out=out))


def empty(num: int, dtype: torch.dtype) -> Tensor:
    """Return a flat CPU tensor of `num` uninitialized numbers.

    numpy allocates, because it asks for huge pages: fresh memory costs several times a copy otherwise.
    """
    if not num:
        return torch.empty(0, dtype=dtype)
    return torch.from_numpy(np.empty(num * dtype.itemsize, np.uint8)).view(dtype)


def from_numpy(array: NDArray[Any]) -> Array:
    """View a contiguous numpy array as an `Array` for a message; the caller must not write to `array` later."""
    return Array(name_of(array.dtype), array.shape, array.ravel().view(np.uint8).data.toreadonly())


def to_tensor(array: Array) -> Tensor:
    """View a message's array as a CPU tensor that shares its memory. Do not write to the tensor."""
    if array.nbytes == 0:
        return torch.empty(array.shape, dtype=DTYPES[array.dtype])
    return torch.frombuffer(array.data, dtype=DTYPES[array.dtype]).reshape(array.shape)


def square(array: Array) -> float:
    """Return the sum of the squares of the numbers in a message's array, computed like `squared`."""
    return squared(to_tensor(array))


def squared(x: Tensor) -> float:
    """Return the sum of squares of a tensor's numbers, in one pass; types narrower than float32 are added as float32.

    The sum is NaN or infinite if a number is, or if the sum is beyond the range of the type.
    """
    flat = x.reshape(-1)
    flat = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
    return float(torch.dot(flat, flat))


Vector = NDArray[Any]

FLOATS = ("float32", "float64")
_ROW = 8192
_COPIED = 8
"""The rows of `_ROW` numbers that `copy_finite` tests and copies at a time: 256 KiB of float32 fit a core's cache."""


def as_vector(x: Tensor) -> Vector:
    """View a flat floating-point tensor as numpy's float64 or float32; half precision is widened.

    Raises ValueError where `x` is not flat or not floating-point.
    """
    if x.dim() != 1 or not x.is_floating_point():
        raise ValueError(f"compress takes a flat floating-point vector, got shape {tuple(x.shape)} of {x.dtype}")
    if x.is_cpu and x.dtype in (torch.float32, torch.float64) and x.is_contiguous():
        return x.detach().numpy()
    host = x.detach().to("cpu")
    return (host if host.dtype == torch.float64 else host.to(torch.float32)).contiguous().numpy()


def is_finite(x: Vector) -> bool:
    """Return whether no number of `x` is NaN or infinite.

    Finite sums of squares prove it in one fast pass; every number is tested only where a sum is not finite.
    """
    if len(x) < _ROW:
        return bool(np.isfinite(x).all())
    num = len(x) // _ROW
    whole = x[: num * _ROW].reshape(num, 1, _ROW)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = whole @ whole.transpose(0, 2, 1)
    rest = x[whole.size :]
    return bool(np.isfinite(squares).all() and np.isfinite(rest).all()) or bool(np.isfinite(x).all())


def copy_finite(x: Vector) -> Vector:
    """Return a copy of `x`. Raises ValueError if a number is NaN or infinite."""
    num = len(x) // _ROW
    if num <= 4 * _COPIED:
        refuse_non_finite(x)
        return x.copy()
    out, size = np.empty_like(x), num * _ROW
    rows, into = x[:size].reshape(num, 1, _ROW), out[:size].reshape(num, 1, _ROW)
    columns, squares = rows.transpose(0, 2, 1), np.empty((num, 1, 1), x.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, num, _COPIED):
            piece = slice(start, start + _COPIED)
            np.matmul(rows[piece], columns[piece], out=squares[piece])
            into[piece] = rows[piece]
    out[size:] = x[size:]
    if not (np.isfinite(squares).all() and np.isfinite(out[size:]).all()):
        refuse_non_finite(x)  # else a square is too large, which does not matter
    return out


def refuse_non_finite(x: Vector) -> None:
    """Raise a ValueError with the first NaN or infinity of `x`, if there is one."""
    if not is_finite(x):
        raise_non_finite(x)


def raise_non_finite(x: Vector) -> NoReturn:
    """Raise a ValueError with the first NaN or infinity of `x`, which has one."""
    bad = np.flatnonzero(~np.isfinite(x))
    raise ValueError(
        f"x[{bad[0]}] is {x[bad[0]]}, and {len(bad)} of {len(x)} numbers are NaN or infinite: "
        "only finite vectors can be compressed; lower the learning rate or clip the gradient"
    )


def read_dim(encoded: EncodedVector) -> int:
    """Return the dimension of the encoded vector. Raises MalformedMessage unless it is a valid number."""
    if type(encoded.dim) is not int or encoded.dim < 0:
        raise MalformedMessage(f"an encoded vector of dimension {encoded.dim!r}; expected a count")
    return encoded.dim


def check_names(encoded: EncodedVector, names: Collection[str]) -> int:
    """Check that the encoded vector's arrays are exactly `names`; return its dimension. Raises MalformedMessage."""
    dim = read_dim(encoded)
    if set(encoded.arrays) != set(names):
        raise MalformedMessage(f"arrays {sorted(encoded.arrays)}; expected {sorted(names)}")
    return dim


def read_count(encoded: EncodedVector, name: str, low: int, high: int) -> int:
    """Return the integer `name` from the metadata. Raises MalformedMessage unless it is between `low` and `high`."""
    value = encoded.meta.get(name)
    if type(value) is not int or not low <= value <= high:
        raise MalformedMessage(f"{name} = {value!r}; expected an integer from {low} to {high}")
    return value


def read_array(encoded: EncodedVector, name: str, dtypes: Collection[str], length: int | None) -> Array:
    """Return the flat array `name` of a received vector. Raises MalformedMessage unless type and length are right.

    Its dtype must be one of `dtypes`. No memory is allocated. With a `length` of None any length is right that agrees
    with the buffer.
    """
    array = encoded.arrays.get(name)
    if not isinstance(array, Array) or array.dtype not in dtypes:
        raise MalformedMessage(
            f"array {name!r} is {getattr(array, 'dtype', 'missing')}; expected {' or '.join(dtypes)}"
        )
    itemsize = ITEM_BYTES[array.dtype]
    if length is None:
        length = array.data.nbytes // itemsize
    if array.shape != (length,) or array.data.nbytes != length * itemsize or not array.data.c_contiguous:
        raise MalformedMessage(
            f"array {name!r} has shape {array.shape} in {array.data.nbytes} bytes; "
            f"expected shape ({length},) in {length * itemsize}"
        )
    return array


def read_numpy(encoded: EncodedVector, name: str, dtypes: Collection[str], length: int | None) -> Vector:
    """Return the array `name` of a received vector as a numpy array, after the checks of `read_array`."""
    array = read_array(encoded, name, dtypes, length)
    return np.frombuffer(array.data, np.dtype(array.dtype))


def read_finite(encoded: EncodedVector, name: str, length: int) -> Vector:
    """Return the float array `name` of a received vector. Raises MalformedMessage if a number is NaN or infinite."""
    values = read_numpy(encoded, name, FLOATS, length)
    if not is_finite(values):
        raise MalformedMessage(f"array {name!r} holds a NaN or an infinity; expected finite numbers")
    return values


def read_scales(encoded: EncodedVector, length: int) -> Vector:
    """Return the scale factor of each bucket (group of numbers) of a received vector; `length` is their number.

    Raises MalformedMessage if one is negative, NaN or infinite.
    """
    scales = read_finite(encoded, "scales", length)
    if length and scales.min() < 0:
        raise MalformedMessage(f"a scale of {scales.min()}; expected none below 0")
    return scales
