"""Waits of one node on a clock that is set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.clock import NS_PER_S
from netdfl.core.types import Kind, Message, Payload
from netdfl.node.asking import StatusQueries
from netdfl.node.mailbox import Mailbox
from netdfl.node.waits import Waits
from netdfl.transport.base import deliver_one
from tests.node.hand import HandClock, settle

S = NS_PER_S
PLAIN, AUTO = {"deadline_ns": None}, {"deadline_ns": "auto"}


class Desk:
    """Node 9, which waits for 1, 2 and 3, by a clock that is moved by hand; where it `asks`, it notes its questions."""

    def __init__(self, *, asks: bool = False) -> None:
        self.clock, self.mailbox, self.sent = HandClock(), Mailbox(keep_late=False), list[Message]()
        asking = partial(StatusQueries, 9, self.clock, self.sent.append, 5) if asks else None
        self.waits = Waits(9, self.mailbox, self.clock, asking, lambda peers: asks)

    def arrive(self, *sources: int, round: int = 4, step: int = 1, kind: Kind = Kind.DATA) -> None:
        for src in sources:
            deliver_one(self.mailbox, Message(src, 9, kind, 0, round, step, 0, Payload()))

    async def wait(self, *, sources: Any = (1, 2, 3), kind: Kind = Kind.DATA, **policy: Any) -> Any:
        awaited = None if sources is None else frozenset(sources)
        task = asyncio.create_task(self.waits.messages(4, 1, awaited, WaitPolicy(**policy), kind))
        await settle()
        return task


Step = Callable[[Desk], object]


def come(*sources: int, **more: Any) -> Step:
    return lambda desk: desk.arrive(*sources, **more)


def at(ns: int) -> Step:
    return lambda desk: desk.clock.move_to(ns)
