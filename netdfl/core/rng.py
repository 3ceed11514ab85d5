"""Named random streams: one seed, and a stream for each purpose.

A new draw in one place changes nothing elsewhere, because a stream depends on the seed and its own
name alone: not on the order of calls, the process, or `PYTHONHASHSEED`.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

Key = int | str


class Streams:
    """Makes every random stream of a fleet from one seed."""

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
        """A 64-bit integer that depends on the seed and `key` alone."""
        return int.from_bytes(self._digest(key)[:8], "little")

    def uniform(self, *key: Key) -> float:
        """One draw from [0, 1), keyed: the fate of one message, say."""
        return (self.integer(*key) >> 11) * 2.0**-53

    def rng(self, *key: Key) -> np.random.Generator:
        """A generator of its own: `streams.rng("link", 3, 7, "loss")`."""
        words = np.frombuffer(self._digest(key), "<u4").astype(
            np.uint32
        )  # as numpy would make of the integer, but sooner
        return np.random.Generator(np.random.PCG64(words))
