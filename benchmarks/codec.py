"""Encode and decode speed of every compressor on one core, against memcpy and the usual serializers.

    python benchmarks/codec.py

Prints a JSON list of rows: name, value, unit, reference, reference_value, ratio. Speeds are GB/s of the
float32 input by the thread's CPU time, which a busy machine disturbs less; medians of at least five runs.
`memcpy` copies into memory that was touched before, `memcpy fresh` into newly allocated memory, as every
encoder must. malloc is tuned as a node's is.
"""

from __future__ import annotations

import io
import os
import pickle
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from figures import Row, show

from netdfl.core.process import keep_freed

if TYPE_CHECKING:
    from torch import Tensor

    from netdfl.compression.base import Compressor

LEAST = 5
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def median_seconds(run: Callable[[], object], budget_s: float = 0.6) -> float:
    """The median CPU time of at least five runs after one to warm up."""
    run()
    taken: list[float] = []
    while len(taken) < LEAST or sum(taken) < budget_s:
        start = time.thread_time()
        run()
        taken.append(time.thread_time() - start)
    return statistics.median(taken)


def measure(dim: int) -> Iterator[Row]:
    """All rows for a vector of `dim` numbers."""
    import numpy as np
    import torch

    torch.set_num_threads(1)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(dim, np.float32))
    target, size, gigabytes = torch.zeros(dim), f"{dim // 10**6}M", x.nbytes / 1e9
    memcpy = gigabytes / median_seconds(lambda: target.copy_(x))

    def beside_memcpy(name: str, speed: float) -> Row:
        return row(f"{name} {size}", speed, "GB/s", f"memcpy {size}", memcpy)

    yield beside_memcpy("memcpy", memcpy)
    for name, run in rivals(x).items():
        yield beside_memcpy(name, gigabytes / median_seconds(run))
    rng = np.random.default_rng(1)
    for name, make in compressors().items():
        compressor = make()
        encoded = compressor.compress(x, rng)
        yield beside_memcpy(f"{name} encode", gigabytes / median_seconds(partial(compressor.compress, x, rng)))
        yield beside_memcpy(f"{name} decode", gigabytes / median_seconds(partial(compressor.decompress, encoded)))
        yield row(f"{name} size {size}", encoded.nbytes * 8 / dim, "bit/number", f"float32 {size}", 32.0)


def row(name: str, value: float, unit: str, reference: str, against: float) -> Row:
    """One figure, rounded."""
    return Row(name, round(value, 3), unit, reference, round(against, 3), round(value / against, 4))


def rivals(x: Tensor) -> Mapping[str, Callable[[], object]]:
    """What else makes bytes of a vector."""
    import numpy as np
    import torch

    array = x.numpy()

    def saved(save: Callable[[io.BytesIO], object]) -> int:
        buffer = io.BytesIO()
        save(buffer)
        return len(buffer.getbuffer())

    return {
        "memcpy fresh": array.copy,
        "pickle.dumps": lambda: pickle.dumps(array, protocol=5),
        "numpy.save": lambda: saved(lambda file: np.save(file, array)),
        "torch.save": lambda: saved(lambda file: torch.save(x, file)),
    }


def compressors() -> Mapping[str, Callable[[], Compressor]]:
    """What is measured of ours."""
    from netdfl.compression.catalog import COMPRESSORS

    return {
        "raw": COMPRESSORS["identity"],
        "float16": COMPRESSORS["float16"],
        "bfloat16": COMPRESSORS["bfloat16"],
        "qsgd 8 bit": COMPRESSORS["qsgd"],
        "qsgd 8 bit l2": partial(COMPRESSORS["qsgd"], norm="l2"),
        "qsgd 4 bit": partial(COMPRESSORS["qsgd"], bits=4),
        "qsgd 4 bit l2 entropy": partial(COMPRESSORS["qsgd"], bits=4, norm="l2", entropy=True),
        "top-k 1%": partial(COMPRESSORS["top_k"], fraction=0.01),
        "top-k 10%": COMPRESSORS["top_k"],
        "top-k 1% threshold": partial(COMPRESSORS["top_k"], fraction=0.01, method="threshold"),
        "random-k 1%": partial(COMPRESSORS["random_k"], fraction=0.01),
        "sign": COMPRESSORS["sign"],
        "low rank 4": COMPRESSORS["low_rank"],
        "top-k 10% + 8 bit": COMPRESSORS["chain"],
    }


def main() -> None:
    """Print a JSON list of rows."""
    os.environ |= ONE_THREAD  # numpy and torch, which read it, are imported later
    keep_freed()
    rows = [row for dim in (1_000_000, 11_000_000) for row in measure(dim)]
    show(rows, f"medians of at least {LEAST} runs")


if __name__ == "__main__":
    main()
