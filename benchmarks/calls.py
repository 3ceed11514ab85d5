"""How many functions a message of a whole simulated run calls, which any machine counts alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any
from unittest import mock

FEW, MANY = 2, 6
KINDS = {"call": "calls in Python, a message", "c_call": "calls in C, a message"}
"""What is counted, by the interpreter's names of events."""


def calls_in(work: Callable[[], object]) -> dict[str, int]:
    """Count the functions that `work` calls on this thread: Python's, and those in C."""
    found = dict.fromkeys(KINDS, 0)

    def count(frame: FrameType, event: str, arg: object) -> None:
        if event in found:
            found[event] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def calls_a_message(fleet: Callable[[int], Mapping[str, Any]], messages_a_round: int) -> dict[str, float]:
    """Return what `MANY` rounds have above `FEW`, by message; `fleet` is a scenario of so many rounds."""
    import netdfl

    with TemporaryDirectory() as directory, mock.patch("netdfl.supervisor.showing.SHOW_S", 1e6):

        def run(rounds: int) -> dict[str, int]:
            return calls_in(lambda: netdfl.run(fleet(rounds), out=Path(directory) / str(rounds), page=False))

        run(1)  # what is imported and remembered once
        few, many = run(FEW), run(MANY)
    return {name: (many[kind] - few[kind]) / (messages_a_round * (MANY - FEW)) for kind, name in KINDS.items()}
