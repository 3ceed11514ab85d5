"""Tensors as the read-only arrays that travel, and back, without a copy where none is needed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.core.types import Array

DTYPES: dict[str, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "uint8": torch.uint8,
    "int8": torch.int8,
    "bool": torch.bool,
}
SHORT_BYTES = 4096
"""Up to which a copy's cost is the calls that make it."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
with warnings.catch_warnings():  # torch says it once in a process: a buffer that can't be written to must not be
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


def to_array(tensor: Tensor) -> Array:
    """View a tensor as an `Array`; the caller promises that nobody writes to it any more.

    A tensor on a GPU, or not contiguous, is copied to the host first.
    """
    host = tensor.detach().to("cpu").contiguous()
    flat = host.reshape(-1).view(torch.uint8).numpy()
    return Array(_NAMES[tensor.dtype], tuple(tensor.shape), memoryview(flat.data).toreadonly())


def snapshot(tensor: Tensor) -> Array:
    """Copy a tensor into an `Array` of its own; later writes to `tensor` change nothing in it.

    From a GPU it is one copy, into pinned memory.
    """
    if tensor.is_cuda:
        return to_array(torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor.detach()))
    if tensor.nbytes <= SHORT_BYTES and tensor.dtype is not torch.bfloat16:  # which numpy doesn't know
        return Array(_NAMES[tensor.dtype], tuple(tensor.shape), memoryview(tensor.detach().numpy().tobytes()))
    return to_array(empty(tensor.numel(), tensor.dtype).view(tensor.shape).copy_(tensor.detach()))


def scaled(tensor: Tensor, factor: float) -> Array:
    """`factor` times a tensor as an `Array`, in one pass over it."""
    if tensor.is_cuda:
        return snapshot(tensor * factor)
    out = empty(tensor.numel(), tensor.dtype).view(tensor.shape)
    return to_array(torch.mul(tensor.detach(), factor, out=out))


def empty(num: int, dtype: torch.dtype) -> Tensor:
    """A flat CPU tensor of `num` numbers, not set.

    numpy allocates, because it asks for huge pages: fresh memory costs several times a copy otherwise.
    """
    if not num:
        return torch.empty(0, dtype=dtype)
    return torch.from_numpy(np.empty(num * dtype.itemsize, np.uint8)).view(dtype)


def from_numpy(array: NDArray[Any]) -> Array:
    """View a contiguous numpy array as an `Array`; the caller promises that nobody writes to it any more."""
    return Array(array.dtype.name, array.shape, array.reshape(-1).view(np.uint8).data.toreadonly())


def to_tensor(array: Array) -> Tensor:
    """View an array as a CPU tensor that shares its memory. Reading is all that is allowed."""
    if array.nbytes == 0:
        return torch.empty(array.shape, dtype=DTYPES[array.dtype])
    return torch.frombuffer(array.data, dtype=DTYPES[array.dtype]).reshape(array.shape)
