"""How those who are nobody are recorded: all of them are counted, and they don't fill the disk."""

from __future__ import annotations

from collections import Counter

EACH_TOLD = 100


class Strangers:
    """Says how many strangers the next row stands for: from the 101st of a reason on, one row stands for 100."""

    def __init__(self) -> None:
        """Begin with none."""
        self._seen: Counter[str] = Counter()

    def count(self, reason: str) -> int:
        """Count one; returns how many a row is now due for, 0: none is."""
        self._seen[reason] += 1
        if self._seen[reason] <= EACH_TOLD:
            return 1
        return 0 if self._seen[reason] % EACH_TOLD else EACH_TOLD
