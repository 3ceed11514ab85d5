"""Bugs planted behind patches of netdfl's own parts, for proofs to find; without them fleets survive their bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from netdfl.core.types import Kind, Message
from netdfl.host.node import NodeHost
from netdfl.node.delivery import AcknowledgingTransport
from netdfl.node.mailbox import Mailbox
from netdfl.node.runtime import Node
from netdfl.node.waits import Waits
from tests.explore.planted import bug, wrapped
from tests.prove.naive import FLEET, PAIR
from tests.prove.test_counts import ACKNOWLEDGED

Wrapper = Callable[..., Any]
Patch = tuple[type, str, Callable[[Wrapper], Wrapper]]


@dataclass(frozen=True)
class HiddenBug:
    """A bug: its fleet, the bound within which it shows, its patches, and the properties that it breaks."""

    name: str
    bound: str
    fleet: Mapping[str, Any]
    patches: Callable[[], list[Patch]]
    single: str = ""
    properties: tuple[str, ...] = ("stall", "finish")
    messages: str = ""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Within it, the bug is there."""
        with ExitStack() as stack:
            for owner, name, around in self.patches():
                stack.enter_context(wrapped(owner, name, around))
            yield


def _never_again(attempts: int) -> Callable[[], list[Patch]]:
    """No message is sent again that was sent so often."""

    def again(inner: Wrapper) -> Wrapper:
        def around(self: AcknowledgingTransport, sent: Any) -> None:
            entry = self._unacknowledged.get(sent)
            if entry is None or len(entry.sent_ns) < attempts:
                inner(self, sent)

        return around

    return lambda: [(AcknowledgingTransport, "_again", again)]


def _missing_twice() -> list[Patch]:
    """A node breaks that misses somebody in two rounds in a row."""

    def record(inner: Wrapper) -> Wrapper:
        def around(self: Node, wait: Any, missing: Any) -> None:
            bug(bool(missing) and getattr(self, "missed", -9) == wait.round - 1, "missing in two rounds in a row")
            self.missed = wait.round if missing else -9  # type: ignore[attr-defined]
            inner(self, wait, missing)

        return around

    return [(Node, "_record", record)]


def _same_twice() -> list[Patch]:
    """A node breaks that misses the same neighbor a second time, in any round."""

    def record(inner: Wrapper) -> Wrapper:
        def around(self: Node, wait: Any, missing: Any) -> None:
            before: set[int] = self.__dict__.setdefault("missed_ever", set())
            bug(bool(before & set(missing)), "the same one is missing again")
            before |= set(missing)
            inner(self, wait, missing)

        return around

    return [(Node, "_record", record)]


def _of_a_later_life() -> list[Patch]:
    """A node breaks that hears from a later life."""

    def take(inner: Wrapper) -> Wrapper:
        def around(self: Mailbox, message: Message) -> Any:
            bug(message.kind is Kind.DATA and message.epoch > 0, "a message of a later life")
            return inner(self, message)

        return around

    return [(Mailbox, "_take", take)]


def _late_is_lost() -> list[Patch]:
    """A late share is thrown away."""

    def serves(inner: Wrapper) -> Wrapper:
        return lambda self, message: False

    return [(Mailbox, "_serves_late", serves)]


def _paused_twice() -> list[Patch]:
    """A node breaks that goes on a second time."""

    def resume(inner: Wrapper) -> Wrapper:
        def around(self: NodeHost) -> None:
            self.paused = getattr(self, "paused", 0) + 1  # type: ignore[attr-defined]
            bug(self.paused > 1, "resumed twice")
            inner(self)

        return around

    return [(NodeHost, "_resume", resume)]


def _asked_again() -> list[Patch]:
    """A request that is sent again breaks its receiver."""

    def take(inner: Wrapper) -> Wrapper:
        def around(self: Mailbox, message: Message) -> Any:
            bug(message.kind is Kind.REQUEST and message.attempt > 0, "asked again")
            return inner(self, message)

        return around

    return [(Mailbox, "_take", take)]


def _late_beside_missing() -> list[Patch]:
    """A late message breaks a node that has missed another one."""

    def take_late(inner: Wrapper) -> Wrapper:
        def around(self: Mailbox, message: Message) -> Any:
            bug(getattr(self, "lacks", message.src) != message.src, "late beside one that never came")
            return inner(self, message)

        return around

    def record(inner: Wrapper) -> Wrapper:
        def around(self: Node, wait: Any, missing: Any) -> None:
            for node in missing:
                self.mailbox.lacks = node  # type: ignore[attr-defined]
            inner(self, wait, missing)

        return around

    return [(Mailbox, "_take_late", take_late), (Node, "_record", record)]


def _gone_beside_missing() -> list[Patch]:
    """A node breaks that is told of a crash after it missed a message."""

    def record(inner: Wrapper) -> Wrapper:
        def around(self: Node, wait: Any, missing: Any) -> None:
            if missing and not self.waits.gone:
                self.waits.lacked = True  # type: ignore[attr-defined]
            inner(self, wait, missing)

        return around

    def set_gone(inner: Wrapper) -> Wrapper:
        def around(self: Waits, node: int) -> None:
            bug(getattr(self, "lacked", False), "gone after one was missing")
            inner(self, node)

        return around

    return [(Node, "_record", record), (Waits, "set_gone", set_gone)]


def late_again() -> list[Patch]:
    """A late message breaks its receiver where it is not the first attempt that came."""

    def take_late(inner: Wrapper) -> Wrapper:
        def around(self: Mailbox, message: Message) -> Any:
            bug(message.attempt > 0 and not self.has_seen(message.src, message.at), "late, and the second time only")
            return inner(self, message)

        return around

    return [(Mailbox, "_take_late", take_late)]


def comes_first(place: str, early: int, late: int, of: int) -> HiddenBug:
    """A bug that breaks where, of messages whose other end is `of`, that at `late` is taken before that at `early`."""
    other = "dst" if place == "src" else "src"

    def take(inner: Wrapper) -> Wrapper:
        def around(self: Mailbox, message: Message) -> Any:
            if message.kind is Kind.DATA and getattr(message, other) == of:
                taken: set[int] = asyncio.get_running_loop().__dict__.setdefault("taken", set())
                bug(getattr(message, place) == late and early not in taken, "the later one came first")
                taken.add(getattr(message, place))
            return inner(self, message)

        return around

    return HiddenBug("another comes first", "order: all", {}, lambda: [(Mailbox, "_take", take)])


SHORT = FLEET | {"rounds": 2}
RANDOM = {"topology": {"kind": "random_push", "out_neighbors": 1, "redraw_every": 1}, "algorithm": "sgp"}
CHOCO = {"algorithm": "choco_sgd", "compression": {"kind": "top_k", "fraction": 1.0}}
MEETING = {"algorithm": "ad_psgd", "nodes": 2, "rounds": 2}
SERVER = {"algorithm": "fedavg", "topology": "star", "nodes": 2, "rounds": 2}

BUGS = (
    HiddenBug("never sent again", "loss: 1", PAIR | ACKNOWLEDGED, _never_again(1)),
    HiddenBug("sent again once only", "loss: 2", PAIR | ACKNOWLEDGED, _never_again(2), "loss: 1"),
    HiddenBug("missing in two rounds in a row", "loss: 2", PAIR, _missing_twice, "loss: 1"),
    HiddenBug("a client's second life", "crash: 1", FLEET | SERVER, _of_a_later_life),
    HiddenBug("a late share", "delay: 1", PAIR | {"algorithm": "sgp"}, _late_is_lost, properties=("weight",)),
    HiddenBug("paused twice", "pause: 2", PAIR, _paused_twice, "pause: 1"),
    HiddenBug("a link down for good", "cut: 1", PAIR, _missing_twice),
    HiddenBug("an estimate that misses two", "loss: 2", PAIR | CHOCO, _same_twice, "loss: 1"),
    HiddenBug("asked again", "loss: 1", FLEET | MEETING | ACKNOWLEDGED, _asked_again),
    HiddenBug("late beside missing", "loss: 1, delay: 1", SHORT | RANDOM, _late_beside_missing, "delay: 1"),
    HiddenBug("gone after missing", "loss: 1, crash: 1", PAIR, _gone_beside_missing, "loss: 1"),
)
