"""Named random streams: one seed, and a stream for each purpose.

A new draw in one place changes nothing elsewhere, because a stream depends only on the seed and its own name: not on
the order of calls, the process, or `PYTHONHASHSEED`.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np

Key = int | str


ALONE = threading.RLock()
"""The lock to hold while the global random generators of a process are seeded, and while seeded numbers are drawn from
them."""


@contextmanager
def kept_streams() -> Iterator[None]:
    """Restore the global random generators of numpy, Python and, if it is loaded, torch after the context.

    Streams of GPUs are not restored.
    """
    torch = sys.modules.get("torch")
    states = np.random.get_state(), random.getstate(), None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        np.random.set_state(states[0])
        random.setstate(states[1])
        if torch is not None:
            torch.set_rng_state(states[2])


def seed_streams(seed: int) -> None:
    """Seed the global random generators of numpy, Python and, if it is loaded, torch."""
    with ALONE:
        np.random.seed(seed % 2**32)
        random.seed(seed)
        if (torch := sys.modules.get("torch")) is not None:
            torch.default_generator.manual_seed(seed)


class Streams:
    """All random number streams of a fleet, derived from one seed: one stream for each purpose."""

    __slots__ = ("_base", "seed")

    def __init__(self, seed: int) -> None:
        """Derive all streams from `seed`."""
        self.seed = seed
        self._base = blake2b(repr(seed).encode(), digest_size=16)

    def _digest(self, key: tuple[Key, ...]) -> bytes:
        state = self._base.copy()
        state.update(repr(key).encode())
        return state.digest()

    def integer(self, *key: Key) -> int:
        """Return a 64-bit integer that depends only on the seed and `key`."""
        return int.from_bytes(self._digest(key)[:8], "little")

    def uniform(self, *key: Key) -> float:
        """Return a number of [0, 1) that depends only on the seed and `key`, such as the draw for a message's loss."""
        return (self.integer(*key) >> 11) * 2.0**-53

    def rng(self, *key: Key) -> np.random.Generator:
        """Return a generator that depends only on the seed and `key`, as in `streams.rng("link", 3, 7, "loss")`."""
        words = np.frombuffer(self._digest(key), "<u4").astype(
            np.uint32
        )  # as numpy would make of the integer, but sooner
        return np.random.Generator(np.random.PCG64(words))
