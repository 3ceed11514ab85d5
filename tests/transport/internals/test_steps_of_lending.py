""""""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from netdfl.core.fates import Fate
from netdfl.testing.transports import vector_payload
from netdfl.transport import wire
from netdfl.transport.shared_memory.base import Answer
from netdfl.transport.shared_memory.buffers import SharedBuffers
from netdfl.transport.shared_memory.memory import PAGE, SLOT_WORDS, SharedMemory


class Words:
    """The words of a memory, which write down each access."""

    def __init__(self, words: memoryview, log: list[str], first: int) -> None:
        self._words, self._log, self._first = words, log, first

    def _note(self, what: str, at: int) -> None:
        names = ("token", "state", "answer")
        self._log.append(f"{what} {names[at - self._first] if at - self._first < SLOT_WORDS else 'presence'}")

    def __getitem__(self, at: int) -> int:
        self._note("load", at)
        return self._words[at]

    def __setitem__(self, at: int, value: int) -> None:
        self._note("store", at)
        self._words[at] = value


def test_the_code_takes_the_steps_of_the_model(monkeypatch: Any) -> None:
    log: list[str] = []

    def fenced() -> None:
        log.append("fence")

    monkeypatch.setattr(SharedMemory, "fence", staticmethod(fenced))
    shared = SharedMemory(range(2), 8 * PAGE, least_bytes=0)
    shared.words = Words(shared.words, log, 0)  # type: ignore[assignment]
    lender, reader = SharedBuffers(shared, 0, 0), SharedBuffers(shared, 1, 0)
    payload = vector_payload(np.zeros(300))

    def steps() -> list[str]:
        done, log[:] = list(log), []
        return done

    assert steps() == ["store presence"] * 2
    lease = lender.lend(payload, wire.frame_size(payload) - wire.BODY_AT, 1)
    assert lease is not None
    assert steps() == []
    reference = lease.reference(quiet=True)
    assert reference is not None
    assert steps() == ["load presence", "store state", "store answer", "store token"]
    body = reader.borrow(0, reference, wire.Limits())
    assert steps() == ["load token", "load state", "store state"]
    assert reader.answer(reference, Answer(Fate.DELIVERED, 7))
    assert steps() == ["store answer"]
    assert lease.poll() == Answer(Fate.DELIVERED, 7)
    assert steps() == ["load answer"]
    lease.release()
    (buffer,) = lender.pool.buffers
    assert not buffer.is_free
    assert steps() == ["load state", "load presence"]
    del body
    gc.collect()
    assert steps() == ["fence", "store state"]
    assert buffer.is_free
    assert steps() == ["load state"]
    reader.close()
    assert steps() == ["fence", "load presence", "store presence"]
