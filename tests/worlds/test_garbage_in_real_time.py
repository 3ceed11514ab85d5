"""Garbage of a real world's supervisor: strangers decide how many refused calls there are, and each leaves cycles."""

from __future__ import annotations

from netdfl.core.process import few_collections
from netdfl.worlds.base import run_in_real_time

MADE, MOST = 200_000, 50_000


class RefusedCall:
    """An object in a cycle with itself, as gRPC's context of a call is with the error that ended the call."""

    alive = 0

    def __init__(self) -> None:
        RefusedCall.alive += 1
        self.error = self

    def __del__(self) -> None:
        RefusedCall.alive -= 1


async def _refuse_calls() -> int:
    most = 0
    for _ in range(MADE):
        RefusedCall()
        most = max(most, RefusedCall.alive)
    return most


def test_few_refused_calls_are_kept_however_many_there_are() -> None:
    with few_collections():  # as a whole run has it
        assert run_in_real_time(_refuse_calls, lambda: None) < MOST
