"""Where the C library is not glibc, freed memory is left to it."""

from __future__ import annotations

import pytest

from netdfl.core import process as memory


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_libc", lambda: None)
    memory.keep_freed()
    with memory.freed_kept():
        pass
