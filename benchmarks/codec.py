"""Encode and decode speed of every compressor on one core, against memcpy and the usual serializers.

    python benchmarks/codec.py [--out codec.json]

Prints a JSON list of rows: name, value, unit, reference, reference_value, ratio. Speeds are GB/s of the
float32 input by the thread's CPU time, which a busy machine disturbs less; the best of several runs.
`memcpy` copies into memory that was touched before, `memcpy fresh` into newly allocated memory, as every
encoder must. malloc is tuned as a node's is.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "67108864",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

Row = dict[str, object]


def best_seconds(run: Callable[[], object], budget_s: float = 0.6) -> float:
    """The shortest of at least five runs after one to warm up."""
    run()
    best, spent, runs = float("inf"), 0.0, 0
    while runs < 5 or spent < budget_s:
        start = time.thread_time()
        run()
        took = time.thread_time() - start
        best, spent, runs = min(best, took), spent + took, runs + 1
    return best


def measure(dim: int) -> list[Row]:
    import numpy as np
    import torch

    from netdfl.compression.catalog import COMPRESSORS

    torch.set_num_threads(1)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(dim, np.float32))
    array, target = x.numpy(), torch.zeros(dim)
    rng = np.random.default_rng(1)
    gigabytes = x.nbytes / 1e9
    memcpy = gigabytes / best_seconds(lambda: target.copy_(x))
    size = f"{dim // 10**6}M"
    rows: list[Row] = []

    def add(name: str, value: float, unit: str = "GB/s", reference: str = "memcpy", against: float = memcpy) -> None:
        ratio = round(value / against, 4)
        rows.append(
            {
                "name": f"{name} {size}",
                "value": round(value, 3),
                "unit": unit,
                "reference": f"{reference} {size}",
                "reference_value": round(against, 3),
                "ratio": ratio,
            }
        )

    def saved(save: Callable[[io.BytesIO], object]) -> int:
        buffer = io.BytesIO()
        save(buffer)
        return len(buffer.getbuffer())

    add("memcpy", memcpy)
    add("memcpy fresh", gigabytes / best_seconds(array.copy))
    add("pickle.dumps", gigabytes / best_seconds(lambda: pickle.dumps(array, protocol=5)))
    add("numpy.save", gigabytes / best_seconds(lambda: saved(lambda f: np.save(f, array))))
    add("torch.save", gigabytes / best_seconds(lambda: saved(lambda f: torch.save(x, f))))
    for name, make in {
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
    }.items():
        compressor = make()
        encoded = compressor.compress(x, rng)
        add(f"{name} encode", gigabytes / best_seconds(partial(compressor.compress, x, rng)))
        add(f"{name} decode", gigabytes / best_seconds(partial(compressor.decompress, encoded)))
        add(f"{name} size", encoded.nbytes * 8 / dim, "bit/number", "float32", 32.0)
    return rows


def main() -> None:
    if any(os.environ.get(key) != value for key, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC})
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    text = json.dumps([row for dim in (1_000_000, 11_000_000) for row in measure(dim)], indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
