"""One node with everything around it made by hand: views, tasks, what it sends and notes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import torch

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.core.rng import Streams
from netdfl.core.types import Kind, Message, Multicast, Payload, View, messages_of
from netdfl.mixing.payloads import pack
from netdfl.node.ledger import NodeLedger
from netdfl.node.mailbox import Mailbox
from netdfl.node.runtime import Node
from netdfl.record.base import WaitRecord
from netdfl.testing.loopback import LastState, SilentRecorder
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.training.catalog import quadratic
from netdfl.transport.base import deliver_one
from tests.node.hand import HandClock, settle

ME, STREAMS, S = 2, Streams(3), 10**9
FULL = Network(TOPOLOGIES["full"](5, STREAMS))
ALL = WaitPolicy(deadline_ns=None)


class Notes(SilentRecorder):
    """Keeps events, figures and waits."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.figures: list[tuple[Any, ...]] = []
        self.waits: list[WaitRecord] = []

    def event(self, *said: object, **details: object) -> None:
        self.events.append((*said, details))

    def metrics(self, *said: object) -> None:
        self.figures.append(said)

    def wait(self, waited: WaitRecord) -> None:
        self.waits.append(waited)


class Post:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.given: list[Multicast] = []

    def attach(self, sink: object) -> None: ...

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        self.given += multicasts
        self.sent += messages_of(multicasts)

    async def aclose(self) -> None: ...


class Works:
    """Does all at once, and notes what; `spares` says whether vectors are short. A local round takes a second."""

    def __init__(self, clock: HandClock, spares: bool) -> None:
        self.clock, self.spares, self.done = clock, spares, list[str]()

    async def run(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        self.done.append(what)
        self.clock.ns += S * (what == "train")
        return function(*args)

    def is_short(self, numel: int) -> bool:
        return self.spares


class Rounds(LastState):
    def __init__(self) -> None:
        super().__init__()
        self.begun: list[int] = []

    async def begin_round(self, round: int) -> None:
        self.begun.append(round)


class Desk:
    """Node 2 of five with a hand on its clock, and notes of all that it does."""

    def __init__(
        self, method: str = "dfedavg", *, wait: WaitPolicy = ALL, spares: bool = True, push: bool = False, **more: Any
    ) -> None:
        self.clock, self.notes, self.post, self.kept = HandClock(), Notes(), Post(), Rounds()
        self.works = Works(self.clock, spares)
        parts = more.pop("parts", {})
        self.algorithm = ALGORITHMS[method].build(Exchange(wait=wait), **parts)
        if more.pop("own", False):
            self.algorithm = replace(self.algorithm, refine=Mine())  # type: ignore[arg-type]
        self.asked_views: list[tuple[int, frozenset[int]]] = []
        given: dict[str, Any] = {
            "id": ME,
            "task": quadratic(ME, STREAMS, dim=4),
            "view_of": self._view,
            "num_rounds": 7,
            "transport": self.post,
            "mailbox": Mailbox(keep_late=push),
        }
        ledger = NodeLedger(ME, self.clock, self.notes)
        given |= {"clock": self.clock, "worker": self.works, "recorder": self.notes, "ledger": ledger, "epoch": 3}
        self.node = Node(algorithm=self.algorithm, hooks=self.kept, **given | more)
        self.made_in = self.node.round
        self.node.round = 4

    def _view(self, round: int, gone: frozenset[int]) -> View:
        self.asked_views.append((round, gone))
        return FULL.view(ME, round)

    def view(self, round: int = 4, **more: Any) -> View:
        return FULL.view(ME, round)._replace(**more)

    def arrive(self, *sources: int, kind: Kind = Kind.DATA, round: int = 4, step: int = 0, **meta: Any) -> None:
        for src in sources:
            payload = pack(torch.zeros(4), meta=meta)
            deliver_one(self.node.mailbox, Message(src, ME, kind, 0, round, step, 0, payload))

    async def during(self, work: Coroutine[Any, Any, Any], *steps: Callable[[], None]) -> Any:
        task = asyncio.create_task(work)
        for step in steps:
            await settle()
            assert not task.done()
            step()
        await settle()
        return await asyncio.wait_for(task, 5)


SHARE, OTHER = Payload(meta={"w": 0.25}), Payload(meta={"w": 0.5})


class Mine:
    """A user's own refinement of a server's model: whoever has one draws by what it does."""

    def refine(self, *given: object) -> list[float]:
        return drawn()


def drawn(*numbers: int) -> list[float]:
    return torch.rand(3).tolist()  # type: ignore[no-any-return]
