"""When a sender is asked whether it is past a step, and how often."""

from __future__ import annotations

from typing import Any

from netdfl.node.asking import StatusQueries

S, MS = 10**9, 10**6


def test_one_word_that_a_sender_is_past_is_enough_and_a_patience_is_one() -> None:
    class Still:
        def now_ns(self) -> int:
            return 0

        def call_at(self, at_ns: int, name: object, callback: object) -> object:
            return object()

    clock: Any = Still()
    its = StatusQueries(0, clock, lambda message: None, 0)
    its.begin((0, 0), lambda: ())  # type: ignore[arg-type]
    assert its._missing is not None
    assert (its._missing.proofs, its._missing.silent_ns) == (1, 2 * S)
