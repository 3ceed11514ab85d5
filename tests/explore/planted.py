"""Ten rare bugs, planted behind patches of netdfl's own parts: each raises where several rare things come together.

A fleet without any of them passes whatever happens to it, so a run that breaks has met the bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from netdfl.core.types import Message
from netdfl.host.network import PausableSink
from netdfl.host.node import NodeHost
from netdfl.node.mailbox import Mailbox
from netdfl.node.runtime import Node
from netdfl.node.waits import Waits
from netdfl.worlds.simulated.world import SimulatedWorld

ROUNDS = 8
FLEET: Mapping[str, Any] = {
    "schema": "netdfl/1",
    "name": "planted",
    "nodes": 6,
    "rounds": ROUNDS,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 1},
    "algorithm": "dpsgd",
    "topology": "ring",
    "wait": {"deadline": "25ms"},
    "links": {"default": {"latency": "5ms"}},
    "evaluation": {"every": ROUNDS, "local": "none"},
}
ACKNOWLEDGED = {"delivery": {"kind": "acknowledged", "timeout": "12ms", "attempts": 3}}
LUCK = {"links": {"default": {"latency": {"dist": "uniform", "low": "4ms", "high": "6ms"}, "loss": 0.02}}}
"""What blind seeds have: links whose luck differs."""


class PlantedBug(Exception):
    """The bug was met."""


Wrapper = Callable[..., Any]


@contextmanager
def wrapped(owner: type, name: str, around: Callable[[Callable[..., Any]], Wrapper]) -> Iterator[None]:
    """Within it, a method is what `around` makes of it."""
    with patch.object(owner, name, around(getattr(owner, name))):
        yield


@dataclass(frozen=True)
class Planted:
    """One bug: what must come together, and the patches that plant it."""

    name: str
    what: str
    patches: Callable[[], list[tuple[type, str, Callable[[Callable[..., Any]], Wrapper]]]]
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scenario(self) -> dict[str, Any]:
        """The fleet in which it is."""
        return {**FLEET, **self.changes}

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Within it, the bug is there."""
        with ExitStack() as stack:
            for owner, name, around in self.patches():
                stack.enter_context(wrapped(owner, name, around))
            yield


def afresh(begin: Callable[[], None]) -> tuple[type, str, Callable[[Callable[..., Any]], Wrapper]]:
    """Call `begin` before each run."""

    def around(init: Callable[..., Any]) -> Wrapper:
        def __init__(self: Any, *args: Any) -> None:
            begin()
            init(self, *args)

        return __init__

    return (SimulatedWorld, "__init__", around)


def bug(holds: bool, what: str) -> None:
    """Break where it holds."""
    if holds:
        raise PlantedBug(what)


# 1, 2: a late message beside what the failure detector says


def _late_beside_gone() -> list[Any]:
    def set_gone(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Waits, node: int) -> None:
            inner(self, node)
            if self.current is not None and self.gone >= self.current.sources:
                self.mailbox.gone_in = self.current.round  # type: ignore[attr-defined]

        return around

    def take_late(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Mailbox, message: Message) -> Any:
            bug(getattr(self, "gone_in", -9) == message.round, "late in the round in which both were called gone")
            return inner(self, message)

        return around

    return [(Waits, "set_gone", set_gone), (Mailbox, "_take_late", take_late)]


def _back_within_a_wait() -> list[Any]:
    def set_gone(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Waits, node: int) -> None:
            self.gone_wait = (node, self.current)  # type: ignore[attr-defined]
            inner(self, node)

        return around

    def set_returned(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Waits, node: int) -> None:
            was, wait = getattr(self, "gone_wait", (None, None))
            same = was == node and wait is not None and wait is self.current
            bug(same and len(self.gone) > 1, "gone and back within a wait, while another is gone")
            inner(self, node)

        return around

    return [(Waits, "set_gone", set_gone), (Waits, "set_returned", set_returned)]


# 3: a mailbox that is full in one round only


def _full_once() -> list[Any]:
    def init(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Mailbox, **options: Any) -> None:
            inner(self, **{**options, "bound": 2})

        return around

    def deliver(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Mailbox, messages: Sequence[Message]) -> Any:
            fates = inner(self, messages)
            held = [message.round for message, fate in zip(messages, fates, strict=True) if fate is None]
            bug(self._closed[0] == 3 and max(held, default=0) >= 6, "full in round 4, of round 6")
            return fates

        return around

    return [(Mailbox, "__init__", init), (Mailbox, "deliver", deliver)]


# 4, 5: what is sent again


def _duplicate_beside_late() -> list[Any]:
    def first_time(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Mailbox, src: int, slot: tuple[int, int]) -> bool:
            new: bool = inner(self, src, slot)
            late = getattr(self, "late_in", (-9, -9))
            bug(not new and late[0] == slot[0] and late[1] != src, "a duplicate beside another's late message")
            return new

        return around

    def take_late(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Mailbox, message: Message) -> Any:
            if not self.has_seen(message.src, (message.round, message.step)):
                self.late_in = (message.round, message.src)  # type: ignore[attr-defined]
            return inner(self, message)

        return around

    return [(Mailbox, "_first_time", first_time), (Mailbox, "_take_late", take_late)]


def _given_up_at_the_end() -> list[Any]:
    def gave_up(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Node, message: Message) -> None:
            last = message.round == self.num_rounds - 1
            bug(last and bool(self.waits.gone), "given up in the last round, while somebody is gone")
            inner(self, message)

        return around

    return [(Node, "_gave_up", gave_up)]


# 6, 7: who was missing, and when


def _one_then_both() -> list[Any]:
    def record(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Node, wait: Any, missing: Any) -> None:
            before = getattr(self, "missed", (-9, 0))
            bug(len(missing) == 2 and before == (wait.round - 1, 1), "one was missing, and in the next round both")
            self.missed = (wait.round, len(missing))  # type: ignore[attr-defined]
            inner(self, wait, missing)

        return around

    return [(Node, "_record", record)]


def _three_at_once() -> list[Any]:
    waited: dict[int, set[int]] = {}

    def record(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Node, wait: Any, missing: Any) -> None:
            if missing:
                waited.setdefault(wait.round, set()).add(self.id)
                alone = all(not waited.get(wait.round - before) for before in (1, 2))
                bug(
                    len(waited[wait.round]) >= 5 and alone and wait.round >= 3, "five lack something, and nobody before"
                )
            inner(self, wait, missing)

        return around

    return [afresh(waited.clear), (Node, "_record", record)]


# 8: a node's third life


def _third_life() -> list[Any]:
    def rejoin(inner: Callable[..., Any]) -> Wrapper:
        def around(self: NodeHost, rejoin: Any) -> None:
            bug(self.life.epoch == 2 and not rejoin.keep_state, "the second return, without its state")
            inner(self, rejoin)

        return around

    return [(NodeHost, "_rejoin", rejoin)]


# 9: an order of what comes last at a node


def _order() -> list[Any]:
    last: list[int] = []

    def end(inner: Callable[..., Any]) -> Wrapper:
        def around(self: Waits, wait: Any, timed_out: bool) -> Any:
            if self.node == 2 and wait.last_src is not None:
                last.append(wait.last_src)
                bug(last[-6:] == [3, 3, 1, 1, 3, 3], "3 was last twice, then 1, then 3 again")
            return inner(self, wait, timed_out)

        return around

    return [afresh(last.clear), (Waits, "_end", end)]


# 10: what a paused node finds at its door in a later life


def _door_of_a_later_life() -> list[Any]:
    def resume(inner: Callable[..., Any]) -> Wrapper:
        def around(self: NodeHost) -> None:
            self.door.later = self.life.epoch > 0  # type: ignore[attr-defined]
            inner(self)

        return around

    def opened(inner: Callable[..., Any]) -> Wrapper:
        def around(self: PausableSink) -> None:
            bug(getattr(self, "later", False) and bool(self._waiters), "messages at the door of a later life")
            inner(self)

        return around

    return [(NodeHost, "_resume", resume), (PausableSink, "open", opened)]


BUGS = (
    Planted("late beside gone", "a late message in a round in which both neighbors are called gone", _late_beside_gone),
    Planted("back within a wait", "a neighbor gone and back within one wait, the other gone", _back_within_a_wait),
    Planted("full once", "a mailbox with room for two is full in round 4, of messages of round 6", _full_once),
    Planted(
        "duplicate beside late",
        "a message that comes twice in the round of another's late one",
        _duplicate_beside_late,
        ACKNOWLEDGED,
    ),
    Planted(
        "given up at the end", "a message of the last round given up beside a crash", _given_up_at_the_end, ACKNOWLEDGED
    ),
    Planted("one, then both", "one neighbor missing in a round, and both in the next", _one_then_both),
    Planted("five at once", "five nodes lack something in one round, nobody in the two before", _three_at_once),
    Planted("third life", "a node that returns a second time, without its state", _third_life),
    Planted("order", "who comes last at node 2: 3, 3, 1, 1, 3, 3", _order),
    Planted("door of a later life", "a node that had crashed is paused, and messages wait", _door_of_a_later_life),
)
