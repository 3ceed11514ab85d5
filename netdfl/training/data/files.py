"""Readers of raw dataset files: IDX (the MNIST family) and fixed-length records (the CIFAR family).

Raw files are mapped, not read: a node touches only the pages of its own samples.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from netdfl.core.errors import DatasetError

_UNSIGNED_BYTE = 0x08


def _idx_shape(head: bytes, path: Path) -> tuple[int, ...]:
    if len(head) < 4 or head[:3] != bytes((0, 0, _UNSIGNED_BYTE)) or len(head) < 4 + 4 * head[3]:
        raise DatasetError(
            f"{path} is damaged: it does not start like an IDX file of bytes; delete it and get it again"
        )
    return tuple(int(n) for n in np.frombuffer(head, ">u4", count=head[3], offset=4))


def _check_size(path: Path, nbytes: int, expected: int) -> None:
    if nbytes != expected:
        raise DatasetError(f"{path} is damaged: {nbytes} bytes, expected {expected}; delete it and get it again")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of the IDX file at `path`, or of `path` with `.gz` appended.

    Raises:
        FileNotFoundError: Neither file exists.
        DatasetError: The file is damaged.
    """
    if not path.exists():
        return _read_idx_gz(path.with_name(path.name + ".gz"))
    with path.open("rb") as file:
        shape = _idx_shape(file.read(4 + 4 * 255), path)
    start = 4 + 4 * len(shape)
    _check_size(path, path.stat().st_size, start + math.prod(shape))
    return np.asarray(np.memmap(path, np.uint8, mode="r", offset=start, shape=shape))


def _read_idx_gz(path: Path) -> NDArray[np.uint8]:
    try:
        content = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as exc:
        raise DatasetError(f"{path} is damaged: {exc}; delete it and get it again") from exc
    shape = _idx_shape(content, path)
    start = 4 + 4 * len(shape)
    _check_size(path, len(content), start + math.prod(shape))
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_records(path: Path, shape: tuple[int, ...], count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Inputs (count, *shape) and labels of a file of records: a label byte, then prod(shape) bytes.

    Raises:
        FileNotFoundError: The file does not exist.
        DatasetError: The file has another size.
    """
    width = 1 + math.prod(shape)
    _check_size(path, path.stat().st_size, count * width)
    records = np.asarray(np.memmap(path, np.uint8, mode="r", shape=(count, width)))
    return records[:, 1:].reshape(count, *shape), records[:, 0].astype(np.int64)
